"""What a recipe is refused for before its run has a folder, by settings and by where engines are."""

import pytest
import torch

from assay.errors import BackendError, BadInputError
from assay_policy_training.core.policy import Lora, Policy, with_adapter
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.training.parallel_checks import check_parts

CPU = torch.device("cpu")


def test_a_server_that_actors_start_elsewhere_is_not_looked_for_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_VLLM_PYTHON", raising=False)
    server = ["sampler.kind=vllm_server", "sampler.launch=true", "asynchrony.lag=1", "asynchrony.actors=2"]
    check_parts(load_recipe("grpo", server), "none", "ray://127.0.0.1:1")
    with pytest.raises(BadInputError, match="name the Python of vLLM"):
        check_parts(load_recipe("grpo", server), "none")
    in_process = load_recipe("grpo", ["asynchrony.lag=1", "asynchrony.actors=2", "sampler.kind=vllm"])
    with pytest.raises(BackendError, match="vLLM is not in this environment"):
        check_parts(in_process, "none", "ray://127.0.0.1:1")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["critic.optimizer=adafactor"], r"critic\.optimizer.*"),
        (["critic.lora.rank=2", "critic.lora.base_weights=4bit"], r"critic\.lora\.base_weights.*sharded"),
    ],
)
def test_a_critic_that_cannot_be_trained_so(settings: list[str], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        check_parts(load_recipe("ppo", settings), "fsdp")
    check_parts(load_recipe("ppo", ["critic.lora.rank=2", "critic.lora.base_weights=bfloat16"]), "fsdp")


@pytest.mark.parametrize(
    ("lora", "words"),
    [
        (Lora(2, targets="nothing"), r"lora\.targets.*nothing not found"),
        (Lora(-1), r"'?lora'?: .*positive integer"),
    ],
)
def test_an_adapter_that_peft_refuses(lora: Lora, words: str) -> None:
    model = Policy("tiny", device=CPU, max_prompt_tokens=8).model
    with pytest.raises(BadInputError, match=words):
        with_adapter(model, lora, CPU, autocast=False)
