"""Rollouts from vLLM in this process: on a GPU beside the trainer, or in vLLM's own environment on a CPU.

Covers: starting it with what rollouts need, weights passed through a folder. Leaves out: what is the same behind a
server (`policy_engine`). vLLM's pins clash with Assay's, so it has a separate environment, into which Assay goes
without its dependencies (docs/policy-training/samplers.md).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt

from assay.errors import BackendError
from assay.models.loading import resolve_model
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.samplers.vllm import policy_engine
from assay_policy_training.plugins.samplers.vllm.launch import BATCHED_TOKENS
from assay_policy_training.plugins.samplers.vllm.policy_engine import (
    EXTENSION,
    LOGPROBS_MODE,
    VllmCompletion,
    VllmSampler,
    needed_length,
)
from assay_serving.vllm.in_process import CPU_CACHE_BYTES, ENVIRONMENT, checked_options
from assay_serving.vllm.versions import flags_for


class InProcessEngine:
    """See `PolicyEngine`. `llm`: a started `vllm.LLM` with the worker extension."""

    where = "vLLM in this process"

    def __init__(self, llm: Any, max_length: int) -> None:
        self._llm = llm
        self.max_length = max_length

    def complete(
        self, rows: Sequence[Sequence[int]], n: int, fields: Mapping[str, Any], seeds: Sequence[int]
    ) -> Iterator[list[VllmCompletion]]:
        """See `PolicyEngine.complete`: all rows in one call, so that vLLM plans them together."""
        params = import_module("vllm").SamplingParams
        requests = [params(**fields, n=n, seed=seed, detokenize=False) for seed in seeds]
        prompts = [{"prompt_token_ids": list(row)} for row in rows]
        try:
            outputs = self._llm.generate(prompts, requests, use_tqdm=False)
        except Exception as error:  # its errors have no common base in all versions
            raise BackendError(f"vLLM failed: {_first_line(error)}") from error
        for output in outputs:
            yield [
                _completion(completion)
                for completion in sorted(output.outputs, key=lambda completion: int(completion.index))
            ]

    def reload(self, folder: Path) -> None:
        """See `PolicyEngine.reload`."""
        try:
            self._llm.collective_rpc(policy_engine.RELOAD, kwargs={"weights_path": str(folder.resolve())})
            forgotten = self._llm.reset_prefix_cache()
        except Exception as error:
            raise BackendError(f"vLLM does not take the weights: {_first_line(error)}") from error
        if forgotten is False:
            raise BackendError("vLLM does not forget its prefix cache")

    def close(self) -> None:
        """Give the memory back. Not needed at the end of a process."""
        core = getattr(getattr(self._llm, "llm_engine", None), "engine_core", None)
        if core is not None and hasattr(core, "shutdown"):
            core.shutdown()
        self._llm = None


def _completion(output: Any) -> VllmCompletion:
    ids = tuple(int(token) for token in output.token_ids)
    return VllmCompletion(ids, tuple(float(at[token].logprob) for token, at in zip(ids, output.logprobs, strict=True)))


class Vllm(RecipeSettings, section="sampler"):
    """S2 by vLLM in this process. `options`: of `vllm.LLM`, as `--engine-option` of serving takes them."""

    dtype: str = "float32"
    max_model_len: int | None = None  #: default: what the recipe's numbers need
    tolerance: Annotated[float, Gt(0)] = (
        1e-3  #: of the check after each publishing, nats; half precision needs about 0.2
    )
    folder: str | None = None  #: through which weights are passed; default: a temporary one
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self, policy: Policy, sampling: Sampling) -> VllmSampler:
        """Raises BackendError where vLLM is not installed, is older than is known, or cannot run the policy."""
        longest = self.max_model_len or needed_length(policy, sampling)
        folder = None if self.folder is None else Path(self.folder).expanduser()
        engine = InProcessEngine(self._started(policy, longest), longest)
        return VllmSampler(policy, sampling, engine, tolerance=self.tolerance, folder=folder)

    def _started(self, policy: Policy, longest: int) -> Any:
        chosen = checked_options(self.options)
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            vllm = import_module("vllm")
            device = str(import_module("vllm.platforms").current_platform.device_type)
        except ImportError as error:
            raise BackendError(
                f"vLLM is not in this environment ({_first_line(error)}); it needs its own, or a server: "
                "docs/policy-training/samplers.md"
            ) from error
        flags = flags_for(str(vllm.__version__))
        arguments: dict[str, Any] = {
            "model": resolve_model(policy.name),
            "dtype": self.dtype,
            "max_model_len": longest,
            "trust_remote_code": False,
            "enable_prefix_caching": True,  # rows of a group share their prompt
            "disable_log_stats": True,
            "use_tqdm_on_load": False,
            "generation_config": "vllm",
            "logprobs_mode": LOGPROBS_MODE,
            "worker_extension_cls": EXTENSION,
            **flags.generating,
        }
        if device == "cpu":
            arguments["enforce_eager"] = True  # compiling takes a minute and gains 3 to 7 %
            arguments["enable_chunked_prefill"] = False  # see `launch.BATCHED_TOKENS`
            arguments["max_num_batched_tokens"] = max(BATCHED_TOKENS, longest)
            if flags.cache_bytes:
                arguments["kv_cache_memory_bytes"] = CPU_CACHE_BYTES
        try:
            return vllm.LLM(**(arguments | chosen))
        except Exception as error:  # what goes wrong inside a start has no common base
            raise BackendError(f"vLLM {vllm.__version__} cannot run {policy.name}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
