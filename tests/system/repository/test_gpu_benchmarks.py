"""benchmarks/gpu: the code of ours that they time, and the peers' that need no environment, run on the tiny model."""

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
sys.path += [str(BENCHMARKS), str(BENCHMARKS / "gpu")]


@pytest.mark.parametrize("script", ["reward_training", "reward_scoring", "grpo_steps", "decoding_tokens"])
def test_a_dry_run_times_ours_and_names_no_ratio(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = importlib.import_module(script).main(["--dry-run"])
    assert all(row["seconds"] > 0 and row["tokens"] > 0 for of_one in rows.values() for row in of_one)
    assert "assay" in rows
    assert "/" not in "".join(line.split(":")[0] for line in capsys.readouterr().out.splitlines())


def test_without_a_gpu_it_says_what_it_needs() -> None:
    with pytest.raises(SystemExit, match="needs a GPU and --model"):
        importlib.import_module("grpo_steps").main([])
