"""A loss, a training method and a benchmark of one's own, from a file: used, recorded, and found again on resuming."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from assay_command import Run
from pair_files import write_pairs

from assay.domain import Message, PreferencePair
from assay.models.spec import RewardModelSpec
from assay.workspace import Workspace
from assay_rm_training.training import loop

FAST = ("--base", "tiny", "--lr", "0.005", "--head-lr", "0.005", "--batch-size", "8", "--device", "cpu")
OWN = '''
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F

from assay_rm_training.benchmarks.protocols.pair_file import PairFile
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.objectives.objective import Objective


def shifted(d):
    """-log s(d - 1)."""
    return -F.logsigmoid(d - 1)


def mean_loss(d):
    return -F.logsigmoid(d).mean()


@dataclass(frozen=True)
class Shifted(BradleyTerry):
    """Pairs under `-log s(d - 1)`, with a note."""

    name: ClassVar[str] = "shifted"
    note: str = ""


class OwnPairs(PairFile):
    name, title = "own-pairs", "Pairs of one's own"
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with `own.py` and 32 pairs in it."""
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    rng = random.Random(3)
    texts = [" ".join(rng.choices(["red", "blue", "green", "tree"], k=3)) for _ in range(32)]
    pairs = [PreferencePair((Message("user", f"{n}"),), f"{text}!", f"{text}?") for n, text in enumerate(texts)]
    write_pairs(tmp_path / "pairs.jsonl", pairs)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_loss_from_a_file(workspace: Workspace, folder: Path, assay: Run) -> None:
    where = ("--data", "pairs.jsonl", *FAST, "--json", "-w", workspace.root)
    code, out, err = assay("train", "bt", "--loss", "own.py:shifted", "--name", "own", *where)
    assert code == 0, err
    spec = RewardModelSpec.read(workspace.models / "own")
    assert spec is not None
    assert spec.method is not None
    assert spec.method["name"] == "bt"
    assert spec.method["loss"]["name"] == f"{folder / 'own.py'}:shifted"
    run = workspace.runs / json.loads(out)["run_id"]
    first = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    assert first["loss"] == pytest.approx(1.3132616, abs=1e-5)  # -log s(-1): a new head gives rewards of 0
    code, _, err = assay("train", "bt", "--loss", "own.py:shiftd", "--name", "other", *where)
    assert (code, "did you mean shifted" in err) == (2, True), err
    code, _, err = assay("train", "bt", "--loss", "own.py:mean_loss", "--name", "other", *where)
    assert (code, "mean_loss': one loss a pair is [8], not []" in err) == (2, True), err


@pytest.mark.slow
def test_a_method_from_a_file_is_found_again_on_resuming(
    workspace: Workspace, folder: Path, assay: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("--json", "-w", workspace.root)
    command = ("train", "method", "--method", "own.py:Shifted", "--set", "note=mine", "--set",
               'loss={"name": "own.py:shifted"}', "--data", "pairs.jsonl", *FAST, "--save-every", "1")  # fmt: skip
    step, calls = loop.train_step, 0

    def interrupted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return step(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", interrupted)
        code, _, err = assay(*command, "--name", "own", *where)
    assert code == 130, err
    hint = re.search(r"resume with: assay train method --resume (run-\S+)", err)
    assert hint
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    code, out, err = assay("train", "method", "--resume", hint[1], *where)
    assert code == 0, err
    assert json.loads(out)["method"] == "shifted"
    spec = RewardModelSpec.read(workspace.models / "own")
    assert spec is not None
    assert spec.method is not None
    assert (spec.method["name"], spec.method["note"]) == (f"{folder / 'own.py'}:Shifted", "mine")


def test_a_benchmark_from_a_file(workspace: Workspace, folder: Path, assay: Run) -> None:
    assert assay("train", "bt", "--data", "pairs.jsonl", *FAST, "--name", "m", "-w", workspace.root)[0] == 0
    code, out, err = assay(
        "eval", "--bench", "own.py:OwnPairs", "--path", "pairs.jsonl", "--model", "m", "--json", "-w", workspace.root
    )
    assert code == 0, err
    payload = json.loads(out)
    assert (payload["bench"], payload["counts"]["items"]) == ("own-pairs", 32)
    with workspace.store.unit() as db:
        (config,) = db.execute("SELECT config ->> '$.bench' FROM runs WHERE run_id = ?", [payload["run_id"]]).fetchall()
    assert config == (f"{folder / 'own.py'}:OwnPairs",)
    code, _, err = assay("eval", "--bench", "rmbench2", "--model", "m", "-w", workspace.root)
    assert (code, "no benchmark is named 'rmbench2'; did you mean" in err) == (2, True), err
