"""What is read off the records of episodes: why a row has no reward, the parts of its rewards, states, figures.

Leaves out: the record itself (`episode`).
"""

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from assay.score import ScoreFailure
from assay_policy_training.core.prompt import EPISODE, PromptItem


def episode_failure(item: PromptItem) -> ScoreFailure | None:
    """Why a row has no reward, whatever its sources say: its episode failed."""
    failure = item.meta.get(EPISODE, {}).get("failure")
    return None if failure is None else ScoreFailure(**failure)


def parts_of(form: Mapping[str, Any]) -> dict[str, float | ScoreFailure]:
    """Named parts from their JSON form."""
    return {
        name: ScoreFailure(**value["error"]) if isinstance(value, Mapping) else float(value)
        for name, value in form.items()
    }


def turn_rewards(record: Mapping[str, Any], name: str) -> list[float | ScoreFailure]:
    """What each turn earned of the part `name`; a turn that it says nothing of earned 0."""
    return [parts_of(turn["rewards"]).get(name, 0.0) for turn in record["turns"]]


def turn_states(record: Mapping[str, Any]) -> list[str]:
    """What the environment was in before each turn; where it names no state, what it had shown last."""
    seen = [{"results": [], "messages": record["opening"]}, *record["turns"]]
    observed = [json.dumps([turn["results"], turn["messages"]]) for turn in seen]
    return [turn.get("state", text) for turn, text in zip(record["turns"], observed, strict=False)]


def episode_measures(items: Sequence[PromptItem]) -> dict[str, float]:
    """Figures of a step's episodes, nothing where there are none. Of an episode: `turns_mean`, `tool_calls`,
    `invalid_calls`, `oversized_observations`, `environment_seconds_mean`, `shared_turns` (that another episode took);
    `tool_errors`: of a call; `turn_reward_NAME`: of a turn that earned it, without the turns of failed episodes; shares
    of the episodes: `episodes_cut`, `episodes_failed`, by code `failed_CODE`."""
    records = [item.meta[EPISODE] for item in items if EPISODE in item.meta]
    if not records:
        return {}
    turns = [turn for record in records for turn in record["turns"]]
    errors = [result["error"] for turn in turns for result in turn["results"]]
    codes = [record["failure"]["code"] for record in records if record["failure"]]
    figures = {
        "turns_mean": len(turns) / len(records),
        "tool_calls": sum(len(turn["calls"]) for turn in turns) / len(records),
        "invalid_calls": sum(turn["invalid"] for turn in turns) / len(records),
        "oversized_observations": sum(turn["oversized"] for turn in turns) / len(records),
        "environment_seconds_mean": sum(turn["seconds"] for turn in turns) / len(records),
        "episodes_cut": fmean(record["ended"] in ("turns", "tokens") for record in records),
        "episodes_failed": len(codes) / len(records),
        **{f"failed_{code}": codes.count(code) / len(records) for code in dict.fromkeys(codes)},
    }
    figures |= {"tool_errors": fmean(errors)} if errors else {}
    shared = sum(record.get("shared_turns", 0) for record in records)
    figures |= {"shared_turns": shared / len(records)} if shared else {}
    rewarded = [turn for record in records if not record["failure"] for turn in record["turns"]]
    for name in dict.fromkeys(name for turn in rewarded for name in turn["rewards"]):
        values = [value for turn in rewarded if isinstance(value := turn["rewards"].get(name), float)]
        figures |= {f"turn_reward_{name}": fmean(values)} if values else {}
    return figures
