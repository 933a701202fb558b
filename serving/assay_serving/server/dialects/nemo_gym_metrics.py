"""NeMo-Gym's `POST /aggregate_metrics`: statistics of the rollouts that a run has verified.

Covers: mean, max, min, median and sample deviation of every number of a rollout and of its response's usage: over all
rollouts, by task and, for several repeats of the tasks, by repeat. Samples with `mask_sample` count as coverage only.
Leaves out: confidence intervals, standard errors and quartiles by repeat, statistics across repeats, `perf_summary`,
each task's row and its counts of missing rollouts.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.http.body_lists import ListOf
from assay_serving.server.dialects.texts import OpenBody
from assay_serving.server.http.json_route import examples

TASK, REPEAT, MASK = "_ng_task_index", "_ng_rollout_index", "mask_sample"
_RESPONSES = [{TASK: 0, REPEAT: 0, "reward": 1.5}, {TASK: 1, REPEAT: 0, "reward": 0.5}]

Rollout = Mapping[str, Any]


class AggregateMetricsBody(OpenBody):
    """Replies of `/verify`; their response may be left out."""

    model_config = examples({"verify_responses": _RESPONSES})

    verify_responses: ListOf[dict[str, Any]]


#: By task, over all rollouts, the means of these, and by repeat where there are several. Names are as "mean/reward".
METRICS_REPLY: dict[str, Any] = {
    "group_level_metrics": [{}],
    "agent_metrics": {},
    "key_metrics": {},
    "repeat_level_metrics": [{}],
}


def aggregated(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """The reply. Empty for no rollouts; only the coverage where all of them are masked."""
    scored = [rollout for rollout in rollouts if not rollout.get(MASK)]
    coverage: dict[str, Any] = {}
    if len(scored) < len(rollouts):
        coverage = {
            "coverage/measured_rollouts": len(scored),
            "coverage/masked_rollouts": len(rollouts) - len(scored),
            "coverage/measured_tasks": len(_by(scored, TASK)),
            "coverage/fully_masked_tasks": len(_by(rollouts, TASK).keys() - _by(scored, TASK).keys()),
        }
    if not scored:
        return _reply(agent=coverage, key=coverage)
    agent = _statistics(scored) | coverage | {"num_repeats": len({_index(each, REPEAT) for each in rollouts})}
    tasks, repeats = _by(scored, TASK), _by(scored, REPEAT)
    by_task = [
        {TASK: task, **_statistics(rows), "num_rollouts": len(rows), "rollout_infos": [_info(row) for row in rows]}
        for task, rows in tasks.items()
    ]
    by_repeat = [
        {
            REPEAT: repeat,
            **_statistics(rows),
            "sample_count": len(_by(rows, TASK)),
            "missing_count": len(tasks) - len(_by(rows, TASK)),
        }
        for repeat, rows in repeats.items()
    ]
    means = {name: value for name, value in agent.items() if name.startswith("mean/")}
    return _reply(by_task, agent, means | coverage, by_repeat if len(repeats) > 1 else [])


def _reply(
    groups: Sequence[dict[str, Any]] = (),
    agent: dict[str, Any] | None = None,
    key: dict[str, Any] | None = None,
    repeats: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    return {
        "group_level_metrics": list(groups),
        "agent_metrics": agent or {},
        "key_metrics": key or {},
        "repeat_level_metrics": list(repeats),
    }


def _statistics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Of each name over the rollouts that have it; the deviation of one value is 0."""
    columns: dict[str, list[float]] = defaultdict(list)
    for rollout in rollouts:
        for name, value in _numbers(rollout).items():
            columns[name].append(value)
    result: dict[str, float] = {}
    for name, values in columns.items():
        result |= {
            f"mean/{name}": statistics.fmean(values),
            f"max/{name}": max(values),
            f"min/{name}": min(values),
            f"median/{name}": statistics.median(values),
            f"std/{name}": statistics.stdev(values) if len(values) > 1 else 0.0,
        }
    return result


def _numbers(rollout: Rollout) -> dict[str, float]:
    """The finite numbers of a rollout and of its usage; true is 1. Names with "_" in front are indexes; the mask is no
    figure of what it left in."""
    response = rollout.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    return {
        name: value + 0
        for name, value in {**rollout, **(usage if isinstance(usage, dict) else {})}.items()
        if not name.startswith("_") and name != MASK and isinstance(value, int | float) and math.isfinite(value)
    }


def _info(rollout: Rollout) -> dict[str, Any]:
    task, repeat = _index(rollout, TASK), _index(rollout, REPEAT)
    return {"rollout_id": f"{task}:{repeat}", TASK: task, REPEAT: repeat, **_numbers(rollout)}


def _by(rollouts: Iterable[Rollout], index: str) -> dict[int, list[Rollout]]:
    groups: dict[int, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        groups[_index(rollout, index)].append(rollout)
    return dict(sorted(groups.items()))


def _index(rollout: Rollout, name: str) -> int:
    value = rollout.get(name, 0)
    return value if isinstance(value, int) else 0
