"""Runs inside a vLLM environment, with Assay's sources on PYTHONPATH: what rollouts of vLLM in process are worth.

python vllm_sampler_child.py POLICY_FOLDER REPLY.json weights|adapter|bfloat16; asked by `test_vllm_sampler.py`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from assay.domain import Message
from assay.errors import BackendError
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.plugins.samplers.vllm.in_process import Vllm
from assay_policy_training.plugins.samplers.vllm.policy_engine import VllmSampler
from assay_policy_training.plugins.samplers.vllm.worker import PolicyWorker

SAMPLING = Sampling(max_new_tokens=12, max_prompt_tokens=96, temperature=0.8, prune_log_ratio=-6.0)
ITEMS = [PromptItem((Message("user", text),)) for text in ("hi", "a rather longer prompt than the others", "and?")]


def gap(policy: Policy, sampler: VllmSampler, version: int) -> float:
    """Largest difference between the log-probs of fresh rollouts and the policy's."""
    batch = sampler.rollout(ITEMS, 3, seed=version, version=version)
    with torch.no_grad():
        scores = policy.scores(batch, temperature=SAMPLING.temperature, prune_log_ratio=SAMPLING.prune_log_ratio)
    return float((scores.logp - batch.logp_mu)[batch.mask].abs().max())


def stopped_as_ours(policy: Policy, sampler: VllmSampler) -> bool:
    """Whether rows with stop texts are those without, up to the token that completes one; some must be shorter."""
    free = sampler.rollout(ITEMS, 4, seed=5, version=0)
    texts = tuple(sorted({letter for response in free.responses for letter in response if letter.isalnum()})[:5])
    stops = StopStrings(policy.tokenizer, texts)
    sampler.sampling = replace(SAMPLING, stop=texts)
    batch = sampler.rollout(ITEMS, 4, seed=5, version=0)
    sampler.sampling = SAMPLING
    rows = [free.tokens[row][free.mask[row]].tolist() for row in range(len(free))]
    stopped = [batch.tokens[row][batch.mask[row]].tolist() for row in range(len(batch))]
    return stopped == [row[: stops.length(row)] for row in rows] != rows


@torch.no_grad()
def move(weights: list[torch.nn.Parameter], seed: int) -> None:
    """As an update would, but more."""
    generator = torch.Generator().manual_seed(seed)
    for weight in weights:
        weight.add_(torch.randn(weight.shape, generator=generator) * 0.05)


def main(folder: str, reply: Path, what: str) -> None:
    lora = Lora(rank=4) if what == "adapter" else None
    half = what == "bfloat16"
    policy = Policy(folder, device=torch.device("cpu"), max_prompt_tokens=96, lora=lora, autocast=half)
    options = {"kv_cache_memory_bytes": 64 << 20, "max_num_seqs": 16}
    sampler = Vllm(options=options).open(policy, SAMPLING)
    gaps: dict[str, Any] = {"before": gap(policy, sampler, 0), "tolerance": sampler.tolerance}
    gaps["stopped"] = stopped_as_ours(policy, sampler)
    trained = {name: weight.clone() for name, weight in policy.trainable().items()}
    for number in (1, 2):
        move(list(policy.trainable().values()), number)
        gaps[f"stale_{number}"] = gap(policy, sampler, number)
        kept = {name: weight.clone() for name, weight in policy.trainable().items()}
        sampler.publish(policy, number)
        gaps[f"checked_{number}"], gaps[f"after_{number}"] = sampler.difference, gap(policy, sampler, number)
        changed = [name for name, weight in policy.trainable().items() if not torch.equal(weight, kept[name])]
        gaps["changed"] = gaps.get("changed", []) + changed  # by the engine: it must not touch them
    if what == "weights":
        rebuild, PolicyWorker.rebuild_head = PolicyWorker.rebuild_head, lambda self, model: {"lm_head.weight"}  # type: ignore
        move([policy.model.get_input_embeddings().weight], 3)
        try:
            sampler.publish(policy, 3)
            gaps["plain"] = "published"
        except BackendError as error:
            gaps["plain"] = str(error)
        PolicyWorker.rebuild_head = rebuild  # type: ignore
    with torch.no_grad():
        for name, weight in policy.trainable().items():
            weight.copy_(trained[name])
    sampler.release()  # which a processor's engine does not need
    sampler.publish(policy, 4)
    gaps["again"] = gap(policy, sampler, 4)
    reply.write_text(json.dumps(gaps))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
