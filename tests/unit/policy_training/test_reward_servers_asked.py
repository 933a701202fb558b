"""What the servers that reward and watch are asked with: each its own key, for no longer than was said."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import main
from assay.errors import BackendError
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_policy_training.rollouts import open_rewards as opening_rewards
from assay_policy_training.rollouts.open_rewards import keys_of
from assay_policy_training.rollouts.reward_uri import RewardReference
from assay_policy_training.trainer import PolicyTrainer
from assay_serving.client import RewardClient


@pytest.mark.parametrize(("option", "sent"), [([], ""), (["--watch-key", "theirs"], "theirs")])
def test_watching_server_gets_its_own_key_only(
    option: list[str], sent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str | None] = []

    class Asked(RewardClient):
        def __init__(self, *given: Any, **settings: Any) -> None:
            keys.append(settings["api_key"])
            raise BackendError("far enough")

    monkeypatch.setattr(opening_rewards, "RewardClient", Asked)
    monkeypatch.setenv("ASSAY_API_KEY", "ours")
    place = str(tmp_path / "w")
    asked = ["rl", "--policy", "tiny", "--reward", "verifier", "--watch", "http://watch.test", "-w", place]
    for command in (["init", place], [*asked, *option]):
        with pytest.raises(SystemExit):
            main(command)
    assert keys == [sent]


@pytest.mark.parametrize(("option", "seconds"), [([], 600.0), (["--deadline", "45"], 45.0)])
def test_how_long_a_reward_may_take_is_a_setting(
    option: list[str], seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float | None] = []

    class Asked(RewardClient):
        def __init__(self, *given: Any, **settings: Any) -> None:
            super().__init__(*given, **settings)
            limits.append(self.settings.policy.deadline)
            raise BackendError("far enough")

    monkeypatch.setattr(opening_rewards, "RewardClient", Asked)
    place = str(tmp_path / "w")
    for command in (["init", place], ["rl", "--policy", "tiny", "--reward", "http://slow.test", *option, "-w", place]):
        with pytest.raises(SystemExit):
            main(command)
    assert limits == [seconds]


def test_another_host_is_not_told_the_first_ones_key() -> None:
    asked = ["verifier", "a=http://one.test:80/x", "b=http://one.test:80/y#m", "c=http://two.test", "row:quality"]
    assert keys_of(asked, "secret") == ["", "secret", "secret", "", ""]
    assert keys_of(["http://one.test"], None) == [None], "the client may look for the environment's"


def test_python_sends_the_environments_key_to_the_first_host_only(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: dict[str, str | None] = {}

    def served(_: ExitStack, target: RewardReference, key: str | None, *__: Any) -> None:
        keys[target.url] = key
        if "watch" in target.url:
            raise BackendError("far enough")

    monkeypatch.setattr(opening_rewards, "_served", served)
    rewards = ["a=http://one.test", "b=http://two.test"]
    trainer = PolicyTrainer.from_recipe(
        "grpo",
        reward=rewards,
        policy="tiny",
        prompts="constrained:2",
        watch=("http://watch.test",),
        workspace=workspace,
    )
    with pytest.raises(BackendError, match="far enough"):
        trainer.train()
    assert keys == {"http://one.test": None, "http://two.test": "", "http://watch.test": ""}


def test_python_locates_the_models_of_an_implicit_reward_in_the_workspace(workspace: Workspace) -> None:
    folder = workspace.models / "aligned"
    with start_run(workspace, "train", {}) as run:
        folder.mkdir(parents=True)
        run.add_artifact("policy", "aligned", folder, content_hash="0")
    options: dict[str, Any] = {"policy": "tiny", "prompts": "constrained:2", "workspace": workspace}
    trainer = PolicyTrainer.from_recipe("grpo", reward="dpo:aligned@tiny", watch=("q=dpo:aligned@tiny",), **options)
    located = f"dpo:{folder}@tiny"
    assert (trainer.plan.rewards, trainer.rewards) == ((located,), [located])
    assert trainer.watch == (f"q={located}",)
