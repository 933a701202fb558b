"""Rollouts a window at a time: the next step continues long responses instead of waiting for them in this one.

Covers: at most `window` new tokens a row and step; rows that are not done are carried, with the version of the weights
and the log-prob of each token as it was drawn; rows that are done leave, and new prompts take their place. A row's
tokens are all in the batch, only the new ones in `loss_mask`: each is trained once, soon after it was generated, while
advantages see the whole row. The reward is requested when a row is complete. Leaves out: the advantage of unfinished
rows (`estimators.gae`, EGAE), the critic, which learns of a row when it is done.

Source: T-PPO arXiv 2506.15050.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem, item_from_dict
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import RecipeView, StepReport
from assay_policy_training.plugins.samplers.assembly import assemble, generation_ids, pad_left
from assay_policy_training.plugins.samplers.transformers import TransformersSampler


@dataclass(frozen=True)
class CarriedRow:
    """One rollout so far; the columns hold one entry a token that the policy generated."""

    uid: str
    item: PromptItem
    tokens: Tensor  #: int64
    logp: Tensor  #: float32, when it was drawn
    version: Tensor  #: int64, of the weights that drew it

    def __len__(self) -> int:
        return len(self.tokens)

    def longer(self, tokens: Tensor, logp: Tensor, version: int) -> "CarriedRow":
        joined = torch.cat([self.version, torch.full_like(tokens, version)])
        return CarriedRow(self.uid, self.item, torch.cat([self.tokens, tokens]), torch.cat([self.logp, logp]), joined)


def empty_row(uid: str, item: PromptItem) -> CarriedRow:
    nothing = torch.zeros(0, dtype=torch.long)
    return CarriedRow(uid, item, nothing, nothing.float(), nothing)


class WindowedSampler:
    """S2 with the policy's own weights. What it carries is in every checkpoint."""

    def __init__(self, policy: Policy, sampling: Sampling, *, window: int) -> None:
        self.policy, self.sampling, self.window = policy, sampling, window
        self._rows: list[CarriedRow] = []

    def carried(self) -> int:
        return len(self._rows)

    def rollout(self, items: Sequence[PromptItem], group_size: int, *, seed: int, version: int) -> RolloutBatch:
        """The rows that are carried, a window longer, then `group_size` new ones of each item; on the CPU."""
        generator = torch.Generator(device=self.policy.device).manual_seed(seed)
        begun = [empty_row("", item) for item in items for _ in range(group_size)]
        drawn = [*self._continue_rows(generator), *self._begin_rows(items, group_size, generator)]
        before = [*self._rows, *begun]
        after = [row.longer(*new, version) for row, new in zip(before, drawn, strict=True)]
        return self._batch(before, after, version)

    def observe(self, report: StepReport) -> None:
        """Carry on what the step's rollouts left undone."""
        batch = report.batch
        going = torch.zeros(0) if batch.unfinished is None else batch.unfinished.nonzero().squeeze(1)
        self._rows = []
        for row in going.tolist():
            dropped = batch.mask[row]
            columns = (batch.tokens[row][dropped], batch.logp_mu[row][dropped], batch.token_version[row][dropped])
            self._rows.append(CarriedRow(batch.uid[row], batch.items[row], *columns))

    def state_dict(self) -> dict[str, Any]:
        return {"rows": [{"uid": row.uid, "item": row.item.to_dict()} for row in self._rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rows = [empty_row(row["uid"], item_from_dict(row["item"])) for row in state["rows"]]

    def tensors(self) -> dict[str, Any]:
        return {"rows": [{"tokens": row.tokens, "logp": row.logp, "version": row.version} for row in self._rows]}

    def load_tensors(self, state: Mapping[str, Any]) -> None:
        """After `load_state_dict`."""
        pairs = zip(self._rows, state["rows"], strict=True)
        self._rows = [CarriedRow(row.uid, row.item, **columns) for row, columns in pairs]

    def _continue_rows(self, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """New tokens and log-probs of each row that is carried, at most as many as its length allows."""
        contexts = generation_ids(self.policy, [row.item for row in self._rows])
        contexts = [ids + row.tokens.tolist() for ids, row in zip(contexts, self._rows, strict=True)]
        at_once = self.sampling.rows_at_once
        for i in range(0, len(contexts), at_once):
            new = self._generated(contexts[i : i + at_once], 1, generator)
            for row, (tokens, logp) in zip(self._rows[i : i + at_once], new, strict=True):
                room = max(0, self.sampling.max_new_tokens - len(row))
                yield tokens[:room], logp[:room]

    def _begin_rows(
        self, items: Sequence[PromptItem], group_size: int, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        contexts = generation_ids(self.policy, items)
        at_once = max(1, self.sampling.rows_at_once // group_size)
        for i in range(0, len(contexts), at_once):
            yield from self._generated(contexts[i : i + at_once], group_size, generator)

    def _generated(
        self, contexts: Sequence[Sequence[int]], group_size: int, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Tokens [n] and log-probs [n] of each row, n at most a window."""
        sampler = TransformersSampler(self.policy, self.sampling)
        ids, seen = pad_left(contexts, int(self.policy.tokenizer.pad_token_id))
        limit = min(self.window, self.sampling.max_new_tokens)
        columns = sampler.generate(ids, seen, group_size, generator, limit=limit)
        for tokens, mask, logp in zip(*(column.cpu() for column in columns), strict=True):
            yield tokens[mask], logp[mask]

    def _batch(self, before: Sequence[CarriedRow], after: Sequence[CarriedRow], version: int) -> RolloutBatch:
        """The rows as they are now; what was there before is not trained again."""
        lengths = torch.tensor([len(row) for row in after])
        places = torch.arange(int(lengths.max()))
        mask = places < lengths[:, None]
        tokens = torch.full(mask.shape, int(self.policy.tokenizer.pad_token_id))
        logp = torch.zeros(mask.shape)
        tokens[mask] = torch.cat([row.tokens for row in after])
        logp[mask] = torch.cat([row.logp for row in after])
        batch = assemble(self.policy, [row.item for row in after], 1, (tokens, mask, logp), version=version)
        # Text that the turn starts with lies before a row's own tokens, whose order is that of `mask` all the same.
        versions, fresh = torch.zeros_like(batch.tokens), torch.zeros_like(batch.mask)
        versions[batch.mask] = torch.cat([row.version for row in after])
        fresh[batch.mask] = torch.cat([torch.arange(len(b)) >= len(a) for a, b in zip(before, after, strict=True)])
        unfinished = ~batch.finished & (lengths < self.sampling.max_new_tokens)
        return batch.with_(
            uid=tuple(row.uid for row in after),
            loss_mask=fresh,
            token_version=versions,
            unfinished=unfinished,
            truncated=~batch.finished & ~unfinished,
        )


class Windowed(RecipeSettings, section="sampler"):
    """S2. `window`: new tokens a row and step. `prompts_per_step` x `group_size` rows are under way, or fewer."""

    window: Annotated[int, Ge(1)] = 512

    def check_recipe(self, recipe: RecipeView) -> None:
        """Unfinished rows learn from a critic alone, and are generated once per step."""
        if "values" not in getattr(recipe.estimator, "needs", ()) or recipe.critic is None:
            raise BadInputError("windows need a critic and an advantage that uses it, such as gae", field="estimator")
        if recipe.contexts is not None or max((f.rounds for f in recipe.filters), default=1) > 1:
            raise BadInputError("windows do not go with contexts or filters that draw again", field="sampler")

    def open(self, policy: Policy, sampling: Sampling) -> WindowedSampler:
        return WindowedSampler(policy, sampling, window=self.window)
