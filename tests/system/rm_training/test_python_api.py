"""PolicyTrainer and RewardModelTrainer: the runs of `assay rl` and `assay train`, from Python, on the tiny model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from assay_command import exit_code

from assay.errors import BackendError, BadInputError
from assay.runs.callbacks import Callback
from assay.runs.json_log import read_metrics
from assay.workspace import Workspace
from assay_policy_training.trainer import PolicyTrainer
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.objectives.objective import Objective
from assay_rm_training.trainer import RewardModelTrainer

PROMPTS = [f"Name metal number {number}." for number in range(6)]
PAIRS = [{"prompt": f"Question {n}?", "chosen": f"Answer {n}, a good one.", "rejected": f"No {n}."} for n in range(16)]
OPTIONS: dict[str, Any] = {
    "policy": "tiny",
    "steps": 3,
    "prompts_per_step": 2,
    "group_size": 4,
    "max_new_tokens": 6,
    "lr": 1e-3,
    "settings": {"checkpoint_every": 2},
}


def unique_letters(completions: list[str], **row: Any) -> list[float]:
    """TRL's form."""
    return [float(len(set(completion))) for completion in completions]


class Recorded(Callback):
    def __init__(self, events: list[tuple[str, str, int]], name: str = "") -> None:
        self.events, self.name = events, name
        self.rows: list[Mapping[str, Any]] = []
        self.evaluations: list[Mapping[str, Any]] = []

    def on_step(self, row: Mapping[str, Any]) -> None:
        self.rows.append(row)
        self.events.append((self.name, "step", row["step"]))

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        self.evaluations.append(row)
        self.events.append((self.name, "evaluation", row["step"]))

    def on_checkpoint(self, step: int, path: Path) -> None:
        assert path.exists()
        self.events.append((self.name, "checkpoint", step))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace.create(tmp_path_factory.mktemp("python-api"))


def test_a_policy_run_calls_its_callbacks_in_order_and_is_recorded(workspace: Workspace) -> None:
    events: list[tuple[str, str, int]] = []
    first, second = Recorded(events, "first"), Recorded(events, "second")
    trainer = PolicyTrainer.from_recipe(
        "grpo",
        reward=unique_letters,
        prompts=PROMPTS,
        eval_prompts={"fish": ["Name a fish."], "birds": ["Name a bird.", "Name another bird."]},
        eval_every=2,
        workspace=workspace,
        name="recorded",
        callbacks=[first, second],
        **OPTIONS,
    )
    assert trainer.plan.evaluate == 64
    trained = trainer.train()
    expected = [("step", 1), ("step", 2), ("evaluation", 2), ("checkpoint", 2), ("step", 3)]
    assert [event[1:] for event in events if event[0] == "first"] == expected
    assert events[:2] == [("first", "step", 1), ("second", "step", 1)]
    assert first.rows[0]["reward_unique_letters_mean"] == trained.steps[0]["reward_unique_letters_mean"]
    assert {"eval_fish_reward_mean", "eval_birds_reward_mean"} <= first.evaluations[0].keys()
    assert set(trained.by_set) == {"fish", "birds"}
    with workspace.store.unit() as db:
        run = db.execute("SELECT kind, status FROM runs WHERE run_id = ?", [trained.run_id]).fetchone()
        sources = db.execute(
            "SELECT ref FROM run_links WHERE run_id = ? AND kind = 'file'", [trained.run_id]
        ).fetchall()
    assert run == ("rl", "done")
    assert {Path(ref).suffix for (ref,) in sources} >= {".jsonl"}


def test_the_same_run_as_by_the_command(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal metrics, whoever starts it."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))
    (tmp_path / "mine.py").write_text("def letters(response):\n    return float(len(set(response)))\n")
    options = (
        "--policy tiny --steps 2 --prompts-per-step 2 --group-size 4 --max-new-tokens 6 --lr 1e-3 --name commanded"
    )
    where = [
        "--prompts",
        str(prompts),
        "--reward",
        f"{tmp_path / 'mine.py'}:letters",
        "--workspace",
        str(workspace.root),
    ]
    assert exit_code("rl", "--recipe", "dr_grpo", *options.split(), *where, "--json") == 0
    commanded = json.loads(capsys.readouterr().out)

    def letters(response: str) -> float:
        return float(len(set(response)))

    trained = PolicyTrainer.from_recipe(
        "dr_grpo", reward=letters, prompts=PROMPTS, workspace=workspace, name="scripted", **{**OPTIONS, "steps": 2}
    ).train()
    for ours, theirs in zip(trained.steps, read_metrics(Path(commanded["folder"])), strict=True):
        assert {k: v for k, v in ours.items() if "second" not in k} == {
            k: v for k, v in theirs.items() if "second" not in k
        }


def test_a_callback_that_raises_ends_the_run_and_python_resumes_it(workspace: Workspace) -> None:
    class Stop(Callback):
        def on_step(self, row: Mapping[str, Any]) -> None:
            if row["step"] == 3:
                raise BackendError("the tracker is away")

    options: dict[str, Any] = {"reward": unique_letters, "prompts": PROMPTS, "workspace": workspace, **OPTIONS}
    folders: list[Path] = []
    with pytest.raises(BackendError, match="the tracker is away"):
        PolicyTrainer.from_recipe("dr_grpo", name="ended", callbacks=[Stop()], **options).train(on_start=folders.append)
    resumed = PolicyTrainer.from_recipe("dr_grpo", name="ended", **options).train(resume=folders[0].name)
    assert resumed.metrics["resumed_at"] == 3
    assert [row["step"] for row in resumed.steps] == [1, 2, 3]


def test_a_reward_model_and_a_policy_on_pairs(workspace: Workspace) -> None:
    events: list[tuple[str, str, int]] = []
    callback = Recorded(events)
    options: dict[str, Any] = {"data": PAIRS[:12], "eval_data": PAIRS[12:], "base": "tiny", "workspace": workspace}
    options |= {"batch_size": 4, "eval_every": 2, "save_every": 2, "callbacks": [callback]}
    trained = RewardModelTrainer(BradleyTerry(loss=Objective(centring=0.01)), name="scalar", **options).train()
    step = [("", "step", n) for n in range(4)]
    at_2 = [("", "evaluation", 2), ("", "checkpoint", 2)]
    at_3 = [("", "evaluation", 3), ("", "checkpoint", 3)]
    assert events == [step[1], step[2], *at_2, step[3], *at_3]
    assert callback.rows[0]["loss"] == read_metrics(trained.folder)[0]["loss"]
    assert trained.evaluation is not None
    aligned = RewardModelTrainer("dpo", beta=0.25, name="aligned", **options).train()
    assert aligned.spec.implicit is not None
    assert aligned.spec.implicit.beta == 0.25
    assert aligned.spec.implicit.reference == "tiny"


def test_a_second_run_without_a_name_is_a_new_version(workspace: Workspace) -> None:
    options: dict[str, Any] = {"reward": unique_letters, "prompts": PROMPTS, "workspace": workspace, **OPTIONS}
    assert PolicyTrainer.from_recipe("opo", **options).plan.name == "tiny-opo"
    (workspace.models / "tiny-opo").mkdir()
    assert PolicyTrainer.from_recipe("opo", **options).plan.name == "tiny-opo-v2"
    assert RewardModelTrainer(data=PAIRS, base="tiny", workspace=workspace).plan.force


def test_a_wrong_row_or_setting_is_named(workspace: Workspace) -> None:
    with pytest.raises(BadInputError, match=r"rows-\w+\.jsonl, row 2, field 'chosen': missing"):
        RewardModelTrainer(data=[PAIRS[0], {"prompt": "x", "rejected": "y"}], base="tiny", workspace=workspace)
    with pytest.raises(BadInputError, match="a mapping of train, test is no rows"):
        PolicyTrainer.from_recipe(
            "grpo", reward="verifier", prompts={"train": PROMPTS, "test": PROMPTS}, workspace=workspace
        )
    with pytest.raises(TypeError, match="object is not JSON serializable"):
        RewardModelTrainer(data=[{"prompt": object()}], base="tiny", workspace=workspace)
    with pytest.raises(BadInputError, match="no option is named 'batchsize'; did you mean batch_size"):
        RewardModelTrainer(data=PAIRS, base="tiny", workspace=workspace, batchsize=3)
    with pytest.raises(BadInputError, match="field 'num_train_epochs': is called epochs here"):
        RewardModelTrainer(data=PAIRS, base="tiny", workspace=workspace, num_train_epochs=3)
    with pytest.raises(BadInputError, match=r"preset.*is applied by assay train"):
        RewardModelTrainer(data=PAIRS, base="tiny", workspace=workspace, preset="skywork-v2")
    with pytest.raises(BadInputError, match="no option is named 'groupsize'; did you mean group_size"):
        PolicyTrainer.from_recipe("grpo", reward="verifier", workspace=workspace, groupsize=3)
    with pytest.raises(BadInputError, match="field 'reward_funcs': is called reward here"):
        PolicyTrainer.from_recipe("grpo", reward_funcs=len, workspace=workspace)
    with pytest.raises(BadInputError, match=r"field 'reward': a function, a RewardSource.*not 3$"):
        PolicyTrainer.from_recipe("grpo", reward=3, prompts=PROMPTS, workspace=workspace)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="cannot tell how to call"):
        PolicyTrainer.from_recipe("grpo", reward=lambda x: 0.0, prompts=PROMPTS, workspace=workspace, **OPTIONS).train()
