"""DUMP: data sources sampled by an upper confidence bound on their learning signal.

Covers: the score of a source (mean |advantage| over a window, plus a bonus for sources seldom drawn), the softmax over
sources, the windows. What is learnt is |R - group mean|, not divided by the group's deviation, which is nearly constant
for any mixed group; it is taken of every rollout of a training step before filters drop rows, never from an evaluation
pass (the released code does the latter). Leaves out: the order inside a source.

Source: "DUMP", arXiv 2504.09710, code ZhentingWang/DUMP read.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from annotated_types import Ge, Gt

from assay_policy_training.core.batch import dr_grpo
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.prompts.streams import PromptStreams, tag_of
from assay_policy_training.plugins.protocols import StepReport


def upper_bounds(counts: Sequence[int], learnt: Sequence[float]) -> list[float]:
    """L_j + sqrt(2 ln(N + 1) / (n_j + 1)) with N = sum of counts."""
    total = sum(counts)
    return [mean + math.sqrt(2 * math.log(total + 1) / (count + 1)) for count, mean in zip(counts, learnt, strict=True)]


def softmax(values: Sequence[float], temperature: float) -> list[float]:
    """Probabilities proportional to exp(value / temperature)."""
    top = max(values)
    weights = [math.exp((value - top) / temperature) for value in values]
    return [weight / sum(weights) for weight in weights]


class DumpPrompts:
    """S0, opened."""

    def __init__(self, streams: PromptStreams, settings: "Dump") -> None:
        self.streams, self.settings = streams, settings
        self.windows: dict[str, list[float]] = {name: [] for name in streams.names}
        self.counts = dict.fromkeys(streams.names, 0)  #: rollouts seen of each source, over the whole run

    def probabilities(self) -> dict[str, float]:
        """Of each source, for the next prompt."""
        learnt = [sum(window) / len(window) if window else 0.0 for window in self.windows.values()]
        bounds = upper_bounds(list(self.counts.values()), learnt)
        return dict(zip(self.windows, softmax(bounds, self.settings.temperature), strict=True))

    def next(self, n: int) -> list[PromptItem]:
        return self.streams.draw(self.probabilities(), n)

    def observe(self, report: StepReport) -> None:
        """Rows without a reward say nothing of their source."""
        batch = report.batch
        reward, valid, key = batch.scored_reward, batch.valid.tolist(), self.settings.key
        for row, gap in enumerate(dr_grpo(reward, batch.group).abs().tolist()):
            if valid[row] and (name := tag_of(batch.items[row], key)) in self.windows:
                self.counts[name] += 1
                self.windows[name] = [*self.windows[name], gap][-self.settings.window :]

    def state_dict(self) -> dict[str, Any]:
        return {"streams": self.streams.state_dict(), "windows": self.windows, "counts": self.counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.streams.load_state_dict(state["streams"])
        self.windows = {name: [float(value) for value in state["windows"][name]] for name in self.windows}
        self.counts = {name: int(state["counts"][name]) for name in self.counts}


class Dump(RecipeSettings, section="source"):
    """S0: `window` rollouts a source, softmax at `temperature`, sources by the prompts' entry `key`."""

    window: Annotated[int, Ge(1)] = 300
    temperature: Annotated[float, Gt(0)] = 0.1
    key: str = "source"

    def open(self, items: Sequence[PromptItem], *, seed: int, policy: object = None) -> DumpPrompts:
        return DumpPrompts(PromptStreams(items, seed=seed, key=self.key), self)
