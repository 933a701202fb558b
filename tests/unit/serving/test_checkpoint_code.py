"""Checkpoints that would run code when they are loaded: refused, and nothing of them is run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from assay.errors import BadInputError
from assay.models.loading import load_config, load_scalar_model, load_tokenizer
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.server.models.model_access import check_plan

Made = Callable[[], tuple[Path, Path]]


class Bomb:
    """Whoever unpickles it makes a folder."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.canary),)


@pytest.fixture
def made(tiny_reward_model: Path, tmp_path: Path) -> Made:
    """A copy of the model to spoil, without Assay's own description, and a folder that must not come to be."""

    def copied() -> tuple[Path, Path]:
        folder = tmp_path / "rm"
        shutil.copytree(tiny_reward_model, folder)
        (folder / "assay.json").unlink()
        return folder, tmp_path / "canary"

    return copied


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def with_code(folder: Path, canary: Path) -> None:
    (folder / "own.py").write_text(f"import os\nos.mkdir({str(canary)!r})\nclass Own: ...\n")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_weights_that_are_pickles_are_refused(made: Made, name: str) -> None:
    folder, canary = made()
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({**weights, "bomb": Bomb(canary)}, folder / name)
    for load in (
        lambda: load_scorer(ModelConfig(str(folder), device="cpu")),
        lambda: load_scalar_model(
            str(folder), load_tokenizer(str(folder)), dtype=torch.float32, device=torch.device("cpu")
        ),
    ):
        with pytest.raises(BadInputError, match=rf"{name}, a Python pickle") as refused:
            load()
        assert "\n" not in str(refused.value)
    assert not canary.exists()
    canary.mkdir()
    with pytest.raises(FileExistsError):  # the canary would have sung
        torch.load(folder / name, weights_only=False)


def test_a_pickle_beside_safetensors_is_not_opened(made: Made) -> None:
    folder, canary = made()
    torch.save({"bomb": Bomb(canary)}, folder / "pytorch_model.bin")
    torch.save({"bomb": Bomb(canary)}, folder / "training_args.bin")
    assert load_scorer(ModelConfig(str(folder), device="cpu")).info.kind == "scalar"
    assert not canary.exists()


def test_an_adapter_that_is_a_pickle_is_refused(made: Made) -> None:
    folder, canary = made()
    torch.save({"bomb": Bomb(canary)}, folder / "adapter_model.bin")
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "tiny"}')
    with pytest.raises(BadInputError, match=r"adapter_model\.bin, a Python pickle"):
        load_scorer(ModelConfig(str(folder), device="cpu"))
    assert not canary.exists()


def test_a_model_that_needs_its_own_code_is_refused(made: Made) -> None:
    folder, canary = made()
    with_code(folder, canary)
    edit(
        folder / "config.json",
        model_type="own",
        auto_map=dict.fromkeys(("AutoConfig", "AutoModelForSequenceClassification"), "own.Own"),
    )
    for load in (lambda: load_config(str(folder)), lambda: load_scorer(ModelConfig(str(folder), device="cpu"))):
        with pytest.raises(BadInputError, match="brings code of its own"):
            load()
    assert not canary.exists()


def test_code_beside_a_known_architecture_is_not_run(made: Made) -> None:
    folder, canary = made()
    with_code(folder, canary)
    edit(folder / "config.json", auto_map={"AutoModelForSequenceClassification": "own.Own"})
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Own", None]})
    load_scorer(ModelConfig(str(folder), device="cpu"))
    assert not canary.exists()


OF_CODE = {
    "composed.yaml": "kind: composed\nparts: [{name: a, constraints: [{kind: 'own.py:Own'}]}]\n",
    "rubric.yaml": "kind: rubric\nscorers: [{name: a, model: tiny, model_kind: 'own.py:Own'}]\n",
    "ensemble.yaml": "kind: ensemble\nscale: raw\nmembers: [inner.yaml, tiny]\n",
}


@pytest.mark.parametrize("file", OF_CODE)
def test_a_folder_that_names_code_runs_none(tmp_path: Path, file: str) -> None:
    """In its own description, and in one that a member names; where the caller names the file, its code is run."""
    with_code(tmp_path, tmp_path / "canary")
    (tmp_path / "inner.yaml").write_text(OF_CODE["composed.yaml"])
    (tmp_path / file).write_text(OF_CODE[file])
    (tmp_path / "outer.yaml").write_text(f"kind: composed\nparts: [{{name: a, model: {tmp_path}/}}]\n")
    plan = check_plan(ModelConfig(str(tmp_path / file), device="cpu"), [str(tmp_path)])
    for config in (ModelConfig(str(tmp_path), device="cpu"), ModelConfig(str(tmp_path / "outer.yaml")), plan):
        with pytest.raises(BadInputError, match=r"asks for the code .*own.py:Own: a folder .* runs none") as refused:
            load_scorer(config)
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "canary").exists()
    with pytest.raises(BadInputError, match=r"own\.py:Own' is no "):
        load_scorer(ModelConfig(str(tmp_path / file), device="cpu"))
    assert (tmp_path / "canary").exists()
