"""Forward passes on fake tensors of a GPU: no mixed devices, no reads in a pass, products in bfloat16."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHILD = Path(__file__).resolve().parents[2] / "support" / "fake_cuda_child.py"
PYTHON = "ASSAY_CUDA_TORCH_PYTHON"
PATHS = ("scoring", "bt", "dpo", "principle", "log-probs", "decoding")


@pytest.mark.slow
@pytest.mark.skipif(PYTHON not in os.environ, reason=f"needs a torch with CUDA: make cuda-env, and {PYTHON} names it")
def test_passes_run_on_fake_gpu_tensors(tiny_principle_base: Path) -> None:
    run = subprocess.run(
        [os.environ[PYTHON], CHILD, tiny_principle_base, *PATHS], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    outcomes: dict[str, dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    assert set(outcomes) == set(PATHS)
    for name, outcome in outcomes.items():
        assert "error" not in outcome, f"{name}: {outcome['error']}"
        float32 = outcome["flops"].get("float32", 0) / sum(outcome["flops"].values())
        # Reward heads are float32. Prompts are read by attention in float32 where torch sees no GPU.
        assert float32 < {"scoring": 1e-3, "decoding": 0.15, "principle": 0.1}.get(name, 1e-4), name
        assert name == "decoding" or not outcome["reads"], name
