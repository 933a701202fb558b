"""A model whose logits are more than its head's product is refused, in every number format; no other is."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, CohereConfig, GraniteConfig, LlamaConfig, PretrainedConfig

from assay.errors import BadInputError
from assay_policy_training.core.logprobs import check_head
from assay_policy_training.core.policy import Policy

SIZES: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 64,
    "initializer_range": 1.0,  # so that logits are of some size
}
CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("config", "refused"),
    [
        (LlamaConfig(**SIZES), False),
        (GraniteConfig(**SIZES, logits_scaling=4.0), True),
        (CohereConfig(**SIZES, logit_scale=0.1), True),
    ],
    ids=["llama", "granite", "cohere"],
)
def test_scaled_logits_are_refused(config: PretrainedConfig, refused: bool, dtype: torch.dtype) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config).eval().to(dtype)  # type: ignore[no-untyped-call]
    if refused:
        with pytest.raises(BadInputError, match="computes its logits in a way this trainer does not reproduce"):
            check_head(model, CPU)
    else:
        check_head(model, CPU)


@pytest.mark.slow
def test_a_real_model_in_bfloat16_is_not_refused_for_its_rounding() -> None:
    assert Policy("smollm2", device=CPU, max_prompt_tokens=64, dtype=torch.bfloat16).model.dtype == torch.bfloat16
