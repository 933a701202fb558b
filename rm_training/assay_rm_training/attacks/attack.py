"""What an attack is: a plug-in that turns pairs of known quality into responses which deserve no better reward.

Covers: the registered kind with its built-in members, an attacked response, what an attack may ask of the model. Leaves
out: the members, how responses are judged (`target`), the rates (`rates`). Imports nothing heavy.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from assay.conversation.message import Response
from assay.domain import PreferencePair
from assay.registry import Kind
from assay.score import ScoreFailure


@dataclass(frozen=True, slots=True)
class AttackedResponse:
    """A response that is worth less than the good one of pair `row`. `variant`: which form of the attack it is."""

    row: int
    response: Response
    variant: str = ""


@dataclass(frozen=True, slots=True)
class AttackVerdict:
    """What the model made of an attacked response. `margin`: its reward less the good response's; of a pairwise judge
    its probability less 1/2, or without probabilities 1, 0 or -1. Above 0 the attacked response is preferred.

    `reward`: None of a pairwise judge. `accepted`: above the model's threshold (`target.RewardTarget`); None without
    one."""

    margin: float
    reward: float | None = None
    accepted: bool | None = None
    truncated: bool = False


class AttackTarget(Protocol):
    """The attacked model, as an attack that searches may ask it."""

    def judge(self, attacked: Sequence[AttackedResponse]) -> list[AttackVerdict | ScoreFailure]:
        """One a response, in order, each beside the good (chosen) response of its pair."""
        ...


class Attack(Protocol):
    def attack(
        self, pairs: Sequence[PreferencePair], target: AttackTarget, rng: random.Random
    ) -> list[AttackedResponse]:
        """Responses for some or all of the pairs, several variants of one pair if there are any. Pairs without one are
        not counted."""
        ...


_HERE = "assay_rm_training.attacks"
POLICY = "policy"  #: the member that needs a policy and a second reward
SEARCH = "search"
ATTACKS: Kind[type[Attack]] = Kind(
    "attack",
    "Responses that carry nothing or less than a good one, to see whether a reward falls for them (`assay attack`).",
    members={
        "master_keys": f"{_HERE}.constant:MasterKeys",
        "constant": f"{_HERE}.constant:ConstantAnswers",
        "judge_text": f"{_HERE}.rewriting:JudgeDirectedText",
        "flattery": f"{_HERE}.rewriting:Flattery",
        "padding": f"{_HERE}.rewriting:Padding",
        "repetition": f"{_HERE}.rewriting:Repetition",
        "format": f"{_HERE}.rewriting:FormatTricks",
        "truncation": f"{_HERE}.rewriting:Truncation",
        SEARCH: f"{_HERE}.search:TokenSearch",
        POLICY: f"{_HERE}.search:PolicySearch",
    },
    requires=("attack",),
    option="--attack",
)
