"""`assay train odin|grm|lists|ratings|steps` and the options of `bt`, as a user runs them; their complaints."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from assay_command import Run

from assay.domain import Message
from assay.models.readings import RatingHeads, Stepwise
from assay.models.spec import RewardModelSpec
from assay.score import Score
from assay.workspace import Workspace
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_scorer
from assay_serving.scorer import ScoreItem

WORDS = ["red", "blue", "green", "tree", "stone", "river"]
FAST = ("--base", "tiny", "--lr", "0.003", "--batch-size", "8", "--device", "cpu", "--dtype", "float32")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small files of every kind of row."""
    rng = random.Random(0)
    folder = tmp_path_factory.mktemp("rows")
    rows: dict[str, list[dict[str, Any]]] = {"pairs": [], "lists": [], "ratings": [], "steps": []}
    for _ in range(16):
        prompt, text = " ".join(rng.choices(WORDS, k=2)), " ".join(rng.choices(WORDS, k=2))
        said = {"chosen": rng.randint(1, 4), "rejected": 1, "tie": 1}
        rows["pairs"].append({"prompt": prompt, "chosen": f"{text}!", "rejected": f"{text}?", "votes": said})
        rows["pairs"].append({"prompt": prompt, "responses": [f"{text}.", f"{text},"], "label": "tie"})
        rows["lists"].append({"prompt": prompt, "responses": [f"{text}{end}" for end in "!.?"], "ranks": [1, 2, 3]})
        level = rng.randrange(3)
        ratings = {"depth": level, "tone": 5 - level}
        rows["ratings"].append({"prompt": prompt, "response": text + "?.!"[level], "ratings": ratings})
        rows["steps"].append({"prompt": prompt, "steps": [f"{text}!", f"{text}?"], "labels": [True, False]})
    paths = {}
    for name, records in rows.items():
        paths[name] = folder / f"{name}.jsonl"
        paths[name].write_text("".join(json.dumps(record) + "\n" for record in records))
    decided = [row for row in rows["pairs"] if "chosen" in row]
    paths["decided"] = folder / "decided.jsonl"
    paths["decided"].write_text("".join(json.dumps(record) + "\n" for record in decided))
    return paths


#: The others are left to `make test-all`.
ALWAYS = ("ties", "ratings")
COMMANDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "ties": ("pairs", ("bt", "--loss", "davidson"), "| loss | davidson"),
    "soft labels": ("pairs", ("bt", "--soft-labels", "--vote-prior", "1"), "soft labels from votes (prior 1)"),
    "bounds": ("decided", ("bt", "--loss", "focal_internlm", "--bound", "0.01"), "bound 0.01"),
    "odin": ("decided", ("odin", "--of-sum"), "the length head was dropped"),
    "grm": ("decided", ("grm", "--text", "dpo"), "the language head was dropped at saving"),
    "lists": ("lists", ("lists",), "plackett_luce of ranked lists"),
    "lists of pairs": ("decided", ("lists", "--loss", "pairs"), "pairs of ranked lists"),
    "ratings": ("ratings", ("ratings", "--ratings", "depth,tone"), "mean, folded into one head"),
    "gate": (
        "ratings",
        ("ratings", "--ratings", "depth,tone", "--aggregation", "gate", "--thresholds", "0.5"),
        "gate above 0.5, one output per rating is kept",
    ),
    "steps": ("steps", ("steps", "--aggregation", "last"), "a response's reward: last of its steps"),
}


@pytest.mark.parametrize(
    "case", [case if case in ALWAYS else pytest.param(case, marks=pytest.mark.slow) for case in COMMANDS]
)
def test_every_command_trains_evaluates_and_saves(
    case: str, files: dict[str, Path], workspace: Workspace, assay: Run
) -> None:
    from transformers import AutoConfig

    data, (command, *options), said = COMMANDS[case]
    code, out, err = assay(
        "train", command, "--data", files[data], "--eval-data", files[data], *FAST, *options, "--name", "model",
        "--json", "-w", workspace.root,
    )  # fmt: skip
    assert code == 0, err
    told = json.loads(out)
    assert told["parity"] == "passed"
    assert told["method"] == command
    assert told["evaluation"]
    folder = workspace.models / "model"
    assert said in (folder / "README.md").read_text()
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    assert spec.stepwise == (Stepwise(aggregation="last") if case == "steps" else None)
    assert isinstance(spec.ratings, RatingHeads) == (case == "gate")
    stock = AutoConfig.from_pretrained(folder)
    assert stock.architectures == ["LlamaForSequenceClassification"]
    assert stock.num_labels == (2 if case == "gate" else 1)
    scorer = open_scorer(
        ModelConfig("model", device="cpu"),
        workspace=workspace.root,
    )
    (score,) = scorer.score([ScoreItem((Message("user", "a question"),), "a response")])
    assert isinstance(score, Score)
    code, out, err = assay("verify", "model", "--json", "-w", workspace.root)
    assert code == 0, err
    found = json.loads(out)
    assert found["parity"] == "passed"
    one_logit = any("stock transformers" in check["name"] for check in found["checks"])
    assert one_logit == (case not in ("steps", "gate"))  # the others' reward is made of several numbers


def test_complaints_are_one_clear_line(files: dict[str, Path], workspace: Workspace, assay: Run) -> None:
    where = (*FAST, "-w", workspace.root)
    for arguments, said in (
        (("bt", "--loss", "nonsense", "--data", files["decided"]), "no loss is named 'nonsense'"),
        (("bt", "--loss", "hinge", "--soft-labels", "--data", files["pairs"]), "is for bradley_terry, not hinge"),
        (("ratings", "--data", files["ratings"]), "name the ratings to learn: --ratings"),
        (("ratings", "--ratings", "depth", "--data", "gold"), "ratings are read from files"),
        (("ratings", "--ratings", "humour", "--data", files["ratings"]), "has none of the ratings humour"),
        (
            ("ratings", "--ratings", "depth,tone", "--aggregation", "weights", "--weights", "1,x", "--data", "r"),
            "not numbers separated by commas",
        ),
        (("steps", "--data", files["decided"]), "row 1, field 'steps': not a list of steps"),
        (("grm", "--text", "poem", "--data", files["decided"]), "'poem' is not one of sft, nll, dpo"),
        (("lists", "--data", files["ratings"]), "holds no"),
    ):
        code, _, err = assay("train", *arguments, *where)
        assert code in (2, 3), err
        assert said in err, err
        assert "Traceback" not in err
