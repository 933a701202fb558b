"""From prompts to the token ids a sampler generates from, and from generated tokens to a batch of rollouts.

Covers: contexts of generation and of training where they differ, text that starts the policy's turn and that it did not
write (its tokens are in the row, off in `mask`). Leaves out: generating.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay.models.chat.image_reader import references_of
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.stop_strings import StopStrings


def generation_ids(policy: Policy, items: Sequence[PromptItem], *, images: bool = False) -> list[list[int]]:
    """Per item, the tokens that are generated from: the context, then what is forced. Raises BadInputError for one with
    images, unless the caller takes them too (`images`)."""
    if not images and any(references_of(item.generation_context) for item in items):
        raise BadInputError("prompts with images, which this one does not give to the model", field="sampler")
    return [[*policy.renderer.encode(item.generation_context).ids, *forced_ids(policy, item)] for item in items]


def forced_ids(policy: Policy, item: PromptItem) -> list[int]:
    """The tokens that the policy's turn starts with and that are given."""
    return list(policy.tokenizer(item.forced, add_special_tokens=False)["input_ids"]) if item.forced else []


def assemble(
    policy: Policy,
    items: Sequence[PromptItem],
    group_size: int,
    generated: tuple[Tensor, Tensor, Tensor],
    *,
    version: int,
    stops: StopStrings | None = None,
) -> RolloutBatch:
    """The batch, on the CPU, of `group_size` rows an item in order.

    `generated`: tokens [B,T] int64, mask [B,T] bool, log-probs [B,T] float32 under the distribution sampled; every row
    has at least one token. `stops`: texts that end a row as an end token does. Rows of an item share a uid that is new
    to this call only.
    """
    tokens, mask, logp = (column.cpu() for column in generated)
    pad = int(policy.tokenizer.pad_token_id)
    last = tokens.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
    finished = torch.isin(last, torch.tensor(sorted(policy.end_ids)))
    if stops:
        finished |= torch.tensor([stops.reached(row[keep].tolist()) for row, keep in zip(tokens, mask, strict=True)])
    forced_tokens = [forced_ids(policy, item) for item in items]
    forced = None
    if any(forced_tokens):
        tokens, mask, logp, forced = _with_forced(forced_tokens, group_size, tokens, mask, logp, pad)
    gen_ids, gen_mask = pad_left(generation_ids(policy, items, images=True), pad)
    train_ids, train_mask = gen_ids, gen_mask
    if any(forced_tokens) or any(item.training_context != item.generation_context for item in items):
        contexts = [policy.renderer.encode(item.training_context).ids for item in items]
        train_ids, train_mask = pad_left(contexts, pad)
    present = mask if forced is None else mask | forced
    return RolloutBatch(
        uid=tuple(f"{version}.{number}" for number in range(len(items)) for _ in range(group_size)),
        prompts=tuple(item.prompt for item in items for _ in range(group_size)),
        responses=tuple(_text(policy, row[keep]) for row, keep in zip(tokens, present, strict=True)),
        gen_input_ids=gen_ids.repeat_interleave(group_size, 0),
        gen_mask=gen_mask.repeat_interleave(group_size, 0),
        train_input_ids=train_ids.repeat_interleave(group_size, 0),
        train_mask=train_mask.repeat_interleave(group_size, 0),
        tokens=tokens,
        mask=mask,
        loss_mask=mask,
        logp_mu=logp,
        version=torch.full((len(tokens),), version),
        token_version=torch.where(mask, version, 0),
        finished=finished,
        truncated=~finished,
        items=tuple(item for item in items for _ in range(group_size)),
        source=tuple(item.source for item in items for _ in range(group_size)),
        forced=forced,
    )


def _text(policy: Policy, tokens: Tensor) -> str:
    return str(policy.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _with_forced(
    forced_tokens: Sequence[Sequence[int]], group_size: int, tokens: Tensor, mask: Tensor, logp: Tensor, pad: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The given tokens before the generated ones, row by row; the last tensor marks them."""
    rows, width = tokens.shape
    most = max(len(ids) for ids in forced_tokens)
    out = torch.full((rows, most + width), pad)
    generated, forced = (torch.zeros((rows, most + width), dtype=torch.bool) for _ in range(2))
    logps = torch.zeros((rows, most + width))
    for row in range(rows):
        ids = forced_tokens[row // group_size]
        n = len(ids)
        out[row, :n] = torch.tensor(ids, dtype=torch.long)
        forced[row, :n] = True
        out[row, n : n + width], generated[row, n : n + width] = tokens[row], mask[row]
        logps[row, n : n + width] = logp[row]
    return out, generated, logps, forced


def pad_left(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Token lists as [B,S] int64 and their mask [B,S] bool."""
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad)
    mask = torch.zeros((len(rows), width), dtype=torch.bool)
    for number, row in enumerate(rows):
        ids[number, width - len(row) :] = torch.tensor(row)
        mask[number, width - len(row) :] = True
    return ids, mask
