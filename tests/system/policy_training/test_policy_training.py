"""Policy training against a real reward server: every recipe, learning, masked failures, kill -9, the command."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_command import ForkedCommand

from assay.domain import Message
from assay.errors import BackendError
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay.workspace import Workspace
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import ModelReward
from assay_policy_training.training.loop import PolicyLoop
from assay_policy_training.training.run import Plan, train_policy
from assay_serving.client import RemoteScorer, RewardClient
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import running_server
from assay_serving.scorer import ModelInfo, ScoreItem

SMALL = ["sampling.prompts_per_step=2", "sampling.group_size=4", "sampling.max_new_tokens=10"]
ITEMS = [PromptItem((Message("user", text),)) for text in ("a", "b", "c", "d")]


class LetterShare:
    """Scores the share of lowercase letters in a response. `refused` of every four it cannot score.

    After `free` items it waits for `go` before each answer, so that a test can act while a step is under way.
    """

    def __init__(self, *, refused: int = 0, free: int = sys.maxsize) -> None:
        self.info = ModelInfo("letters", "v1", "scalar", "t1", 4096, False, "unchecked", "float32", "cpu")
        self.refused, self.free = refused, free
        self.seen = 0
        self.waiting, self.go = threading.Event(), threading.Event()

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        results: list[ScoreResult] = []
        for item in items:
            if self.seen >= self.free:
                self.waiting.set()
                self.go.wait(600)
            self.seen += 1
            if self.seen % 4 < self.refused:
                results.append(ScoreFailure("backend", "will not say", "letters"))
                continue
            share = sum(c.islower() for c in str(item.response)) / max(1, len(str(item.response)))
            results.append(Score(share, "letters", "v1", "t1", len(item.response), False))
        return results


@pytest.fixture(scope="module")
def tiny_server(tiny_reward_model: Path) -> Iterator[str]:
    with running_server({"tiny-rm": TransformersScorer.load(ModelConfig(str(tiny_reward_model)))}) as server:
        yield server.url


def _trainer(url: str, folder: Path, overrides: Sequence[str], *, recipe: str = "grpo") -> PolicyLoop:
    chosen = load_recipe(recipe, overrides)
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64, with_reference=chosen.needs_reference)
    reward = ModelReward(RemoteScorer(RewardClient(url, failures_in_place=True)))
    return PolicyLoop(chosen, policy, ShuffledPrompts(ITEMS, seed=0), [reward], folder)


def _records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("recipe", ["grpo", "dr_grpo", "rloo"])  # the others: test_recipes
def test_recipe_runs_against_a_served_reward_model(tiny_server: str, tmp_path: Path, recipe: str) -> None:
    trainer = _trainer(tiny_server, tmp_path, [*SMALL, "optimisation.lr=1e-3", "report_kl=true"], recipe=recipe)
    before = {name: p.detach().clone() for name, p in trainer.parameters.items()}
    first, second = trainer.train(2)
    assert any(not torch.equal(before[name], p) for name, p in trainer.parameters.items())
    for row in (first, second):
        assert row["rewards_missing"] == 0
        assert row["rollouts_trained"] == 8
        assert row["grad_norm"] > 0
        assert row["reward_std"] > 0
        assert row["sampler_gap_max"] < 1e-4  # rollouts come from the very weights that are trained
        assert set(row["reward_versions"]) == {"tiny-rm"}
    assert first["kl_k3"] == pytest.approx(0, abs=1e-7)
    assert second["kl_k3"] > 1e-7
    records = _records(tmp_path)
    assert [r["weights_version"].partition("+")[2] for r in records] == ["0"] * 8 + ["1"] * 8
    assert all(r["scores"]["tiny-rm"]["reward"] == r["reward"] for r in records)
    groups = {uid: [r["advantage"] for r in records if r["uid"] == uid] for uid in {r["uid"] for r in records}}
    assert all(sum(group) == pytest.approx(0, abs=1e-4) for group in groups.values())


def test_grpo_learns_what_the_server_rewards(tmp_path: Path) -> None:
    with running_server({"letters": LetterShare()}) as server:
        trainer = _trainer(
            server.url,
            tmp_path,
            [
                "sampling.prompts_per_step=4",
                "sampling.group_size=8",
                "sampling.max_new_tokens=12",
                "optimisation.lr=1e-2",
            ],
        )
        rewards = [row["reward_mean"] for row in trainer.train(10)]
    assert sum(rewards[:2]) / 2 < 0.2
    assert sum(rewards[-2:]) / 2 > 0.35


def test_missing_rewards_are_masked_and_counted(tmp_path: Path) -> None:
    with running_server({"letters": LetterShare(refused=1)}) as server:
        trainer = _trainer(server.url, tmp_path, SMALL)
        (row,) = trainer.train(1)
    assert row["rewards_missing"] == 2
    assert row["rollouts_trained"] == 6
    missing = [r for r in _records(tmp_path) if not r["trained"]]
    assert [(r["reward"], r["advantage"], r["failures"][0]["code"]) for r in missing] == [(None, None, "backend")] * 2
    assert all(r["reward"] is not None for r in _records(tmp_path) if r["trained"])


def test_no_reward_at_all_stops_the_run_with_the_reason(tmp_path: Path) -> None:
    with running_server({"letters": LetterShare(refused=4)}) as server:
        trainer = _trainer(server.url, tmp_path, SMALL)
        before = {name: p.detach().clone() for name, p in trainer.parameters.items()}
        with pytest.raises(BackendError, match=r"none of 8 rollouts got a reward.*will not say"):
            trainer.train(1)
    assert all(torch.equal(before[name], p) for name, p in trainer.parameters.items())


def test_killed_run_resumes_as_if_nothing_had_happened(workspace: Workspace, tmp_path: Path) -> None:
    """kill -9 in the middle of step 3; the resumed run equals an uninterrupted one, bit for bit."""
    options = ["--policy", "tiny", "--prompts", "constrained:4", "--steps", "4", "--lr", "1e-3"]
    options += ["--prompts-per-step", "2", "--group-size", "4", "--max-new-tokens", "10"]
    scorer = LetterShare(free=16)
    with running_server({"letters": scorer}) as server:
        every = ("--set", "checkpoint_every=1")
        process = ForkedCommand("rl", "-w", workspace.root, "--reward", server.url, *options, *every)
        process.until(scorer.waiting.is_set)
        process.kill()
        scorer.go.set()
        (killed,) = [folder.name for folder in workspace.runs.iterdir()]
        plan = Plan.read(workspace, killed)
        rewards = [ModelReward(RemoteScorer(RewardClient(server.url)))]
        items = _prompts_of(plan)
        resumed = train_policy(workspace, plan, items, rewards, resume=killed)
        other = Workspace.create(tmp_path / "other")
        whole = train_policy(other, plan, items, rewards)
    assert resumed.metrics["resumed_at"] == 2
    assert (resumed.policy / "model.safetensors").read_bytes() == (whole.policy / "model.safetensors").read_bytes()
    assert (resumed.folder / "rollouts.jsonl").read_bytes() == (whole.folder / "rollouts.jsonl").read_bytes()
    with workspace.store.unit() as db:
        status = dict(db.execute("SELECT run_id, status FROM runs").fetchall())
        links = db.execute(
            "SELECT kind FROM run_links WHERE run_id = ? AND ref = ?", [resumed.run_id, killed]
        ).fetchall()
    assert status == {killed: "interrupted", resumed.run_id: "done"}
    assert links == [("run",)]


def _prompts_of(plan: Plan) -> list[PromptItem]:
    from assay_policy_training.plugins.prompts.source import load_prompts

    return load_prompts(plan.prompts[0], seed=plan.recipe.seed)


def test_command_records_the_run(
    workspace: Workspace, tiny_server: str, tiny_reward_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Held-out evaluation, artifacts, links to the reward model, scores in the store, a policy anyone can load."""
    from assay.cli.main import main
    from assay.models.spec import RewardModelSpec
    from assay.runs.record import start_run

    spec = RewardModelSpec.read(tiny_reward_model)
    assert spec is not None
    with start_run(workspace, "train", {}) as run:
        reward_model = run.add_artifact(
            "reward_model", "tiny-rm", tiny_reward_model, content_hash="x", spec={"version": spec.version}
        )
    arguments = [
        "rl",
        "-w",
        workspace.root,
        "--reward",
        tiny_server,
        "--policy",
        "tiny",
        "--steps",
        "1",
        "--name",
        "better",
    ]
    arguments += ["--prompts", "constrained:3", "--evaluate", "2", "--json"]
    arguments += [word for override in SMALL for word in ("--set", override)]
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    payload = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0, payload
    assert payload["before"]["verifier"]["total"] == payload["after"]["verifier"]["total"] == 8
    assert payload["before"]["kl_k3"] == pytest.approx(0, abs=1e-6)
    assert payload["reload_difference"] < 1e-5
    assert (workspace.models / "better" / "model.safetensors").is_file()
    with workspace.store.unit() as db:
        links = set(db.execute("SELECT direction, ref FROM run_links WHERE run_id = ?", [payload["run"]]).fetchall())
        scored = db.execute("SELECT count(*) FROM scores WHERE run_id = ?", [payload["run"]]).fetchone()
        kinds = db.execute("SELECT kind FROM artifacts WHERE run_id = ? ORDER BY kind", [payload["run"]]).fetchall()
    assert ("input", reward_model) in links
    assert ("output", payload["artifacts"]["policy"]) in links
    assert scored is not None
    assert scored[0] == len({r["response_id"] for r in _records(Path(payload["folder"]))})
    assert kinds == [("policy",), ("rollouts",)]


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--reward", "http://127.0.0.1:9", "--wait", "0.3"], 5, "not ready after 0.3 s"),
        (["--reward", "some-model"], 2, "no reward is named 'some-model'"),
        ([], 2, "--reward"),
        (["--reward", "verifier", "--recipe", "nope"], 2, "no recipe is named 'nope'"),
        (["--reward", "verifier", "--set", "kl.beta=1"], 2, "'kl.beta': no key of kl is named 'beta'"),
        (["--reward", "verifier", "--prompts", "missing.jsonl"], 2, "missing.jsonl"),
        (["--reward", "verifier", "--policy", "nobody"], 3, "no model 'nobody'"),
        (
            ["--reward", "verifier", "--evaluate=1", "--eval-every=1", "--keep=best", "--best-by", "eval_reward"],
            2,
            "no metric of the evaluations is named 'eval_reward'; did you mean eval_reward_mean",
        ),
    ],
)
def test_wrong_input_is_one_line(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, complaint: str
) -> None:
    from assay.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main(["rl", "-w", str(workspace.root), "--policy", "tiny", *arguments])
    error = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == code
    assert complaint in error[-1], error
