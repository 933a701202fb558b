"""Episodes measured: solved within so many turns, calls a success, tokens, wrong calls, loops, reward by turn.

Covers: figures with 95 % intervals by prompt, each with the episodes that it is of. Leaves out: whether an episode is
solved (a verdict, or a reward above a threshold). An episode that failed is in no figure: it is counted under its
failure's name. One without a verdict is in all but those of success.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from assay.errors import BadInputError
from assay.score import ScoreFailure
from assay.statistics.intervals import Interval, bounds, clustered_mean, jackknifed, share_interval
from assay_policy_training.measures.kind import Measured, Reads
from assay_policy_training.plugins.environments.record import turn_rewards

if TYPE_CHECKING:
    from assay_policy_training.measures.samples import PolicySample

EACH_TURN = 12  #: turns; of longer episodes the budgets are powers of 2


class RecordedEpisode(NamedTuple):
    """`record`: of the environment. `solved`: None = no verdict."""

    task_id: str
    record: Mapping[str, Any]
    solved: bool | None


@dataclass(frozen=True)
class EpisodeFigure:
    """`value`: None where there is nothing to measure it by. `episodes`: what it is of."""

    figure: str
    value: float | None
    low: float | None
    high: float | None
    episodes: int


def episode_figures(episodes: Sequence[RecordedEpisode]) -> list[EpisodeFigure]:
    """Of those that did not fail.

    `solved`, `solved_within_K`: shares of those with a verdict; `calls_a_success`: all their calls by the solved ones;
    of an episode: `turns`, `tokens` (the policy's own), `calls`, `invalid_calls`; `loops`: share of episodes in which
    an action and what was observed after it come again; `NAME_turn_N`: what turn N earned of a part, of the episodes
    that came to it.
    """
    whole = [one for one in episodes if one.record["failure"] is None]
    judged = [one for one in whole if one.solved is not None]
    longest = max((len(one.record["turns"]) for one in judged), default=0)
    budgets = [k for k in range(1, longest) if longest <= EACH_TURN or k & (k - 1) == 0]
    figures = [_mean("solved", judged, lambda one: float(one.solved is True), share_interval)]
    for budget in budgets:
        within = [float(_turns(one) <= budget and one.solved is True) for one in judged]
        interval = share_interval(within, [one.task_id for one in judged])
        figures.append(_figure(f"solved_within_{budget}", within, interval))
    figures.append(_calls_a_success(judged))
    for name, count in _OF_EPISODES.items():
        figures.append(_mean(name, whole, count, share_interval if name == "loops" else clustered_mean))
    earned = dict.fromkeys(name for one in whole for turn in one.record["turns"] for name in turn["rewards"])
    for name in earned:
        rewards = [(one, turn_rewards(one.record, name)) for one in whole]
        for turn in range(max(len(values) for _, values in rewards)):
            at = [
                (one, v) for one, values in rewards for v in values[turn : turn + 1] if not isinstance(v, ScoreFailure)
            ]
            if at:
                numbers, prompts = [number for _, number in at], [one.task_id for one, _ in at]
                figures.append(_figure(f"{name}_turn_{turn + 1}", numbers, clustered_mean(numbers, prompts)))
    return figures


def failures_of(episodes: Sequence[RecordedEpisode]) -> dict[str, int]:
    """Failed episodes by the failure's name, the most frequent first."""
    codes = [one.record["failure"]["code"] for one in episodes if one.record["failure"] is not None]
    return dict(Counter(codes).most_common())


@dataclass(frozen=True)
class EpisodeMeasure:
    """`episode_figures` of each policy, from the `rollouts.jsonl` of runs in an environment."""

    reads: ClassVar[Reads] = "samples"

    def measure(self, policies: "Mapping[str, Sequence[PolicySample]]") -> Measured:
        """Raises BadInputError for samples that are no episodes."""
        table, coverage = [], []
        for label, samples in policies.items():
            episodes = [RecordedEpisode(s.task_id, s.episode, s.passed) for s in samples if s.episode is not None]
            if not episodes:
                raise BadInputError(
                    f"{label} has no episodes: name runs of assay rl with an environment, or their rollouts.jsonl",
                    field="POLICIES",
                )
            failures = failures_of(episodes)
            table += [{"policy": label, **asdict(figure)} for figure in episode_figures(episodes)]
            no_verdict = sum(one.solved is None and one.record["failure"] is None for one in episodes)
            named = ", ".join(f"{code} {count}" for code, count in failures.items())
            tasks = len({one.task_id for one in episodes})
            coverage.append({"policy": label, "episodes": len(episodes), "tasks": tasks})
            coverage[-1] |= {"failed": sum(failures.values())}
            coverage[-1] |= {"by": named or "-", "no_verdict": no_verdict, "others": len(samples) - len(episodes)}
        return Measured(table, {"coverage": coverage})


def _turns(one: RecordedEpisode) -> int:
    return len(one.record["turns"])


def _total(name: str) -> Callable[[RecordedEpisode], float]:
    def total(one: RecordedEpisode) -> float:
        counts = [turn[name] for turn in one.record["turns"]]
        return float(sum(len(count) if isinstance(count, list) else count for count in counts))

    return total


def _loops(one: RecordedEpisode) -> float:
    met = set()
    for turn in one.record["turns"]:
        calls = [[call["name"], call["arguments"]] for call in turn["calls"]]
        observed = [[answer["content"] for answer in turn["results"]], turn["messages"]]
        met.add(json.dumps([calls or turn["text"].strip(), observed], sort_keys=True))
    return float(len(met) < len(one.record["turns"]))


_OF_EPISODES: dict[str, Callable[[RecordedEpisode], float]] = {
    "turns": lambda one: float(_turns(one)),
    "tokens": _total("tokens"),
    "calls": _total("calls"),
    "invalid_calls": _total("invalid"),
    "loops": _loops,
}


def _mean(
    name: str,
    episodes: Sequence[RecordedEpisode],
    count: Callable[[RecordedEpisode], float],
    interval: Callable[[Sequence[float], Sequence[str]], Interval | None],
) -> EpisodeFigure:
    values = [count(one) for one in episodes]
    return _figure(name, values, interval(values, [one.task_id for one in episodes]) if values else None)


def _figure(name: str, values: Sequence[float], interval: Interval | None) -> EpisodeFigure:
    low, high = bounds(interval)
    if low is not None and values and min(values) >= 0:
        low = max(0.0, low)
    return EpisodeFigure(name, fmean(values) if values else None, low, high, len(values))


def _calls_a_success(judged: Sequence[RecordedEpisode]) -> EpisodeFigure:
    """Interval: the jackknife over prompts."""
    by_prompt: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])  # calls, successes, episodes
    for one in judged:
        counts = by_prompt[one.task_id]
        for place, more in enumerate((_total("calls")(one), float(one.solved is True), 1.0)):
            counts[place] += more
    calls, solved = (sum(counts[place] for counts in by_prompt.values()) for place in (0, 1))
    if not solved:
        return EpisodeFigure("calls_a_success", None, None, None, len(judged))
    left_out = [(calls - c) / (solved - s) if solved > s else float("nan") for c, s, _ in by_prompt.values()]
    low, high = bounds(jackknifed(calls / solved, left_out, [counts[2] for counts in by_prompt.values()]))
    return EpisodeFigure("calls_a_success", calls / solved, low and max(0.0, low), high, len(judged))
