"""Runs inside a vLLM environment, with Assay's sources on PYTHONPATH: what rollouts of vLLM in process are worth.

python vllm_sampler_child.py POLICY_FOLDER REPLY.json WHAT; asked by `test_vllm_sampler.py`. WHAT: weights,
adapter, bfloat16 or processes.
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
from assay.models.parallelism.distributed import torch_process_group
from assay.models.parallelism.strategy import parallel_strategy
from assay_policy_training.core.metrics import Stopwatch
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.samplers.vllm.in_process import Vllm
from assay_policy_training.plugins.samplers.vllm.policy_engine import VllmSampler
from assay_policy_training.plugins.samplers.vllm.worker import PolicyWorker
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.collector import RolloutCollector, process_share

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


def processes(folder: str, reply: Path) -> None:
    """In each of torchrun's processes: a share of four prompts from its own engine, before and after an update."""
    with torch_process_group() as group:
        device = torch.device("cpu")
        policy = Policy(folder, device=device, max_prompt_tokens=96)
        policy.divide(parallel_strategy("ddp", group, device))
        recipe = replace(
            load_recipe("grpo"),
            sampler=Vllm(options={"kv_cache_memory_bytes": 64 << 20, "max_num_seqs": 16}),
            sampling=replace(SAMPLING, prompts_per_step=4, group_size=2),
        )
        prompts = ShuffledPrompts([*ITEMS, PromptItem((Message("user", "so"),))], seed=0)
        collector = RolloutCollector(recipe, policy, prompts, [])
        rows, gaps = [], []
        for step in (1, 2):
            request = collector._first_request(step)
            share = process_share(request, group.rank, group.world)
            batch = collector._generate(request, step, Stopwatch()).batch
            rows.append(group.gather(len(share.items)))
            with torch.no_grad():
                scores = policy.scores(
                    batch, temperature=SAMPLING.temperature, prune_log_ratio=SAMPLING.prune_log_ratio
                )
            gaps.append(float((scores.logp - batch.logp_mu)[batch.mask].abs().max()))
            move(list(policy.trainable().values()), step)
        found = {"rows": rows, "gaps": gaps, "prompts": len({item.prompt for item in batch.items})}
        if group.rank == 0:
            reply.write_text(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[3] == "processes":
        processes(sys.argv[1], Path(sys.argv[2]))
    else:
        main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
