"""Rollouts by vLLM, wherever it runs: token ids in, token ids with their log-probs out, weights published and checked.

Covers: a group as the `n` completions of one request, a separate seed for each prompt, the end token in the row as in
the reference sampler, giving the engine the policy's weights tensor by tensor (of LoRA the adapter alone), and the
check that it has them: the log-probs of one short rollout are compared with the trainer's, since an engine that keeps
old weights reports no error. Leaves out: talking to the engine (`server`, `in_process`).

Draws depend on prompt, seed and weights alone as far as vLLM's own arithmetic does: it batches as requests come, so a
log-prob may differ in its last bits from run to run, and then, rarely, a token.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.models.attention.packing import unwrapped
from assay.models.devices import float32_products
from assay.models.published_weights import adapter_weights, merged_weights
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling, group_seeds
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.plugins.protocols import TurnGeneration
from assay_policy_training.plugins.samplers.assembly import assemble, generation_ids
from assay_policy_training.plugins.samplers.vllm.completions import (
    PolicyEngine,
    PublishedWeights,
    VllmCompletion,
    ended,
    request_fields,
)
from assay_policy_training.plugins.samplers.vllm.turns import VllmTurns

EXTENSION = "assay_policy_training.plugins.samplers.vllm.worker.PolicyWorker"
#: The one mode in which log-probs are of the distribution sampled, after temperature, min-p and top-p.
LOGPROBS_MODE = "processed_logprobs"
PROBE = PromptItem((Message("user", "Describe the sea in one sentence."),))
PROBE_TOKENS = 16
FORCED_TOKENS = 256  #: room for the given start of a turn
#: Away from 1, so that an engine that leaves the temperature out of its log-probs is caught.
PROBE_TEMPERATURE = 0.7
#: Of the check, nats, by the engine's number format; docs/policy-training/samplers.md has what was measured.
TOLERANCES = {"float32": 1e-3, "bfloat16": 1.0, "float16": 0.2}
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  #: of adapters, that vLLM makes room for
_keys = itertools.count(1)


class VllmSampler:
    """S2 and S14 by an engine. `dtype`: that it computes in. `adapters`: whether of a policy with LoRA it gets the
    adapter alone; else merged weights. `tolerance`: of the check, nats; default: the format's."""

    def __init__(
        self,
        policy: Policy,
        sampling: Sampling,
        engine: PolicyEngine,
        *,
        dtype: str = "float32",
        adapters: bool = False,
        tolerance: float | None = None,
    ) -> None:
        self.policy, self.sampling, self.engine = policy, sampling, engine
        self.dtype, self.adapters = dtype, sends_adapter(policy, adapters)
        self.tolerance = TOLERANCES[dtype] if tolerance is None else tolerance
        self.difference: float | None = None  #: largest of the last check, nats

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        """`group_size` rollouts of each item, rows of a group together. Raises BackendError."""
        groups = list(self._completions(items, group_size, seed, self.sampling))
        return self._assembled(items, group_size, groups, version, self.sampling)

    def stream(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> Iterator[RolloutBatch]:
        """The rows of `rollout`, group by group."""
        sampling = self.sampling
        for item, group in zip(items, self._completions(items, group_size, seed, sampling), strict=True):
            yield self._assembled([item], group_size, [group], version, sampling)

    def turns(
        self,
        contexts: Sequence[Sequence[int]],
        group_size: int,
        places: Sequence[tuple[int, int]],
        turn_tokens: int | None,
    ) -> TurnGeneration:
        """See `TurnSampler`."""
        rows = [context for context in contexts for _ in range(group_size)]
        return VllmTurns(self.policy, self.engine, self.sampling, rows, places, turn_tokens)

    def publish(self, policy: Policy, version: int) -> None:
        """Give the engine the policy's weights and see that it has them. Of several processes all call this together.

        Raises BackendError with the numbers where a log-prob differs by more than `tolerance`.
        """
        key = f"{version}-{next(_keys)}"
        if self.adapters:
            weights = PublishedWeights(key, adapter_weights(policy.model), adapter_config(policy))
        else:
            weights = PublishedWeights(key, merged_weights(policy.model, dtype=getattr(torch, self.dtype)))
        self.engine.load(weights)
        self.difference = self.check(policy, version)

    def release(self) -> None:
        """See `PublishesWeights`."""
        self.engine.sleep()

    @torch.no_grad()
    def check(self, policy: Policy, version: int) -> float:
        """The largest difference between the engine's log-probs and the policy's over one short rollout, nats.

        Raises BackendError where it is above `tolerance`.
        """
        sampling = replace(
            self.sampling,
            temperature=PROBE_TEMPERATURE,
            top_p=1.0,  # the trainer does not follow it
            stop=(),
            max_new_tokens=min(PROBE_TOKENS, self.sampling.max_new_tokens),
        )
        with float32_products(policy.device, "highest"):  # a training's are not exact
            groups = list(self._completions([PROBE], 1, version, sampling))
            row = self._assembled([PROBE], 1, groups, version, sampling)
            scores = policy.scores(row, temperature=PROBE_TEMPERATURE, prune_log_ratio=sampling.prune_log_ratio)
        gap = (scores.logp.cpu() - row.logp_mu)[row.mask]
        worst = int(gap.abs().argmax())
        difference = float(gap.abs()[worst])
        if not difference <= self.tolerance:
            trainer_logp, engine_logp = float(scores.logp.cpu()[row.mask][worst]), float(row.logp_mu[row.mask][worst])
            raise BackendError(
                f"{self.engine.where} does not have the policy's weights (version {version}): log-prob "
                f"{engine_logp:.6g} where the trainer finds {trainer_logp:.6g}, {difference:.3g} apart over {len(gap)} "
                f"tokens, tolerance {self.tolerance:g}"
            )
        return difference

    def _completions(
        self, items: Sequence[PromptItem], group_size: int, seed: int | Sequence[int], sampling: Sampling
    ) -> Iterator[list[VllmCompletion]]:
        rows = generation_ids(self.policy, items)
        longest = max(map(len, rows)) + sampling.max_new_tokens
        if self.engine.max_length is not None and longest > self.engine.max_length:
            raise BadInputError(
                f"{longest} tokens of prompt and answer do not fit: {self.engine.where} takes {self.engine.max_length}",
                field="sampling.max_new_tokens",
            )
        fields = request_fields(sampling, sorted(self.policy.end_ids))
        yield from self.engine.complete(rows, group_size, fields, group_seeds(seed, len(items)))
        self.engine.confirm()

    def _assembled(
        self,
        items: Sequence[PromptItem],
        group_size: int,
        groups: Sequence[Sequence[VllmCompletion]],
        version: int,
        sampling: Sampling,
    ) -> RolloutBatch:
        stops = StopStrings(self.policy.tokenizer, sampling.stop)
        rows = [ended(row, stops) for group in groups for row in group]
        width = sampling.max_new_tokens
        tokens = torch.full((len(rows), width), int(self.policy.tokenizer.pad_token_id))
        logp = torch.zeros((len(rows), width))
        mask = torch.zeros((len(rows), width), dtype=torch.bool)
        for number, row in enumerate(rows):
            length = len(row.ids)
            if not 0 < length <= width or len(row.logps) != length:
                raise BackendError(
                    f"{self.engine.where} answers {length} tokens with {len(row.logps)} log-probs; requested were 1 to "
                    f"{width}"
                )
            tokens[number, :length] = torch.tensor(row.ids)
            logp[number, :length] = torch.tensor(row.logps)
            mask[number, :length] = True
        return assemble(self.policy, items, group_size, (tokens, mask, logp), version=version, stops=stops)


def sends_adapter(policy: Policy, chosen: bool) -> bool:
    """Whether an engine with the base as it is stored and the policy's adapter is the policy: not with a 4-bit base."""
    return chosen and policy.lora is not None and policy.lora.base_weights != "4bit"


def require_complete(where: str, reports: Iterable[Mapping[str, Any]]) -> None:
    """`reports`: of the engine's workers. Raises BackendError for weights that the model has and was not given."""
    missing = sorted({name for report in reports for name in report.get("missing", ())})
    if missing:
        raise BackendError(f"{where} lacks {len(missing)} of the policy's weights, {missing[0]} first")


def adapter_config(policy: Policy) -> Mapping[str, Any]:
    """What vLLM must know of the adapter beside its tensors."""
    assert policy.lora is not None
    return {"r": policy.lora.rank, "lora_alpha": policy.lora.alpha, "target_modules": policy.lora.targets}


def adapter_rank(rank: int) -> int:
    """That vLLM makes room for. Raises BadInputError for one that it has no room for."""
    fitting = [each for each in RANKS if each >= rank]
    if not fitting:
        raise BadInputError(f"vLLM takes adapters up to rank {RANKS[-1]}: sampler.adapters=false", field="lora.rank")
    return fitting[0]


def engine_dtype(policy: Policy, chosen: str) -> str:
    """`auto`: the format of the trainer's products. Raises BadInputError for one that is unknown."""
    check_dtype(chosen)
    if chosen == "auto":
        return "bfloat16" if policy.autocast else "float32"
    return chosen


def check_dtype(chosen: str) -> None:
    if chosen not in ("auto", *TOLERANCES):
        raise BadInputError(f"auto, {', '.join(TOLERANCES)}, not {chosen!r}", field="sampler.dtype")


def needed_length(policy: Policy, sampling: Sampling) -> int:
    """Tokens that an engine of ours is started for: prompt, given start of the turn, answer."""
    tokens = sampling.max_prompt_tokens + FORCED_TOKENS + sampling.max_new_tokens
    most = getattr(unwrapped(policy.model).config, "max_position_embeddings", None)
    return tokens if most is None else min(tokens, int(most))
