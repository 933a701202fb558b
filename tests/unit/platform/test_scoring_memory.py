"""Room for a model to score with: weights and a full pass against free memory, and what would fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from assay.errors import BackendError
from assay.planning import scoring_memory
from assay.planning.scoring_memory import check_room, position_bytes, weight_bytes

WEIGHTS = 3_000_000  #: numbers
POSITION = 100 + 2 * 300  #: numbers of the widest part


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_file({"weight": torch.zeros(WEIGHTS, dtype=torch.bfloat16)}, tmp_path / "model.safetensors")
    config = {"text_config": {"hidden_size": 100, "intermediate_size": 300}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(scoring_memory, "_machine_free", lambda: size)
    monkeypatch.setattr(scoring_memory, "_container_free", lambda: None)


def test_the_sizes_are_those_of_the_files(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        assert weight_bytes(checkpoint, dtype) == WEIGHTS * size
        assert position_bytes(checkpoint, dtype) == POSITION * size
    assert position_bytes(tmp_path_factory.mktemp("none"), "float32") == 0


def test_copies_in_other_layouts_do_not_count_and_quantized_weights_stay_so(checkpoint: Path) -> None:
    packed = {"packed": torch.zeros(1000, dtype=torch.uint8), "scale": torch.zeros(10, dtype=torch.float16)}
    save_file(packed, checkpoint / "model-2.safetensors")
    save_file({"weight": torch.zeros(WEIGHTS)}, checkpoint / "consolidated.safetensors")
    assert weight_bytes(checkpoint, "float32") == 4 * WEIGHTS
    files = {"weight": "model.safetensors", "packed": "model-2.safetensors", "scale": "model-2.safetensors"}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    assert weight_bytes(checkpoint, "float32") == 4 * WEIGHTS + 1000 + 40
    (checkpoint / "model.safetensors.index.json").write_text("damaged")
    assert weight_bytes(checkpoint, "float32") == 4 * WEIGHTS


def test_what_does_not_fit_says_what_would(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(budget: int | None = None, dtype: str = "float32") -> str:
        with pytest.raises(BackendError) as error:
            check_room("rm", str(checkpoint), dtype=dtype, device="cpu", token_budget=budget)
        return str(error.value)

    weights, position = WEIGHTS * 4, POSITION * 4
    free(monkeypatch, weights + 1000 * position)
    check_room("rm", str(checkpoint), dtype="float32", device="cpu", token_budget=1000)
    assert "a pass of 1001 tokens at least" in refused(1001)
    assert "less takes: dtype bfloat16 (7.1 MiB), or a token budget of 1000; unload another" in refused(1001)
    assert "a pass of 8192 tokens" in refused()
    free(monkeypatch, weights // 2 + 8192 * position // 2)
    check_room("rm", str(checkpoint), dtype="bfloat16", device="cpu")
    assert "dtype bfloat16" in refused()
    free(monkeypatch, weights // 4)
    assert "less takes" not in refused()
    assert "are free; unload another model first, or choose a smaller one" in refused(dtype="bfloat16")
