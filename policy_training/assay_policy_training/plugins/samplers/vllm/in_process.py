"""Rollouts from vLLM in this process: on a GPU beside the trainer, or in vLLM's own environment on a CPU.

Covers: starting it with what rollouts need, its share of the GPU, weights handed over tensor by tensor, sleep between
rollouts, an engine for each process of torchrun. Leaves out: what is the same behind a server (`policy_engine`).
vLLM's pins clash with Assay's, so it has a separate environment, into which Assay goes without its dependencies
(docs/policy-training/samplers.md).
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from typing import Annotated, Any

import torch
from annotated_types import Gt

from assay.errors import BackendError, BadInputError
from assay.models.devices import free_memory
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.samplers.vllm.completions import PublishedWeights, VllmCompletion
from assay_policy_training.plugins.samplers.vllm.installed import require_installed, require_supported
from assay_policy_training.plugins.samplers.vllm.launch import BATCHED_TOKENS
from assay_policy_training.plugins.samplers.vllm.memory import memory_share
from assay_policy_training.plugins.samplers.vllm.policy_engine import (
    EXTENSION,
    LOGPROBS_MODE,
    VllmSampler,
    adapter_rank,
    check_dtype,
    engine_dtype,
    needed_length,
    require_complete,
    sends_adapter,
)
from assay_policy_training.plugins.samplers.vllm.worker import ADAPTER
from assay_serving.vllm.in_process import CHILDREN, InstalledVllm, checked_options, first_line, take_process

log = logging.getLogger(__name__)


class InProcessEngine:
    """See `PolicyEngine`. `llm`: a started `vllm.LLM` with the worker extension, in this very process. `sleep_level`:
    1 keeps its weights in main memory, 2 forgets them; 0: it does not sleep."""

    where, at_once = "vLLM in this process", 1

    def __init__(self, llm: Any, max_length: int, *, sleep_level: int = 0) -> None:
        self._llm = llm
        self.max_length = max_length
        self.sleep_level = sleep_level
        self._asleep = False
        self._adapter: Any = None  #: LoRARequest, once there is one

    def complete(
        self, rows: Sequence[Sequence[int]], n: int, fields: Mapping[str, Any], seeds: Sequence[int]
    ) -> Iterator[list[VllmCompletion]]:
        """See `PolicyEngine.complete`: all rows in one call, so that vLLM plans them together."""
        params = import_module("vllm").SamplingParams
        detokenize = "stop" in fields  # which it finds in the text
        requests = [params(**fields, n=n, seed=seed, detokenize=detokenize) for seed in seeds]
        prompts = [{"prompt_token_ids": list(row)} for row in rows]
        try:
            outputs = self._llm.generate(prompts, requests, use_tqdm=False, lora_request=self._adapter)
        except Exception as error:  # its errors have no common base in all versions
            raise BackendError(f"vLLM failed: {first_line(error)}") from error
        for output in outputs:
            yield [
                _completion(completion)
                for completion in sorted(output.outputs, key=lambda completion: int(completion.index))
            ]

    def confirm(self) -> None:
        """It is of this process."""

    def load(self, weights: PublishedWeights) -> None:
        """See `PolicyEngine.load`. The cache of keys and values is given memory last: weights need some to come."""
        try:
            self._wake("weights")
            self._llm.collective_rpc("begin_policy", kwargs={"adapter": weights.adapter})
            self._llm.collective_rpc("take_weights", kwargs={"weights": iter(weights.tensors)})
            reports = self._llm.collective_rpc("end_policy", kwargs={"key": weights.key})
            free_memory(torch.device("cuda" if self.sleep_level else "cpu"))
            self._wake("kv_cache")
            self._asleep = False
            forgotten = self._llm.reset_prefix_cache()
        except Exception as error:
            raise BackendError(f"vLLM does not take the weights: {first_line(error)}") from error
        require_complete(self.where, reports)
        if forgotten is False:
            raise BackendError("vLLM does not forget its prefix cache")
        if weights.adapter is not None:
            self._adapter = import_module("vllm.lora.request").LoRARequest("policy", ADAPTER, "in memory")

    def sleep(self) -> None:
        """See `PolicyEngine.sleep`."""
        if self.sleep_level and not self._asleep:
            self._llm.sleep(self.sleep_level)
            self._asleep = True

    def _wake(self, part: str) -> None:
        if self._asleep:
            free_memory(torch.device("cuda"))  # what torch keeps of the update's tensors
            self._llm.wake_up(tags=[part])


def _completion(output: Any) -> VllmCompletion:
    ids = tuple(int(token) for token in output.token_ids)
    return VllmCompletion(ids, tuple(float(at[token].logprob) for token, at in zip(ids, output.logprobs, strict=True)))


class Vllm(RecipeSettings, section="sampler"):
    """S2 by vLLM in this process. `dtype`: auto is that of the trainer's products. `adapters`: with LoRA the engine
    keeps the base and gets the adapter alone; else merged weights. `sleep`: on a GPU, between rollouts. `tolerance`: of
    the check after each publishing, nats; default: the format's. `options`: of `vllm.LLM`, as `--engine-option` of
    serving takes them."""

    dtype: str = "auto"
    max_model_len: int | None = None  #: default: what the recipe's numbers need
    tolerance: Annotated[float | None, Gt(0)] = None
    adapters: bool = True
    sleep: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """See `ChecksSampler`."""
        require_installed()
        check_dtype(self.dtype)
        if checked_options(self.options).get("tensor_parallel_size", 1) != 1:
            raise BadInputError(
                "in this process vLLM has the trainer's GPU alone: sampler.kind=vllm_server",
                field="sampler.options.tensor_parallel_size",
            )

    def open(self, policy: Policy, sampling: Sampling) -> VllmSampler:
        """Raises as `check`, BackendError where vLLM cannot run the policy, BadInputError where the GPU has no room for
        it."""
        self.check()
        chosen, dtype = dict(self.options), engine_dtype(policy, self.dtype)
        longest = self.max_model_len or needed_length(policy, sampling)
        os.environ[CHILDREN] = "0"  # weights are handed over as they lie in memory
        vllm = InstalledVllm(", whose Python $ASSAY_VLLM_PYTHON names (sampler.kind=vllm_server)")
        require_supported(vllm.version, "in this environment")
        adapters, sleeps = sends_adapter(policy, self.adapters), self.sleep and vllm.device == "cuda"
        arguments: dict[str, Any] = {
            "generation_config": "vllm",
            "logprobs_mode": LOGPROBS_MODE,
            "worker_extension_cls": EXTENSION,
            **vllm.flags.generating,
        }
        if adapters and policy.lora is not None:
            arguments |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": adapter_rank(policy.lora.rank)}
        if vllm.device == "cpu":
            arguments["enable_chunked_prefill"] = False  # see `launch.BATCHED_TOKENS`
            arguments["max_num_batched_tokens"] = max(BATCHED_TOKENS, longest)
        else:
            arguments["enable_sleep_mode"] = sleeps
            if not chosen.keys() & {"gpu_memory_utilization", "kv_cache_memory_bytes"}:
                share = memory_share(policy, sampling, longest, dtype, sleeps=sleeps)
                arguments["gpu_memory_utilization"] = share
                log.info("vLLM takes %.1f %% of %s", 100 * share, policy.device)
            free_memory(policy.device)
        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        if several:
            arguments["distributed_executor_backend"] = "external_launcher"  # each process has an engine of its own
        elif policy.device.index:
            raise BackendError(f"vLLM runs on the first GPU, not on {policy.device}: CUDA_VISIBLE_DEVICES")
        take_process(policy.name)
        with torch.random.fork_rng():  # it seeds this process
            llm = vllm.start(policy.name, dtype=dtype, max_length=longest, **(arguments | chosen))
        if several and hasattr(core := llm.llm_engine.engine_core, "_finalizer"):
            core._finalizer.detach()  # vLLM's end would be that of the trainer's process group, too
        engine = InProcessEngine(llm, longest, sleep_level=(1 if adapters else 2) if sleeps else 0)
        engine.sleep()
        return VllmSampler(policy, sampling, engine, dtype=dtype, adapters=adapters, tolerance=self.tolerance)
