"""Generalised advantage estimation over the tokens of each row, or over its turns, and plain returns.

Covers: GAE with its returns, its form for rows that were cut off (EGAE), returns with a separate discount for the
critic, and the discounted return of every token for methods without a critic (REINFORCE++). Tokens inside a row that
the policy did not generate are passed over: what comes after them is carried on. Over turns an action is a whole turn,
with the value before its first token and all that it earns; its tokens have one advantage. Leaves out: the critic
(`critics`), whitening (`modulators.whitening`), which is never applied to the returns.

Sources: GAE arXiv 1506.02438; EGAE arXiv 2506.15050; a separate lambda for the critic arXiv 2503.01491; REINFORCE++
arXiv 2501.03262. Over turns: GAE of the process whose actions are turns, ours; where gamma and lambda are 1 it is equal
to the tokens' at the first token of every turn (VAGEN's two-level form, arXiv 2510.16907, at every token; code read).
"""

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings

BOOTSTRAP = ("none", "unfinished", "cut")


def gae(
    token_reward: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float, bootstrap: Tensor | None = None
) -> Tensor:
    """[B,T] float64 advantages, 0 where `mask` is off: A_t = r_t + gamma V_(t+1) - V_t + gamma lam A_(t+1).

    `values` [B,T]: of the state before each token. The value after a row's last token is 0, or, where `bootstrap` [B]
    is on, that before it: V(s_l) = V(s_(l-1)).
    """
    reward, value = token_reward.double(), values.double()
    rows = torch.zeros(len(mask), dtype=torch.float64, device=mask.device)
    after, carried = rows.clone(), rows.clone()
    if bootstrap is not None and mask.shape[1]:
        positions = torch.arange(mask.shape[1], device=mask.device)
        last = torch.where(mask, positions, 0).amax(1, keepdim=True)
        after = torch.where(bootstrap & mask.any(1), value.gather(1, last).squeeze(1), rows)
    advantages = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
    for t in reversed(range(mask.shape[1])):
        generated = mask[:, t]
        advantage = reward[:, t] + gamma * after - value[:, t] + gamma * lam * carried
        advantages[:, t] = torch.where(generated, advantage, rows)
        after = torch.where(generated, value[:, t], after)
        carried = torch.where(generated, advantage, carried)
    return advantages


def turn_starts(values: Tensor, mask: Tensor, segment: Tensor) -> tuple[Tensor, Tensor]:
    """[B,K] the value before the first token of each of K turns, and whether the row has the turn; 0 where not."""
    turns = int(segment.max()) + 1 if segment.numel() else 1
    of_turn = (segment[:, None] == torch.arange(turns, device=segment.device)[:, None]) & mask[:, None]
    has = of_turn.any(2)
    return torch.where(has, values.gather(1, of_turn.int().argmax(2)), 0.0), has


def turn_gae(
    token_reward: Tensor,
    values: Tensor,
    mask: Tensor,
    segment: Tensor,
    *,
    gamma: float,
    lam: float,
    bootstrap: Tensor | None = None,
) -> Tensor:
    """[B,T] float64: `gae` over turns, the turn's on each of its tokens. `segment` [B,T] int64: a token's turn."""
    starts, has = turn_starts(values, mask, segment)
    earned = torch.zeros(starts.shape, dtype=torch.float64, device=mask.device)
    earned.scatter_add_(1, segment, token_reward.double() * mask)
    by_turn = gae(earned, starts, has, gamma=gamma, lam=lam, bootstrap=bootstrap)
    return by_turn.gather(1, segment) * mask


def returns_to_go(token_reward: Tensor, mask: Tensor, *, gamma: float) -> Tensor:
    """[B,T] float64: what each token and those after it earn, discounted by `gamma` a token; 0 where `mask` is off."""
    return gae(token_reward, torch.zeros_like(token_reward), mask, gamma=gamma, lam=1.0)


class Gae(RecipeSettings, section="estimator"):
    """S6: `gae`, and as the critic's targets A + V with `critic_lam` in place of `lam` (None = the same).

    `bootstrap`: rows whose value after the last token is that before it: `none`; `unfinished`, those that a
    later step continues; `cut`, also those that the length limit ended. A row whose reward is missing gets 0.
    `level`: of what an action is, a token or an agent's `turn`; by turn, `gamma` and `lam` are a turn's, and the
    targets of a turn's tokens are its return.
    """

    gamma: Annotated[float, Ge(0), Le(1)] = 1.0
    lam: Annotated[float, Ge(0), Le(1)] = 0.95
    critic_lam: Annotated[float | None, Ge(0), Le(1)] = None
    bootstrap: str = "unfinished"
    level: Literal["token", "turn"] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"values"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bootstrap not in BOOTSTRAP:
            raise BadInputError(f"one of {', '.join(BOOTSTRAP)}, not {self.bootstrap!r}", field="estimator.bootstrap")

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, Tensor]:
        """Raises BadInputError for `level` turn where rows have none."""
        mask, values, segment = batch.mask & batch.counted[:, None], batch.critic_values, batch.segment
        goes_on = self._goes_on(batch)
        if self.level == "turn" and segment is None:
            raise BadInputError("the rows have no turns: environment.kind", field="estimator.level")

        def estimate(lam: float) -> Tensor:
            if self.level == "token" or segment is None:
                return gae(batch.token_reward, values, mask, gamma=self.gamma, lam=lam, bootstrap=goes_on)
            return turn_gae(batch.token_reward, values, mask, segment, gamma=self.gamma, lam=lam, bootstrap=goes_on)

        advantage = estimate(self.lam)
        target = advantage if self.critic_lam is None else estimate(self.critic_lam)
        if self.level == "turn" and segment is not None:
            values = turn_starts(values, mask, segment)[0].gather(1, segment)
        returns = torch.where(mask, target + values.double(), 0.0)
        return advantage.float(), returns.float()

    def _goes_on(self, batch: RolloutBatch) -> Tensor | None:
        if self.bootstrap == "none":
            return None
        rows = torch.zeros(len(batch), dtype=torch.bool) if batch.unfinished is None else batch.unfinished
        return rows | batch.truncated if self.bootstrap == "cut" else rows


class ReturnsToGo(RecipeSettings, section="estimator"):
    """S6: every token's return, without a baseline; REINFORCE++ whitens it over the batch."""

    gamma: Annotated[float, Ge(0), Le(1)] = 1.0

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, Tensor]:
        mask = batch.mask & batch.valid[:, None]
        returns = returns_to_go(batch.token_reward, mask, gamma=self.gamma).float()
        return returns, returns
