"""What one step of policy training works on: rows of rollouts with everything known about them.

Covers: the fields and shapes that every plug-in reads (section 0 of the algorithm cards this package implements):
three policies kept apart (mu = the sampler at generation time, old = the weights at the start of the update,
theta = the weights being updated), two masks, version stamps, rewards by named part with missing ones missing.
Leaves out: who fills which field (`sampler`, `rewards`, `loop`), and the per-update context of an objective (`slots`).

Notation: B rows (one row = one rollout), S context positions, T response positions. Contexts are padded left,
responses right, so position S-1 predicts response token 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from assay.domain import Prompt
from assay.score import Score, ScoreFailure


@dataclass(frozen=True)
class RolloutBatch:
    """B rollouts. Immutable: a stage returns a copy with its fields set (`with_`)."""

    uid: tuple[str, ...]  #: group of each row; rows group by uid, never by position
    prompts: tuple[Prompt, ...]
    responses: tuple[str, ...]  #: exact text without special tokens: what the reward reads
    gen_input_ids: Tensor  #: [B,S] int64, context that was generated from, left-padded
    gen_mask: Tensor  #: [B,S] bool
    train_input_ids: Tensor  #: [B,S'] int64, context that is trained on; the same unless hints are used
    train_mask: Tensor  #: [B,S'] bool
    tokens: Tensor  #: [B,T] int64, right-padded
    mask: (
        Tensor  #: [B,T] bool, tokens the policy generated itself, its end token included: lengths, returns, statistics
    )
    loss_mask: Tensor  #: [B,T] bool, subset of `mask`: tokens that get a gradient
    logp_mu: Tensor  #: [B,T] float32, under the distribution actually sampled (temperature, top-p)
    version: Tensor  #: [B] int64, number of weight updates the sampler had seen
    token_version: Tensor  #: [B,T] int64, the same by token: differs within a row when weights changed under way
    finished: Tensor  #: [B] bool, the policy ended its turn itself
    truncated: Tensor  #: [B] bool, cut by the length limit
    r_parts: Mapping[str, Tensor] = field(default_factory=dict)  #: name -> [B] float64, NaN = missing
    reward: Tensor | None = None  #: [B] float64, composed; NaN where a part it needs is missing
    acc: Tensor | None = None  #: [B] float64 in {0,1}, raw verifier result; NaN = this prompt has no verifier
    failures: tuple[tuple[ScoreFailure, ...], ...] = ()  #: per row, why parts are missing
    scores: tuple[Mapping[str, Score], ...] = ()  #: per row, part -> the score it came from, with its model's version
    logp_old: Tensor | None = None  #: [B,T] float32
    logp_ref: Tensor | None = None  #: [B,T] float32
    entropy: Tensor | None = None  #: [B,T] float32, of old, detached, at the sampling temperature
    values: Tensor | None = None  #: [B,T]
    adv: Tensor | None = None  #: [B,T] float32
    returns: Tensor | None = None  #: [B,T]

    def __post_init__(self) -> None:
        rows, width = self.tokens.shape
        if len(self.uid) != rows or self.mask.shape != (rows, width) or self.loss_mask.shape != (rows, width):
            raise ValueError(f"rows disagree: {len(self.uid)} uids, tokens {rows}x{width}, mask {self.mask.shape}")
        if bool((self.loss_mask & ~self.mask).any()):
            raise ValueError("loss_mask must be a subset of mask")

    def __len__(self) -> int:
        return len(self.uid)

    def with_(self, **changes: Any) -> RolloutBatch:
        """A copy with some fields replaced."""
        return replace(self, **changes)

    @property
    def scored_reward(self) -> Tensor:
        """[B] float64 `reward`, of a batch that has been scored (else ValueError)."""
        if self.reward is None:
            raise ValueError("the batch has not been scored yet")
        return self.reward

    @property
    def valid(self) -> Tensor:
        """[B] bool: the row has a reward."""
        return ~torch.isnan(self.scored_reward)

    @property
    def lengths(self) -> Tensor:
        """[B] int64: tokens the policy generated."""
        return self.mask.sum(1)

    @property
    def group(self) -> Tensor:
        """[B] int64: see `group_index`."""
        return group_index(self.uid, device=self.tokens.device)

    def select(self, rows: Tensor | Sequence[int]) -> RolloutBatch:
        """These rows in this order; `rows` holds indices. Padding stays, so shapes [.,T] do not change."""
        index = torch.as_tensor(rows, dtype=torch.long)
        order = index.tolist()
        size = len(self)

        def take(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value[index.to(value.device)]
            if isinstance(value, Mapping):
                return {name: take(part) for name, part in value.items()}
            if isinstance(value, tuple) and len(value) == size:
                return tuple(value[i] for i in order)
            return value

        return replace(self, **{f.name: take(getattr(self, f.name)) for f in fields(self)})


def group_index(uid: Sequence[str], *, device: torch.device | None = None) -> Tensor:
    """[B] int64: 0, 1, ... in order of first appearance of each uid."""
    numbers: dict[str, int] = {}
    return torch.tensor([numbers.setdefault(name, len(numbers)) for name in uid], dtype=torch.long, device=device)


def on_last_token(reward: Tensor, mask: Tensor) -> Tensor:
    """[B] rewards as [B,T] token rewards on each row's last valid token; missing (NaN) rewards give zeros."""
    token_reward = torch.zeros(mask.shape, dtype=reward.dtype, device=mask.device)
    positions = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, positions, -1).amax(1)
    rows = torch.nonzero((last >= 0) & ~torch.isnan(reward)).squeeze(1)
    token_reward[rows, last[rows]] = reward[rows]
    return token_reward
