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
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.score import ScoreFailure
from assay.workspace import Workspace
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.plugins.environments.environment import Environment
from assay_policy_training.plugins.environments.episode import Episode, EpisodeLimits
from assay_policy_training.rollouts.episode_rewards import EnvironmentReward
from assay_serving.tools.turns import joined, offered

LETTERS = f"{__file__}:letters"  #: a reward that differs between episodes of any policy


def letters(completions: list[Any]) -> list[float]:
    return [len(json.dumps(one)) / 100 for one in completions]


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
    if episode.failure is None and (episode.rewards or any(turn.rewards for turn in episode.turns)):
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


def trained(*arguments: str, reward: str = "environment", says: str = "", opened: Any = ()) -> dict[str, Any]:
    """The metrics of the last step of `assay rl` with these arguments, in a workspace of its own. `says`: a turn that
    the policy is first taught to begin with, in these episodes: (environment, prompts)."""
    workspace = Workspace.create(Path(tempfile.mkdtemp()) / "workspace")
    policy = "tiny"
    if says:
        policy, rows = "warm", workspace.root / "rows.jsonl"
        contexts = [_context(opened[0], prompt) for prompt in opened[1]]
        lines = [json.dumps({"prompt": context, "completion": says}) for context in contexts]
        rows.write_text("\n".join(lines * (32 // len(lines))))
        options = ["--base", "tiny", "--lr", "1e-2", "--epochs", "20", "--batch-size", "8", "--dtype", "float32"]
        run("train", "sft", "-w", workspace.root, "--data", rows, "--name", policy, *options)
    run("rl", "-w", workspace.root, "--policy", policy, "--reward", reward, *arguments)
    metrics = max(workspace.root.rglob("metrics.jsonl"), key=lambda path: path.stat().st_mtime)
    last: dict[str, Any] = json.loads(metrics.read_text().splitlines()[-1])
    return last


def _context(environment: Environment, prompt: PromptItem) -> list[dict[str, Any]]:
    """What the policy reads before its first turn."""
    episode = Episode(prompt, replace(environment), EpisodeLimits())
    episode.begin(_answer(episode.environment.reset, prompt, 0))
    _answer(episode.environment.close)
    renderer = Renderer(load_tokenizer("tiny"), max_length=1 << 20)
    context = offered(prompt.prompt, episode.tools, renderer) if episode.tools else prompt.prompt
    return [message.to_dict() for message in joined((*context, *episode.opening))]


def run(*arguments: str | Path) -> None:
    """`assay` with these arguments."""
    try:
        with redirect_stdout(sys.stderr):
            main([str(argument) for argument in arguments])
    except SystemExit as ended:
        if ended.code:
            raise
