"""Rows of recorded responses: the sampler of methods that learn from existing data.

Covers: which of a prompt's records a step takes, their tokens (as given, or of the text, an end token after it), steps
as segments, the log-probs of the sampling policy: as recorded, else of the present policy, which makes mu = old and
ignores the data's true source. Everything after this slot is the same as for rollouts. Leaves out: reading
records (`recorded`).
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PLACE, POLICY, RECORD, RESPONSES, PromptItem, read_records, records_of
from assay_policy_training.core.sampling import Sampling, group_seeds
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.samplers.assembly import assemble


class RecordedSampler:
    """S2 without generation. `by_prompt`: records of prompts whose rows have none; `logprobs`: see
    `RecordedResponses`."""

    def __init__(
        self, policy: Policy, sampling: Sampling, by_prompt: Mapping[str, Sequence[Any]], *, logprobs: bool = False
    ) -> None:
        self.policy, self.sampling, self.by_prompt, self.logprobs = policy, sampling, by_prompt, logprobs

    @property
    def lacks(self) -> Mapping[str, str]:
        """Without recorded log-probs the rows' `logp_mu` is the policy's, not that of the policy that sampled them."""
        return {} if self.logprobs else {"logp_mu": "`logprobs` in every recorded response, and sampler.logprobs=true"}

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        """`group_size` different records of each item. Their rows' source is `recorded`, unless the item's is another.

        Raises BadInputError for a prompt with fewer.
        """
        rows: list[PromptItem] = []
        for item, group_seed in zip(items, group_seeds(seed, len(items)), strict=True):
            records = records_of(item, self.by_prompt)
            if len(records) < group_size:
                text = item.prompt[-1].content[:60]
                raise BadInputError(
                    f"{len(records)} recorded responses to {text!r}, a group has {group_size}",
                    field="sampling.group_size",
                )
            chosen = random.Random(group_seed).sample(records, group_size)
            source = RECORD if item.source == POLICY else item.source
            rows += [replace(item, meta={**item.meta, RECORD: record}, source=source) for record in chosen]
        batch = self._batch(rows, version)
        uid = tuple(f"{version}.{number}" for number in range(len(items)) for _ in range(group_size))
        return self._with_logp(batch.with_(uid=uid))

    def _batch(self, rows: Sequence[PromptItem], version: int) -> RolloutBatch:
        encoded = [self._tokens(row) for row in rows]
        width = max(len(ids) for ids, _ in encoded)
        tokens = torch.full((len(rows), width), int(self.policy.tokenizer.pad_token_id))
        mask = torch.zeros((len(rows), width), dtype=torch.bool)
        segment = torch.zeros((len(rows), width), dtype=torch.long)
        for row, (ids, steps) in enumerate(encoded):
            tokens[row, : len(ids)] = torch.tensor(ids)
            mask[row, : len(ids)] = True
            segment[row, : len(ids)] = torch.tensor(steps)
        batch = assemble(self.policy, rows, 1, (tokens, mask, torch.zeros(mask.shape)), version=version)
        forced_width = batch.tokens.shape[1] - width  # of a row's forced start
        if batch.forced is not None and forced_width:
            moved = torch.zeros(batch.tokens.shape, dtype=torch.long)
            moved[batch.mask] = segment[mask]
            segment = moved
        return batch.with_(segment=segment)

    def _tokens(self, row: PromptItem) -> tuple[list[int], list[int]]:
        """Ids of at most `max_new_tokens`, and the number of the step each belongs to."""
        record = row.meta[RECORD]
        end = int(self.policy.tokenizer.eos_token_id)
        if "tokens" in record:
            ids = list(record["tokens"])
            steps = [0] * len(ids)
        else:
            ids, steps = [], []
            for number, text in enumerate(record.get("steps") or [record["text"]]):
                part = list(self.policy.tokenizer(text, add_special_tokens=False)["input_ids"])
                ids += part
                steps += [number] * len(part)
            ids, steps = [*ids, end], [*steps, steps[-1] if steps else 0]
        most = self.sampling.max_new_tokens
        return ids[:most], steps[:most]

    @torch.no_grad()
    def _with_logp(self, batch: RolloutBatch) -> RolloutBatch:
        """`logp_mu`: what the records give, and the policy's own where they give nothing."""
        recorded_logp = [item.meta[RECORD].get("logprobs") for item in batch.items]
        logp = torch.zeros(batch.mask.shape)
        missing = [row for row, values in enumerate(recorded_logp) if values is None]
        if missing and self.logprobs:
            item = batch.items[missing[0]]
            raise BadInputError(
                f"none with a recorded response to {item.prompt[-1].content[:60]!r}",
                field=f"{RESPONSES}.{item.meta[RECORD][PLACE]}.logprobs",
            )
        for start in range(0, len(missing), self.sampling.rows_at_once):
            rows = missing[start : start + self.sampling.rows_at_once]
            logp[rows] = self._scored(batch.select(rows))
        for row, values in enumerate(recorded_logp):
            if values is not None:
                generated = batch.mask[row]
                logp[row, generated] = torch.tensor(values, dtype=torch.float32)[: int(generated.sum())]
        return batch.with_(logp_mu=logp * batch.mask)

    def _scored(self, rows: RolloutBatch) -> Tensor:
        options = {"temperature": self.sampling.temperature, "prune_log_ratio": self.sampling.prune_log_ratio}
        return self.policy.scores(rows, **options).logp.cpu()  # type: ignore[arg-type]


class RecordedResponses(RecipeSettings, section="sampler"):
    """S2. `file`: JSON Lines of records; empty = they are in the prompts' own rows. It is kept by its absolute path, so
    that a resumed run finds it from any folder. `logprobs`: every record carries the log-probs it was drawn with
    (`tokens` and `logprobs`), which corrections and ratios to mu then read."""

    file: str = ""
    logprobs: bool = False
    generates: ClassVar[bool] = False
    reads_images: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.file:
            object.__setattr__(self, "file", str(Path(self.file).expanduser().resolve()))

    @property
    def files(self) -> tuple[str, ...]:
        """What a run with it reads."""
        return (self.file,) if self.file else ()

    def open(self, policy: Policy, sampling: Sampling) -> RecordedSampler:
        by_prompt = read_records(Path(self.file)) if self.file else {}
        return RecordedSampler(policy, sampling, by_prompt, logprobs=self.logprobs)
