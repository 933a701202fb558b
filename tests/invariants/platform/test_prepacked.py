"""A model whose weights are laid out for oneDNN gives the outputs of the model as it was."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_packing import build
from torch import nn

from assay.domain import Message
from assay.errors import BadInputError
from assay.models.attention.packing import PACKED, backbone, forward, forward_rows, group_of
from assay.models.attention.prepacked import PackedProducts, Prepacked, prepack
from assay.models.devices import has_fast_bfloat16
from assay.models.spec import Judging
from assay.score import Score
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64") or not torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
    reason="oneDNN's layout is used on x86 only, in a torch that has oneDNN",
)


@pytest.fixture(autouse=True)
def small_layers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.models.attention.prepacked.LEAST_WEIGHTS", 0)


GROUPS = [group_of([[5, 6, 7, 8], [5, 6, 9, 10, 11]]), group_of([[12, 13, 14]]), group_of([list(range(3, 60))])]


@pytest.mark.parametrize("kind", sorted(PACKED))
def test_outputs_are_the_same_for_every_known_architecture(kind: str) -> None:
    model = build(kind)
    linears = sum(type(layer) is nn.Linear for layer in backbone(model).modules())
    with torch.inference_mode():
        expected = forward_rows(model, GROUPS).last()
        assert prepack(model) == linears > 0
        for run in (forward, forward_rows):
            assert torch.allclose(run(model, GROUPS).last(), expected, atol=2e-6)
    assert not any(type(layer) is nn.Linear for layer in backbone(model).modules())
    assert type(model.score) is nn.Linear


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 70), st.integers(1, 130), st.integers(1, 40), st.booleans(), st.sampled_from(("float32", "bfloat16"))
)
def test_a_layer_of_any_shape(inputs: int, outputs: int, rows: int, bias: bool, dtype: str) -> None:
    kind = getattr(torch, dtype)
    assume(kind == torch.float32 or has_fast_bfloat16(torch.device("cpu")))
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(inputs)
        linear = nn.Linear(inputs, outputs, bias=bias).to(kind)
        x = torch.randn(2, rows, inputs).to(kind)
        expected = linear(x)
        found = Prepacked(linear)(x)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    tolerance = 1e-5 if kind == torch.float32 else 2e-2
    assert torch.allclose(found.float(), expected.float(), atol=tolerance, rtol=tolerance)


def test_small_layers_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """For them oneDNN's kernel for every new number of tokens costs more than it saves."""
    monkeypatch.setattr("assay.models.attention.prepacked.LEAST_WEIGHTS", 1 << 16)
    assert untouched(build("llama"))


def test_a_bfloat16_model_keeps_float32_between_its_products(tiny_reward_model: Path) -> None:
    """Scores nearer to float32's than those of the model in bfloat16 throughout, and of one format by name."""
    if not has_fast_bfloat16(torch.device("cpu")):
        pytest.skip("no bfloat16 products here")
    items = [ScoreItem((Message("user", f"Name metal {n}."),), "Gold. " * n) for n in range(1, 17)]

    def rewards(dtype: str, *, packed: bool = True) -> torch.Tensor:
        with pytest.MonkeyPatch.context() as patch:
            if not packed:
                patch.setattr("assay.models.attention.prepacked.OPERATIONS", ("_no_such_operation",))
            scorer = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", dtype=dtype))
            assert scorer.info.dtype == dtype
            assert scorer.model.dtype == (torch.float32 if packed else getattr(torch, dtype))
            together = scorer.rewards([scorer.read(item) for item in items])
            alone = scorer.rewards([scorer.read(items[7])])
        assert alone[0] == pytest.approx(together[7], abs=1e-5 if dtype == "float32" else 0.02)
        return torch.tensor(together)

    exact = rewards("float32")
    gap, wider = ((rewards("bfloat16", packed=packed) - exact).square().mean() for packed in (True, False))
    assert 0 < gap < 0.5 * wider


@pytest.mark.parametrize(("low", "adapted"), [(None, False), (torch.bfloat16, False), (None, True)])
def test_packed_products_follow_the_weights_and_leave_the_model_as_it_was(
    low: torch.dtype | None, adapted: bool
) -> None:
    from peft import LoraConfig, get_peft_model

    if low is not None and not has_fast_bfloat16(torch.device("cpu")):
        pytest.skip("no bfloat16 products here")
    model: Any = build("qwen2")
    if adapted:
        torch.manual_seed(0)
        adapters = LoraConfig(target_modules="all-linear", r=2, init_lora_weights=False)
        model = get_peft_model(model, adapters).eval()
    products = PackedProducts(model, low)
    assert products

    def both() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=low is not None):
            plain = forward_rows(model, GROUPS).last()
            with products:
                return plain, forward_rows(model, GROUPS).last()

    tolerance = 5e-4 if low is None else 0.05  # larger weights carry a difference of rounding further
    plain, packed = both()
    assert torch.allclose(packed, plain, atol=tolerance)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3)
    later, again = both()
    assert not torch.allclose(later, plain, atol=0.1)
    assert torch.allclose(again, later, atol=tolerance)
    assert not any("forward" in vars(layer) for layer in model.modules())
    forward(model, GROUPS).last().sum().backward()  # type: ignore[no-untyped-call]


def test_gradients_are_refused() -> None:
    model = build("llama")
    prepack(model)
    with pytest.raises(BadInputError, match="no gradients"):
        forward(model, GROUPS)


def untouched(model: Any) -> bool:
    before = [type(layer) for layer in model.modules()]
    with torch.inference_mode():
        expected = forward_rows(model, GROUPS).last()
        replaced = prepack(model)
        again = forward_rows(model, GROUPS).last()
    return replaced == 0 and [type(layer) for layer in model.modules()] == before and torch.equal(expected, again)


def test_adapted_models_stay_as_they_are_and_run() -> None:
    """Adapters keep plain linear layers inside and read their weights."""
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(build("llama"), LoraConfig(target_modules=["q_proj"], r=2))
    assert untouched(adapted)
    loaded_with_adapter = build("llama")
    loaded_with_adapter.add_adapter(LoraConfig(target_modules=["q_proj"], r=2))
    assert untouched(loaded_with_adapter)


def test_models_that_read_a_layers_weight_stay_as_they_are_and_run() -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("mamba", vocab_size=61, hidden_size=32, num_hidden_layers=2, state_size=8)
    assert untouched(AutoModelForCausalLM.from_config(config).eval())  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("missing", ["_reorder_linear_weight", "_linear_pointwise"])
def test_without_the_operations_nothing_is_replaced(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("llama")
    assert untouched(build("llama").to(torch.float16))
    monkeypatch.setattr("assay.models.attention.prepacked.OPERATIONS", (missing + "_of_another_torch",))
    assert untouched(model)


def test_engines_that_load_a_model_use_it_and_score_the_same(
    tiny_reward_model: Path, tiny_principle_base: Path
) -> None:
    said = ("Gold.", "Tin, or zinc.", "No." * 40)
    items = [ScoreItem((Message("user", "Name a metal."),), text) for text in said]
    asked = [replace(item, principle="It is short") for item in items]
    for engine, path, wanted in (
        (TransformersScorer, tiny_reward_model, items),
        (PrincipleScorer, tiny_principle_base, asked),
    ):
        loaded = engine.load(ModelConfig(str(path), device="cpu"))
        assert any(isinstance(layer, Prepacked) for layer in loaded.model.modules())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("assay.models.attention.prepacked.OPERATIONS", ("_no_such_operation",))
            plain = engine.load(ModelConfig(str(path), device="cpu"))
        assert not any(isinstance(layer, Prepacked) for layer in plain.model.modules())
        for one, other in zip(loaded.score(wanted), plain.score(wanted), strict=True):
            assert isinstance(one, Score)
            assert isinstance(other, Score)
            assert one.reward == pytest.approx(other.reward, abs=1e-5)


def test_a_judge_writes_the_same(tiny_principle_base: Path) -> None:
    """Greedy answers of a language model, with and without."""
    from assay_serving.generative.local import LocalWriter
    from assay_serving.generative.templates import PAIRWISE

    judging = Judging(PAIRWISE.name, PAIRWISE.hash, max_new_tokens=8)
    loaded, _ = LocalWriter.load(
        ModelConfig(str(tiny_principle_base), device="cpu"),
        judging=judging,
    )
    assert any(isinstance(layer, Prepacked) for layer in loaded.model.modules())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assay.models.attention.prepacked.OPERATIONS", ("_no_such_operation",))
        plain, _ = LocalWriter.load(
            ModelConfig(str(tiny_principle_base), device="cpu"),
            judging=judging,
        )
    ids = torch.tensor([list(range(5, 40))])
    options = {"max_new_tokens": 8, "do_sample": False}
    assert torch.equal(loaded.model.generate(ids, **options), plain.model.generate(ids, **options))
