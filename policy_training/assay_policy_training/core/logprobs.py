"""Log-probabilities of given tokens, in chunks, so that rows x tokens x vocabulary is never in memory at once.

Covers: one pass through the network, without padding and with a context that several rows share computed once where
the model allows (`assay.models.attention.packing`), then the vocabulary head over chunks of the tokens that count
(padding costs nothing there; `assay.models.token_losses`). Rows with images are padded, and
the token of their places has probability 0. Log-probs and entropy are of the distribution at the given temperature, the
one the sampler draws from (before top-p). Leaves out: sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay.models.attention.packing import TokenGroup, backbone, can_pack, forward, takes_positions, unwrapped
from assay.models.devices import to_device
from assay.models.heads import position_ids
from assay.models.token_losses import CHUNK_TOKENS, KEPT_CHUNKS, in_chunks, token_statistics
from assay.models.vision import without_image_places
from assay_policy_training.core.sampling import prune

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Gives what a network's forward pass takes beside token ids [B,S] of rows with images.
ImageInputs = Callable[[Any, Tensor], Mapping[str, Tensor]]
#: What the scorer pass can supply to plug-ins besides the log-probs themselves.
EXTRAS = frozenset({"sum_pi_sq", "max_pi", "mean_logp", "hidden", "teacher_kl"})
SUPPLIED = frozenset({"entropy", "entropy_gradient", *EXTRAS})


@dataclass(frozen=True)
class TokenScores:
    """Of the response tokens; [B,T] float32 with 0 where the mask is off.

    `teacher_kl`, in `extras` on demand: KL(policy || teacher) of the next token's whole distribution, nats,
    differentiable. The other `extras`, on demand and detached: `sum_pi_sq` = sum_v pi(v)^2; `max_pi`; `mean_logp` =
    (1/V) sum_v log pi(v); `hidden` [B,T,d], the last hidden state that the token is predicted from; `outside` (of a
    pruned vocabulary): 1 where the token is not of it, whose logp is then of the unpruned one.
    """

    logp: Tensor
    entropy: Tensor  #: nats, of the pruned distribution; detached unless `entropy_gradient` is requested
    extras: Mapping[str, Tensor] = field(default_factory=dict)


def score_tokens(
    model: PreTrainedModel,
    context_ids: Tensor,
    context_mask: Tensor,
    tokens: Tensor,
    mask: Tensor,
    *,
    temperature: float,
    prune_log_ratio: float | None = None,
    extras: Set[str] = frozenset(),
    teacher: PreTrainedModel | None = None,
    teacher_pass: Callable[[Any, Callable[[], Tensor]], Tensor] = lambda _, measure: measure(),
    images: ImageInputs | None = None,
    chunk_tokens: int = CHUNK_TOKENS,
) -> TokenScores:
    """Score `tokens` [B,T] (right-padded by `mask`) after contexts [B,S] (left-padded), on the model's device.
    Differentiable. All four are best given on the host, where they are read.

    Every context has at least one token, and `mask` is on from the left of each row. `extras`: of `SUPPLIED`;
    `teacher` is what `teacher_kl` is measured against, a frozen model of the same vocabulary that reads no images.
    `teacher_pass`: what runs it (`SingleProcess.forward`). `images`: of rows that have some, in their contexts.
    """
    head = vocabulary_head(model)
    context_ids, context_mask, tokens, mask = (part.cpu() for part in (context_ids, context_mask, tokens, mask))
    states = response_states(model, context_ids, context_mask, tokens, mask, images=images)
    targets = to_device(tokens[mask], states.device)
    inputs = [states, targets]
    teacher_head: Callable[[Tensor], Tensor] | None = None
    if teacher is not None and "teacher_kl" in extras:
        with torch.no_grad():
            read = partial(response_states, teacher, context_ids, context_mask, tokens, mask)
            inputs.append(teacher_pass(teacher, read))
        teacher_head = vocabulary_head(teacher)  # of a divided one, whole since its pass

    def of_chunk(state: Tensor, target: Tensor, *teacher_state: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            teacher_logits = teacher_head(*teacher_state) if teacher_head is not None else None
        return _head_scores(head, state, target, temperature, prune_log_ratio, extras, teacher_logits)

    # What else has a gradient holds float32 numbers of the logits' size.
    kept = 1 if prune_log_ratio is not None or extras & {"entropy_gradient", "teacher_kl"} else KEPT_CHUNKS
    chunk_scores = in_chunks(of_chunk, *inputs, size=chunk_tokens, kept=kept)
    mask = to_device(mask, states.device)
    spread = {name: _spread([part[name] for part in chunk_scores], mask) for name in chunk_scores[0]}
    if "hidden" in extras:
        hidden = torch.zeros((*mask.shape, states.shape[-1]), device=mask.device)
        spread["hidden"] = hidden.masked_scatter(mask[..., None], states.detach().float())
    empty = torch.zeros(mask.shape, device=mask.device)
    return TokenScores(spread.pop("logp", empty), spread.pop("entropy", empty), spread)


def response_states(
    model: PreTrainedModel,
    context_ids: Tensor,
    context_mask: Tensor,
    tokens: Tensor,
    mask: Tensor,
    *,
    images: ImageInputs | None = None,
) -> Tensor:
    """Hidden states [tokens that count, d], in row order, from which each token is predicted; ids and masks of the
    host."""
    longest = int((context_mask.sum(1) + mask.sum(1)).max())
    if images is not None or not can_pack(model, longest):
        return padded_states(model, context_ids, context_mask, tokens, mask, images=images)
    rows: dict[bytes, list[int]] = {}
    contexts, responses = [], []
    for number in range(len(tokens)):
        contexts.append(context_ids[number][context_mask[number]].to(torch.int32).numpy())
        responses.append(tokens[number][mask[number]].to(torch.int32).numpy())
        if len(responses[-1]):
            rows.setdefault(contexts[-1].tobytes(), []).append(number)
    if not rows:
        return padded_states(model, context_ids, context_mask, tokens, mask)
    groups = [TokenGroup(contexts[same[0]], tuple(responses[n] for n in same)) for same in rows.values()]
    states = forward(model, groups).before()
    order = [number for same in rows.values() for number in same]
    parts = dict(zip(order, torch.split(states, [len(responses[number]) for number in order]), strict=True))
    return torch.cat([parts[number] for number in sorted(parts)])


def padded_states(
    model: PreTrainedModel,
    context_ids: Tensor,
    context_mask: Tensor,
    tokens: Tensor,
    mask: Tensor,
    *,
    images: ImageInputs | None = None,
) -> Tensor:
    """The same by one padded row each. Columns that are padding in every row are not computed."""
    first_column = int((~context_mask).all(0).sum())
    width = int(mask.any(0).sum())
    device = unwrapped(model).device
    ids = to_device(torch.cat([context_ids[:, first_column:], tokens[:, :width]], 1), device)
    seen = to_device(torch.cat([context_mask[:, first_column:], mask[:, :width]], 1), device)
    network: Any = trunk(model) if images is None else backbone(unwrapped(model))
    options = {} if images is None else dict(images(network, ids))
    if takes_positions(network) and not hasattr(network, "get_rope_index"):  # those count by the images themselves
        options["position_ids"] = position_ids(seen)
    hidden = network(input_ids=ids, attention_mask=seen.long(), use_cache=False, **options).last_hidden_state
    start = context_ids.shape[1] - first_column
    # Position start-1+t predicts response token t.
    rows = to_device(mask[:, :width].flatten().nonzero().squeeze(1), device)
    states: Tensor = hidden[:, start - 1 : start - 1 + width].flatten(0, 1).index_select(0, rows)
    return states


def _head_scores(
    head: Callable[[Tensor], Tensor],
    state: Tensor,
    target: Tensor,
    temperature: float,
    prune_log_ratio: float | None,
    extras: Set[str],
    teacher_logits: Tensor | None = None,
) -> dict[str, Tensor]:
    logits = head(state)
    if temperature != 1:
        logits = logits.float() / temperature
    scores: dict[str, Tensor] = {}
    by_gradient = "entropy_gradient" in extras and torch.is_grad_enabled()
    if prune_log_ratio is None:
        scores["logp"], normaliser, scores["entropy"], _ = token_statistics(logits, target)
        if extras <= {"entropy", "hidden"}:
            return scores
    logits = logits.float()
    pruned = prune(logits, prune_log_ratio)
    if prune_log_ratio is not None:
        picked, normaliser = logits.gather(-1, target[:, None]).squeeze(-1), pruned.logsumexp(-1)
        outside = pruned.detach().gather(-1, target[:, None]).squeeze(-1).isinf()
        scores["logp"] = picked - torch.where(outside, logits.logsumexp(-1), normaliser)
        scores["outside"] = outside.float()
    if prune_log_ratio is not None or by_gradient:
        with torch.set_grad_enabled(by_gradient):
            finite = pruned if prune_log_ratio is None else pruned.masked_fill(pruned.isinf(), 0.0)
            p = (pruned - normaliser[:, None]).exp_()
            scores["entropy"] = normaliser - (p * finite if by_gradient else p.mul_(finite)).sum(-1)
    if teacher_logits is not None:
        scores["teacher_kl"] = full_kl(pruned, teacher_logits.float() / temperature)
    with torch.no_grad():
        if "sum_pi_sq" in extras:
            scores["sum_pi_sq"] = ((2 * pruned).logsumexp(-1) - 2 * normaliser).exp()
        if "max_pi" in extras:
            scores["max_pi"] = (pruned.amax(-1) - normaliser).exp()
        if "mean_logp" in extras:
            scores["mean_logp"] = logits.mean(-1) - logits.logsumexp(-1)
    return scores


def full_kl(logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """[N] KL(softmax(logits) || softmax(teacher_logits)) over the vocabulary, nats; both [N,V], -inf in `logits` = cut.

    Its gradient by the logits is pi_v (log(pi_v / q_v) - KL): no sampling noise. Where one vocabulary is padded
    further than the other, both distributions are those over the ids that both have.
    """
    width = min(logits.shape[-1], teacher_logits.shape[-1])
    logits = logits[..., :width]
    log_q = teacher_logits[..., :width].log_softmax(-1).masked_fill(logits.isinf(), 0.0)
    normaliser = logits.logsumexp(-1, keepdim=True)
    finite = logits.masked_fill(logits.isinf(), 0.0)
    return ((logits - normaliser).exp() * (finite - normaliser - log_q)).sum(-1)


def _spread(values: list[Tensor], mask: Tensor) -> Tensor:
    """Values of the masked tokens, in row order, back to [B,T]."""
    out = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    return out.masked_scatter(mask, torch.cat(values)) if values else out


def trunk(model: Any) -> Callable[..., Any]:
    """The network up to the last hidden states."""
    return unwrapped(model).get_decoder()  # type: ignore[no-any-return]


def vocabulary_head(model: Any) -> Callable[[Tensor], Tensor]:
    """Hidden states [N,d] -> logits [N,V] in the format of the products, float32 with the soft cap of models that have
    one."""
    base = unwrapped(model)
    linear = base.get_output_embeddings()
    cap = getattr(base.config, "final_logit_softcapping", None)

    def logits(state: Tensor) -> Tensor:
        raw: Tensor = linear(state)
        return without_image_places(raw if cap is None else cap * torch.tanh(raw.float() / cap), base.config)

    return logits


@torch.no_grad()
def check_head(model: PreTrainedModel, device: torch.device) -> None:
    """Compare with the model's own logits once; some architectures scale them. Raises BadInputError if they differ.

    In half precision the head alone is compared, on the same hidden states: attention's kernels round differently, and
    at these tokens that is whole units of a log-prob.
    """
    ids = torch.arange(1, 9)[None]
    mask = torch.ones_like(ids, dtype=torch.bool)
    inputs = to_device(ids, device)
    logits = without_image_places(model(input_ids=inputs, use_cache=False).logits.float(), unwrapped(model).config)
    later = to_device(ids[0, 4:, None], device)
    expected = logits.log_softmax(-1)[0, 3:-1].gather(-1, later).squeeze(-1)
    if model.dtype in (torch.bfloat16, torch.float16):
        states = trunk(model)(input_ids=inputs, use_cache=False).last_hidden_state[0, 3:-1]
        rescored = vocabulary_head(model)(states).float().log_softmax(-1).gather(-1, later).squeeze(-1)
    else:
        rescored = score_tokens(model, ids[:, :4], mask[:, :4], ids[:, 4:], mask[:, 4:], temperature=1.0).logp[0]
    # The last bits differ; a missing scale or cap differs by whole units.
    if not (worst := float((rescored - expected).abs().max())) <= 0.05:
        raise BadInputError(
            f"{type(unwrapped(model)).__name__} computes its logits in a way this trainer does not reproduce "
            f"(log-probs differ by {worst:.3g})"
        )
