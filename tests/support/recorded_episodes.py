"""Rows of `rollouts.jsonl` of episodes whose turns are given: the environment runs, no policy is needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay import ids
from assay.domain import Message
from assay.score import ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Environment
from assay_policy_training.plugins.environments.episode import Episode, EpisodeLimits
from assay_policy_training.plugins.environments.shipped.twenty_questions import RULES, TwentyQuestions


def played(
    environment: Environment, item: PromptItem, turns: Sequence[str], *, limits: EpisodeLimits | None = None
) -> Episode:
    """The episode that these turns make; where they are not enough, `turns` ended it."""
    limits = limits or EpisodeLimits()
    episode = Episode(item, environment, limits)
    episode.begin(environment.reset(item, 0))
    for text in turns:
        if episode.ended is None:
            action = episode.act(text, len(text.split()))
            if action is not None:
                episode.observe(environment.step(action), action)
    if episode.ended is None:
        episode.cut("turns", environment.cut())
    return episode


def rollout_row(
    episode: Episode, *, step: int = 1, uid: str = "1.0", reward: float | None = None, **fields: Any
) -> dict[str, Any]:
    """`fields` replace any of the row's."""
    prompt = ids.prompt_id(episode.item.prompt)
    failure = episode.failure
    row = {
        "step": step,
        "uid": uid,
        "prompt_id": prompt,
        "task_id": episode.item.task_id,
        "response_id": ids.response_id(prompt, episode.text),
        "prompt": [message.to_dict() for message in episode.item.prompt],
        "response": episode.text,
        "tokens": sum(turn.tokens for turn in episode.turns),
        "finished": episode.ended == "done",
        "truncated": episode.ended in ("turns", "tokens"),
        "reward": None if failure is not None else reward,
        "parts": {"environment": None if failure is not None else reward},
        "verified": None,
        "failures": [] if failure is None else [failure.to_dict()["error"]],
        "scores": {},
        "episode": episode.to_dict(),
        "advantage": None,
        "trained": failure is None,
    }
    return row | fields


def game(secret: str, *turns: str, number: int = 0, **fields: Any) -> dict[str, Any]:
    """A game of Twenty Questions, its task told apart by a number; the reward is whether it is won."""
    item = PromptItem((Message("user", f"{RULES} Game {number}."),), meta={"secret": secret})
    episode = played(TwentyQuestions(cost=0.1), item, turns)
    won = episode.rewards.get("win") == 1
    return rollout_row(episode, uid=f"1.{number}", reward=float(won)) | fields


def failed(
    row: dict[str, Any], code: str = "environment_timeout", message: str = "no answer within 60 s"
) -> dict[str, Any]:
    """The row, of an episode that failed after its turns; its source adds that its part does not apply."""
    error = ScoreFailure(code, message, row["episode"]["environment"]).to_dict()["error"]
    absent = ScoreFailure("not_applicable", "the episode has no such part", "environment").to_dict()["error"]
    episode = {**row["episode"], "failure": error, "ended": "failed", "rewards": {}}
    return {
        **row,
        "reward": None,
        "parts": {"environment": None},
        "failures": [error, absent],
        "trained": False,
        "episode": episode,
    }


def write_rollouts(run: Path, rows: Sequence[dict[str, Any]]) -> None:
    run.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    (run / "rollouts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
