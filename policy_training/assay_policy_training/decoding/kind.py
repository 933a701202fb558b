"""What a decoder is: a plug-in that writes one response to a prompt by a policy that stays as it is, with a reward.

Covers: the registered kind with its built-in members, what a decoder is opened with, what it returns of a response.
Leaves out: what is stored of the responses and measured on them (`run`). Imports nothing heavy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from assay.registry import Kind

if TYPE_CHECKING:
    from assay_policy_training.core.policy import Policy
    from assay_policy_training.core.prompt import PromptItem
    from assay_policy_training.core.sampling import Sampling
    from assay_policy_training.plugins.protocols import RewardSource

#: What `kl` is: the sum of the exact KL of each token's distribution, whose expectation is that of whole responses; or
#: an upper bound of the latter, the same for every response.
KlKind: TypeAlias = Literal["by_token", "bound"]


@dataclass(frozen=True)
class RewardedText:
    """A response, or the start of one, with its reward; NaN = missing, for the reasons in its record."""

    text: str
    tokens: int
    finished: bool
    reward: float = math.nan
    record: Mapping[str, Any] = field(default_factory=dict)  #: `parts`, `failures` and `scores`, as in `rollouts.jsonl`

    @property
    def rank(self) -> float:
        """The reward; without one it is below every other."""
        return -math.inf if math.isnan(self.reward) else self.reward


@dataclass(frozen=True)
class DecodedResponse:
    """`candidates`: rewards of the whole responses that it was chosen from, in the order drawn, NaN = missing."""

    chosen: RewardedText
    kl: float  #: nats, from the distribution that the sampler draws from
    kl_kind: KlKind
    generated: int  #: tokens, those of what was not chosen included
    scored: int  #: texts that the reward was asked for
    candidates: tuple[float, ...] = ()


@dataclass(frozen=True)
class DecodingInputs:
    """What a decoder is opened with. `training_items`: prompts to learn values on, read only by those that learn;
    `reward_key`: identity of the rewards; `folder`: for what is learnt, found again by its content. `facts`: what the
    decoder says once of all responses, JSON-ready."""

    policy: Policy
    sampling: Sampling
    rewards: Sequence[RewardSource]
    seed: int
    training_items: Callable[[], Sequence[PromptItem]]
    reward_key: str
    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)

    def rewarded(self, items: Sequence[PromptItem], texts: Sequence[RewardedText]) -> list[RewardedText]:
        """The texts with the sum of the rewards' parts; `items[i]` is the prompt of `texts[i]`."""
        from assay_policy_training.plugins.compositions.weighted import Composition
        from assay_policy_training.rollouts.rewards import composed, gather_rewards

        answers = gather_rewards(self.rewards, items, [text.text for text in texts])
        rewards = composed(Composition(), answers).tolist()
        rewarded = []
        for row, text in enumerate(texts):
            parts = {name: None if part[row].isnan() else float(part[row]) for name, part in answers.parts.items()}
            record: dict[str, Any] = {"parts": parts}
            record["failures"] = [failure.to_dict()["error"] for failure in answers.failures[row]]
            record["scores"] = {name: score.to_dict() for name, score in answers.scores[row].items()}
            rewarded.append(replace(text, reward=rewards[row], record=record))
        return rewarded


#: One response to each prompt, drawn by its seed; a prompt may be there several times.
DecodePrompts: TypeAlias = "Callable[[Sequence[PromptItem], Sequence[int]], list[DecodedResponse]]"


class Decoder(Protocol):
    """A dataclass of settings. `rows_a_response`: rows that it has under generation for a response."""

    @property
    def rows_a_response(self) -> int: ...
    def open(self, inputs: DecodingInputs) -> DecodePrompts: ...


_HERE = "assay_policy_training.decoding"
DECODERS: Kind[type[Decoder]] = Kind(
    "decoder",
    "Writes responses by a policy that stays as it is, chosen by a reward (`assay decode`).",
    members={
        "best_of_n": f"{_HERE}.best_of_n:BestOfN",
        "beam": f"{_HERE}.beam:Beam",
        "vas": f"{_HERE}.value_augmented:ValueAugmented",
    },
    requires=("open", "rows_a_response"),
    option="DECODER",
)
