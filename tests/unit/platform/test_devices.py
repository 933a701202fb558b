"""Number formats that a device lacks, exact products beside TF32, what a too old torch is told, reading at once."""

import logging

import pytest
import torch
from torch.torch_version import TorchVersion

from assay.errors import BadInputError
from assay.models import devices
from assay.models.devices import float32_products, pick_dtype, read_values
from assay_policy_training.core.config import Optimisation

GPU, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.fixture
def old_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch says of a GPU before Ampere."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")


@pytest.mark.usefixtures("old_gpu")
def test_a_format_that_the_device_lacks_is_refused_by_name() -> None:
    assert pick_dtype(GPU) == torch.float32
    with pytest.raises(BadInputError, match="Tesla T4 has no bfloat16") as refused:
        pick_dtype(GPU, "bfloat16")
    assert refused.value.field == "dtype"
    assert not Optimisation().autocasts(GPU)
    with pytest.raises(BadInputError, match="Tesla T4") as refused:
        Optimisation(autocast=True).autocasts(GPU)
    assert refused.value.field == "optimisation.autocast"
    with pytest.raises(BadInputError, match="float16"):
        pick_dtype(CPU, "float16")
    assert pick_dtype(GPU, "float16") == torch.float16
    with pytest.raises(BadInputError, match="unknown number format 'fp8'; one of auto, float32"):
        pick_dtype(GPU, "fp8")


def test_training_may_be_tf32_and_what_is_compared_in_it_is_exact() -> None:
    before = torch.get_float32_matmul_precision()
    with float32_products(GPU, "high"):
        assert torch.get_float32_matmul_precision() == "high"
        with float32_products(GPU, "highest"):
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before
    with float32_products(CPU, "high"):
        assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(("version", "lines"), [("2.10.1+cu128", 1), ("2.11.0", 0)], ids=["old", "new"])
def test_a_torch_too_old_for_a_gpu_is_named_once(
    version: str, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    devices._check_build.cache_clear()
    with caplog.at_level(logging.WARNING):
        devices._check_build()
        devices._check_build()
    assert len(caplog.records) == lines
    assert not lines or "need torch 2.11" in caplog.text
    devices._check_build.cache_clear()


def test_tensors_are_read_in_their_order_whatever_their_formats() -> None:
    tensors = [torch.tensor([1, 2]), torch.tensor(0.1), torch.zeros(0), torch.tensor([[True], [False]])]
    assert read_values(tensors) == [[1.0, 2.0], [float(torch.tensor(0.1))], [], [1.0, 0.0]]
    assert read_values([]) == []


def test_emulated_products_of_a_processor_are_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    devices._check_processor.cache_clear()
    with caplog.at_level("WARNING"):
        for _ in range(2):
            assert pick_dtype(CPU, "bfloat16") is torch.bfloat16
    assert [record.getMessage() for record in caplog.records] == [
        "this processor has no bfloat16 products: they are emulated, slower than those in float32"
    ]
    devices._check_processor.cache_clear()
