"""A policy and its critic with an optimiser on the host, 4-bit weights under adapters, activations on the host."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.domain import Message
from assay.errors import BadInputError
from assay.models import memory_options
from assay.models.four_bit import FourBitLinear
from assay.models.parallelism.strategy import SingleProcess
from assay_policy_training.core.policy import Lora, Policy, reload_difference
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.training.loop import PolicyLoop

CPU = torch.device("cpu")
ITEMS = [PromptItem((Message("user", f"{'Please. ' * (n % 3)}Name colour {n}."),)) for n in range(4)]
SMALL = ["sampling.prompts_per_step=2", "sampling.group_size=4", "sampling.max_new_tokens=8"]
SMALL += ["sampling.max_prompt_tokens=64", "optimisation.lr=1e-3", "optimisation.micro_batch_rows=3"]


class Vowels:
    """S3: the share of vowels in a response; missing for an empty one."""

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        shares = [sum(c in "aeiou" for c in text) / len(text) if text else torch.nan for text in responses]
        return Rewards(
            {"vowels": torch.tensor(shares, dtype=torch.float64)}, [() for _ in shares], [{} for _ in shares]
        )


def loop(folder: Path, recipe: str, *settings: str) -> PolicyLoop:
    chosen = load_recipe(recipe, [*SMALL, *settings])
    torch.manual_seed(3)  # of new adapters
    policy = Policy(
        "tiny",
        device=CPU,
        max_prompt_tokens=64,
        autocast=bool(chosen.optimisation.autocast),
        gradient_checkpointing=chosen.optimisation.gradient_checkpointing,
        offload_activations=chosen.optimisation.offload_activations,
        lora=chosen.lora,
        with_reference=chosen.needs_reference,
    )
    return PolicyLoop(chosen, policy, ShuffledPrompts(ITEMS, seed=0), [Vowels()], folder)


def trained(folder: Path, *settings: str, recipe: str = "grpo", resumed: bool = False) -> dict[str, torch.Tensor]:
    folder.mkdir()
    if resumed:
        with closing(loop(folder, recipe, *settings)) as first:
            first.train(1)
            first.save_checkpoint()
    trainer = loop(folder, recipe, *settings)
    assert trainer.resume() == int(resumed)
    with closing(trainer):
        trainer.train(3)
    critic: Any = trainer.critic
    weights = trainer.policy.trainable()
    if critic is not None:
        weights |= {f"critic.{name}": p for name, p in critic.parameters.items()}
    return {name: p.detach() for name, p in weights.items()}


@pytest.mark.slow
def test_on_the_host_and_resumed_it_is_the_same_training(tmp_path: Path) -> None:
    autocast = ("optimisation.autocast=true",)
    host: tuple[str, ...] = (*autocast, "optimisation.optimizer=adamw_offloaded", "critic.optimizer=adamw_offloaded")
    host += ("optimisation.gradient_checkpointing=true", "optimisation.offload_activations=true")
    expected = trained(tmp_path / "whole", *autocast, recipe="ppo")
    for resumed in (False, True):
        weights = trained(tmp_path / str(resumed), *host, recipe="ppo", resumed=resumed)
        assert weights.keys() == expected.keys()
        assert all(torch.equal(weights[name], value) for name, value in expected.items())


def test_4_bit_weights_are_merged_as_they_were_trained(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes", reason=memory_options.INSTALL)
    adapters = ("lora.rank=4", "lora.base_weights=4bit", "optimisation.lr=1e-2")
    with closing(loop(tmp_path, "grpo", *adapters)) as trainer:
        trainer.train(2)
        policy = trainer.policy
    layers = [module for module in policy.model.modules() if isinstance(module, FourBitLinear)]
    assert len(layers) == 7 * policy.model.config.num_hidden_layers
    probe = TransformersSampler(policy, Sampling(max_new_tokens=8)).rollout(ITEMS[:2], 2, seed=1, version=0)
    policy.save(tmp_path / "saved")
    assert reload_difference(tmp_path / "saved", probe, policy.float32_logp(probe), CPU) < 1e-5


def test_4_bit_weights_are_not_divided() -> None:
    pytest.importorskip("bitsandbytes", reason=memory_options.INSTALL)

    class Divided(SingleProcess):
        name = "fsdp"

    policy = Policy("tiny", device=CPU, max_prompt_tokens=64, lora=Lora(4, base_weights="4bit"))
    with pytest.raises(BadInputError, match="4-bit weights cannot be sharded"):
        policy.divide(Divided())
