"""Frozen weights kept in bfloat16 change what they take, and no number: not under autocast, outside it, or merged."""

from typing import Any

import pytest
import torch

from assay.domain import Message, PreferencePair
from assay.models.chat.renderer import Renderer
from assay.models.frozen_weights import Bfloat16Linear, keep_frozen
from assay.models.loading import load_causal_lm, load_tokenizer
from assay.models.published_weights import merged_weights, round_weights
from assay_policy_training.core import policy as policy_module
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.model import trainable_model
from assay_rm_training.model.trainable_model import load_trainable
from assay_rm_training.training_config import LoraConfig, TrainingConfig

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def rounded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """`tiny` as published models are: stored in bfloat16."""
    folder = tmp_path_factory.mktemp("rounded")
    tokenizer = load_tokenizer("tiny")
    load_causal_lm("tiny", tokenizer, dtype=torch.bfloat16, device=CPU).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def policy(base: str, *, autocast: bool = True, lora: bool = True) -> Policy:
    torch.manual_seed(3)  # of new adapters
    made = Policy(
        base,
        device=CPU,
        max_prompt_tokens=64,
        autocast=autocast,
        lora=Lora(rank=4, alpha=8) if lora else None,
        with_reference=True,
    )
    for name, parameter in made.trainable().items():
        if "lora_B" in name:  # else the adapter adds nothing
            torch.nn.init.normal_(parameter, std=0.05)
    return made


@pytest.mark.parametrize("lora", [True, False])
def test_policies_have_the_same_numbers(rounded: str, lora: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = policy(rounded, lora=lora)
    monkeypatch.setattr(policy_module, "keep_frozen", lambda *_: 0)
    whole = policy(rounded, lora=lora)
    frozen: Any = kept.model if lora else kept._reference
    layers = [module for module in frozen.modules() if isinstance(module, Bfloat16Linear)]
    assert len(layers) == 7 * kept.model.config.num_hidden_layers

    items = [PromptItem((Message("user", text),)) for text in ("hi", "a longer prompt")]
    batch = TransformersSampler(kept, Sampling(max_new_tokens=12)).rollout(items, 2, seed=1, version=0)
    again = TransformersSampler(whole, Sampling(max_new_tokens=12)).rollout(items, 2, seed=1, version=0)
    assert torch.equal(batch.tokens, again.tokens)
    assert torch.equal(batch.logp_mu, again.logp_mu)
    for one in (kept, whole):
        (one.scores(batch, temperature=1.0).logp * batch.mask).sum().backward()  # type: ignore[no-untyped-call]
    gradients, expected_gradients = (
        {name: p.grad for name, p in one.trainable().items() if p.grad is not None} for one in (kept, whole)
    )
    assert gradients.keys() == expected_gradients.keys()
    assert all(torch.equal(gradients[name], expected) for name, expected in expected_gradients.items())
    assert torch.equal(kept.reference_logp(batch, temperature=1.0), whole.reference_logp(batch, temperature=1.0))
    assert torch.equal(kept.float32_logp(batch), whole.float32_logp(batch))
    if lora:
        merged, expected = (dict(merged_weights(one.model)) for one in (kept, whole))
        assert merged.keys() == expected.keys()
        assert all(torch.equal(merged[name], expected[name]) for name in expected)


def test_what_bfloat16_cannot_hold_stays(rounded: str) -> None:
    assert policy("tiny").model.get_base_model().model.layers[0].mlp.up_proj.weight.dtype == torch.float32
    assert not any(isinstance(module, Bfloat16Linear) for module in policy(rounded, autocast=False).model.modules())
    trained = load_causal_lm(rounded, load_tokenizer(rounded), dtype=torch.float32, device=CPU)
    assert keep_frozen(trained) == 0  # nothing is frozen
    before = sum(p.nbytes for p in trained.requires_grad_(False).parameters())
    embeddings = next(trained.get_input_embeddings().parameters()).nbytes
    saved = keep_frozen(trained)
    assert saved == before - sum(p.nbytes for p in trained.parameters())
    assert 0.45 * (before - embeddings) < saved < 0.5 * before


def test_reward_models_have_the_same_loss_and_merge_to_the_same_weights(
    rounded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainingConfig(
        base=rounded, lora=LoraConfig(rank=4), freeze_layers=0, dtype="bfloat16", device="cpu", head_init="normal"
    )
    losses, merged = [], []
    for keep in (True, False):
        if not keep:
            monkeypatch.setattr(trainable_model, "keep_frozen", lambda *_: 0)
        trainable = load_trainable(config, CPU)
        torch.manual_seed(5)
        for name, parameter in trainable.trainable().items():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.05)
        frozen = [module for module in trainable.model.modules() if isinstance(module, Bfloat16Linear)]
        assert bool(frozen) == keep
        method = BradleyTerry()
        pairs = [PreferencePair((Message("user", "hi"),), f"a good answer {n}", f"bad {n}") for n in range(3)]
        items = method.encode(pairs, Renderer(trainable.tokenizer, max_length=128)).items
        task = method.task(trainable, config)
        losses.append(task.measure(trainable, items).losses.detach())
        weights = dict(merged_weights(trainable.model, dtype=torch.float32))
        merged.append(weights)
    assert torch.equal(losses[0], losses[1])
    assert all(torch.equal(merged[0][name], value) for name, value in merged[1].items())


def test_rounding_is_of_all_that_is_written() -> None:
    """A router's bias is a buffer; the file has it in the file's format."""
    model = load_causal_lm("tiny", load_tokenizer("tiny"), dtype=torch.float32, device=CPU)
    model.register_buffer("bias", torch.tensor([1 / 3]))
    model.register_buffer("table", torch.tensor([1 / 3]), persistent=False)
    round_weights(model, torch.bfloat16)
    written = dict(merged_weights(model, dtype=torch.bfloat16))
    state = model.state_dict()
    assert "bias" in written
    assert all(torch.equal(values.float(), state[name]) for name, values in written.items())
    assert float(model.get_buffer("table")) == pytest.approx(1 / 3, abs=1e-7)
