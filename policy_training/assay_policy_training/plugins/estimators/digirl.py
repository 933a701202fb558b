"""DigiRL: which turns of which episodes are imitated, by a value of instructions and a value of steps.

Covers: A_instruction = r - V(instruction) of each episode, whose best share over all that is remembered is kept: an
automatic curriculum, for success at what mostly fails stands out; of these, turns with
A_step = V(s_{h+1}) - V(s_h) + r_h + gamma^(H-h) r > margin, r in {0, 1}, V of the end 0, get the advantage 1, others 0.
With `reinforce` that is the log-likelihood of the turns that are left. Leaves out: critics that read images.

Source: "DigiRL", arXiv 2406.11896, code DigiRL-agent/digirl read: cross entropy of both values against success, top
tenth, margin 0.05, gamma 0.5, hard filter in place of weights. Departures: a logistic model of words (`TextValues`) for
a language model's features, fitted anew in each step on the last `memory` episodes, without a twin; V of the end is 0
(there, that of the last screen); rows of earlier steps come back by the replay `recent`, with the turns that were
chosen when they were new.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.core.text_values import TextValues


class DigiRl(StatefulSettings, section="estimator"):
    """S6. `share` of the remembered episodes, the best by A_instruction; `above`: the reward of a success."""

    share: Annotated[float, Gt(0), Le(1)] = 0.1
    margin: float = 0.05
    gamma: Annotated[float, Ge(0), Le(1)] = 0.5
    memory: Annotated[int, Ge(1)] = 2000
    above: float = 0.5
    episodes: list[Any] = field(init=False, default_factory=list)  #: instruction, states before the turns, success
    _kept: dict[str, float] = field(init=False, default_factory=dict, repr=False, compare=False)

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        """Raises BadInputError for rows without an episode."""
        segment = batch.segment
        if segment is None or not all(EPISODE in item.meta for item in batch.items):
            raise BadInputError("the rows have no turns: environment.kind", field="estimator")
        adv = torch.zeros(batch.mask.shape)
        rows = [row for row, valid in enumerate(batch.valid.tolist()) if valid]
        if not rows:
            return adv, None
        new: list[Any] = [[*states_of(batch.items[row]), float(batch.outcome[row] > self.above)] for row in rows]
        self.episodes = [*self.episodes, *new][-max(self.memory, len(new)) :]
        instruction, values = self.instruction_advantages(self.episodes), self.step_values(self.episodes)
        least = sorted(instruction)[-max(1, round(self.share * len(instruction)))]
        best = [number for number in range(-len(rows), 0) if instruction[number] >= least]
        trained = 0
        for number in best:
            for turn, advantage in enumerate(step_advantages(values[number], new[number][2], self.gamma)):
                if advantage > self.margin:
                    trained += 1
                    adv[rows[number], batch.mask[rows[number]] & (segment[rows[number]] == turn)] = 1.0
        turns = sum(len(states) for _, states, _ in new)
        self._kept = {"episodes_kept": len(best) / len(rows), "turns_kept": trained / turns}
        return adv, None

    def instruction_advantages(self, episodes: Sequence[Any]) -> list[float]:
        """Success less the value of the instruction."""
        pairs = [(instruction, "") for instruction, _, _ in episodes]
        successes = [success for _, _, success in episodes]
        values = TextValues()
        values.fit(pairs, successes)
        return [success - value for success, value in zip(successes, values(pairs), strict=True)]

    def step_values(self, episodes: Sequence[Any]) -> list[list[float]]:
        """Of each episode's states, one before each turn."""
        pairs = [(instruction, state) for instruction, states, _ in episodes for state in states]
        values = TextValues()
        values.fit(pairs, [success for _, states, success in episodes for _ in states])
        flat = iter(values(pairs))
        return [[next(flat) for _ in states] for _, states, _ in episodes]

    def numbers(self) -> Mapping[str, float]:
        """Metrics of the step: the shares that were trained on."""
        return self._kept


def states_of(item: PromptItem) -> tuple[str, list[str]]:
    """The instruction of an episode, and what the policy had read last before each of its turns, with their number."""
    record = item.meta[EPISODE]
    read = [record["opening"], *([*turn["results"], *turn["messages"]] for turn in record["turns"][:-1])]
    texts = [" ".join(str(message["content"]) for message in messages) for messages in read[: len(record["turns"])]]
    return item.prompt[-1].text, [f"{text} turn{number}" for number, text in enumerate(texts)]


def step_advantages(values: Sequence[float], success: float, gamma: float) -> list[float]:
    """A_step of each turn."""
    last = len(values) - 1
    after = [*values[1:], 0.0]
    return [
        after[turn] - value + success * ((turn == last) + gamma ** (last - turn)) for turn, value in enumerate(values)
    ]
