"""An episode in which the policy says what is written down, and a short training, for programs of this folder."""

import asyncio
import inspect
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.cli.main import main
from assay.score import ScoreFailure
from assay.workspace import Workspace
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Environment
from assay_policy_training.plugins.environments.episode import EPISODE, Episode, EpisodeLimits
from assay_policy_training.rollouts.episode_rewards import EnvironmentReward


def played(environment: Environment, prompt: PromptItem, turns: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """How it ended, what was observed, and the episode's parts: numbers, or the code of their failure."""
    episode = Episode(prompt, replace(environment), EpisodeLimits())
    try:
        episode.begin(_answer(episode.environment.reset, prompt, seed))
        for text in turns:
            action = episode.act(text, 1)
            if action is not None:
                episode.observe(_answer(episode.environment.step, action), action)
            if episode.ended is not None:
                break
        if episode.ended is None:
            episode.cut("turns", _answer(episode.environment.cut))
    except Exception as error:
        episode.fail(ScoreFailure("environment_failed", f"{type(error).__name__}: {error}", episode.name))
    finally:
        _answer(episode.environment.close)
    told: dict[str, Any] = {
        "ended": episode.ended,
        "failure": episode.failure and episode.failure.message,
        "opening": [message.text for message in episode.opening],
        "observed": [turn.observed for turn in episode.turns],
        "tools": [tool.name for tool in episode.tools],
    }
    if episode.failure is None:
        item = replace(prompt, meta={**prompt.meta, **episode.meta()})
        rewards = EnvironmentReward().score([item], [item.meta[EPISODE]["turns"][-1]["text"]])
        codes = {failure.model: failure.code for failure in rewards.failures[0]}
        told["parts"] = {name: codes.get(name, float(column[0])) for name, column in rewards.parts.items()}
    return told


def _answer(method: Any, *arguments: Any) -> Any:
    answer = method(*arguments)
    if not inspect.isawaitable(answer):
        return answer

    async def awaited() -> Any:
        return await answer

    return asyncio.run(awaited())


def trained(*arguments: str) -> dict[str, Any]:
    """The metrics of the last step of `assay rl` with these arguments, in a workspace of its own."""
    workspace = Workspace.create(Path(tempfile.mkdtemp()) / "workspace")
    with redirect_stdout(sys.stderr):
        code = exit_code("rl", "-w", workspace.root, "--policy", "tiny", "--reward", "environment", *arguments)
    assert code == 0, code
    [metrics] = workspace.root.rglob("metrics.jsonl")
    last: dict[str, Any] = json.loads(metrics.read_text().splitlines()[-1])
    return last


def exit_code(*arguments: str | Path) -> int:
    """Of `assay` with these arguments."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0
