"""The trained weights are on disk before anything that may fail: evaluation, the comparison with what was trained."""

from __future__ import annotations

import gc
import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from assay.cli.main import main
from assay.models.loading import load_causal_lm
from assay_policy_training.core import policy as policies
from assay_policy_training.core.policy import Policy
from assay_policy_training.training import run as runs
from assay_policy_training.training.evaluation import evaluate_policy

SMALL = ["--prompts", "constrained:4", "--prompts-per-step", "2", "--group-size", "2", "--max-new-tokens", "6"]
TRAIN = ["rl", "--recipe", "grpo", "--reward", "verifier", *SMALL]
LORA = [*TRAIN, "--policy", "tiny", "--lr", "1e-2", "--set", "lora.rank=8", "--set", "optimisation.autocast=true"]


def command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    printed = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, printed.out, printed.err


@pytest.mark.slow
def test_adapters_under_autocast_are_saved_and_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("-w", tmp_path / "w", "--json")
    assert command(capsys, "init", tmp_path / "w")[0] == 0
    code, out, err = command(capsys, *LORA, "--steps", "2", "--set", "checkpoint_every=1", *where)
    assert code == 0, err
    assert json.loads(out)["reload_difference"] < 1e-3
    saved = Policy(json.loads(out)["policy"], device=torch.device("cpu"), max_prompt_tokens=64)
    assert not any("lora" in name for name, _ in saved.model.named_parameters())
    code, out, err = command(
        capsys, "rl", "--resume", json.loads(out)["run"], "--steps", "3", "--name", "longer", *where
    )
    assert code == 0, err
    assert json.loads(out)["resumed_at"] == 2


def test_a_policy_that_fails_the_comparison_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is damaged after it was written: the run fails, says by how much and where the weights are."""
    where = ("-w", tmp_path / "w")
    assert command(capsys, "init", tmp_path / "w")[0] == 0
    written = Policy.save

    def damaged(self: Policy, folder: Path) -> None:
        written(self, folder)
        weights = load_file(folder / "model.safetensors")
        name = next(name for name in weights if name.endswith("norm.weight"))
        save_file(weights | {name: weights[name] * 3}, folder / "model.safetensors", metadata={"format": "pt"})

    monkeypatch.setattr(Policy, "save", damaged)
    code, _, err = command(capsys, *TRAIN, "--policy", "tiny", "--steps", "1", "--name", "odd", *where)
    assert code == 5
    assert re.search(r"differs from the trained one by \d.* in a log-prob .*its weights are in \S+/odd", err)
    assert Policy(str(tmp_path / "w/models/odd"), device=torch.device("cpu"), max_prompt_tokens=64).trainable()


def test_a_failed_evaluation_loses_no_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("-w", tmp_path / "w")
    assert command(capsys, "init", tmp_path / "w")[0] == 0
    evaluated, calls = evaluate_policy, []

    def failing(*arguments: object, **options: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise OSError("the disk is gone")
        return evaluated(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(runs, "evaluate_policy", failing)
    options = ("--policy", "tiny", "--steps", "1", "--evaluate", "2", "--name", "p")
    code, _, err = command(capsys, *TRAIN, *options, *where)
    assert (code, "disk is gone" in err) == (5, True)
    assert (tmp_path / "w/models/p/model.safetensors").is_file()


def test_a_policy_that_cannot_be_written_is_in_a_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("-w", tmp_path / "w")
    assert command(capsys, "init", tmp_path / "w")[0] == 0

    def full(self: Policy, folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Policy, "write_weights", full)
        code, _, err = command(capsys, *TRAIN, "--policy", "tiny", "--steps", "2", *where)
    assert (code, "No space left" in err) == (5, True)
    resume = re.search(r"resume with: assay rl --resume (run-\S+)", err)
    assert resume
    code, out, err = command(capsys, "rl", "--resume", resume[1], "--json", *where)
    assert code == 0, err
    assert json.loads(out)["resumed_at"] == 2


def test_the_saved_policy_is_compared_after_the_optimiser_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is alive while the saved copy is loaded: neither an optimiser nor the trained policy."""
    assert command(capsys, "init", tmp_path / "w")[0] == 0
    alive: list[list[object]] = []
    loaded = load_causal_lm

    def optimisers_and_policies() -> list[object]:
        gc.collect()
        return [item for item in gc.get_objects() if type(item) in (torch.optim.AdamW, Policy)]

    def observed(name: str, *arguments: object, **options: object) -> object:
        new = [item for item in optimisers_and_policies() if not any(item is old for old in before)]
        alive.append(new if str(name).endswith("/checked") else [])
        return loaded(name, *arguments, **options)  # type: ignore[arg-type]

    before = optimisers_and_policies()  # held, so that no new object takes the address of one of them
    monkeypatch.setattr(policies, "load_causal_lm", observed)
    code, _, err = command(
        capsys, *TRAIN, "--policy", "tiny", "--steps", "1", "--name", "checked", "-w", tmp_path / "w"
    )
    assert code == 0, err
    assert [type(item).__name__ for item in alive[-1]] == ["Policy"]  # the one that is being loaded
