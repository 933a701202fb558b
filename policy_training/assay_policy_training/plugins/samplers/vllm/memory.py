"""What of a GPU an engine beside the trainer may take, from what is there when it starts.

Covers: the engine's needs from the policy's configuration, what training keeps while the engine generates. Leaves out:
the rule (`assay.planning.engine_memory`), processors, whose cache has a size of its own.
"""

import torch

from assay.models.attention.packing import unwrapped
from assay.models.four_bit import FourBitLinear
from assay.planning.engine_memory import EngineMemory, engine_share
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling


def engine_memory(policy: Policy, tokens: int, dtype: str) -> EngineMemory:
    """Of rows of so many tokens, prompt and answer."""
    model = unwrapped(policy.model)
    text = model.config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    packed = sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, FourBitLinear))
    return EngineMemory.of(
        # a byte of 4-bit weights is two
        parameters=packed + sum(p.numel() for name, p in model.named_parameters() if ".lora_" not in name),
        layers=text.num_hidden_layers,
        heads=heads,
        head_size=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
        tokens=tokens,
        itemsize=getattr(torch, dtype).itemsize,
    )


def memory_share(policy: Policy, sampling: Sampling, tokens: int, dtype: str, *, sleeps: bool) -> float:
    """`gpu_memory_utilization` of an engine on the policy's GPU, for the rows of a step or as many as fit.

    `sleeps`: it gives its memory back for the update; else gradients, too, are kept for good, and activations take what
    is left: an estimate, which `sampler.options` replaces. Raises BadInputError where nothing fits.
    """
    free, total = torch.cuda.mem_get_info(policy.device)
    free += torch.cuda.memory_reserved(policy.device) - torch.cuda.memory_allocated(policy.device)
    trained = [getattr(p, "_local_tensor", p) for p in policy.trainable().values()]
    reserved = policy.moment_bytes * sum(p.numel() for p in trained)
    if not sleeps:
        reserved += sum(p.nbytes for p in trained) + (free - reserved) // 2
    rows = -(-sampling.prompts_per_step * sampling.group_size // policy.parallel.world)
    return engine_share(
        engine_memory(policy, tokens, dtype), rows, total=total, free=free, reserved=reserved, field="sampler.kind"
    )
