"""Rollouts from vLLM in this process: on a GPU beside the trainer, or in vLLM's own environment on a CPU.

Covers: starting it with what rollouts need, weights passed through a folder. Leaves out: what is the same behind a
server (`policy_engine`). vLLM's pins clash with Assay's, so it has a separate environment, into which Assay goes
without its dependencies (docs/policy-training/samplers.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt

from assay.errors import BackendError
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.samplers.vllm import policy_engine
from assay_policy_training.plugins.samplers.vllm.completions import VllmCompletion
from assay_policy_training.plugins.samplers.vllm.launch import BATCHED_TOKENS
from assay_policy_training.plugins.samplers.vllm.policy_engine import (
    EXTENSION,
    LOGPROBS_MODE,
    VllmSampler,
    needed_length,
)
from assay_serving.vllm.in_process import InstalledVllm, checked_options, first_line, shut_down


class InProcessEngine:
    """See `PolicyEngine`. `llm`: a started `vllm.LLM` with the worker extension."""

    where, at_once = "vLLM in this process", 1

    def __init__(self, llm: Any, max_length: int) -> None:
        self._llm = llm
        self.max_length = max_length

    def complete(
        self, rows: Sequence[Sequence[int]], n: int, fields: Mapping[str, Any], seeds: Sequence[int]
    ) -> Iterator[list[VllmCompletion]]:
        """See `PolicyEngine.complete`: all rows in one call, so that vLLM plans them together."""
        params = import_module("vllm").SamplingParams
        detokenize = "stop" in fields  # which it finds in the text
        requests = [params(**fields, n=n, seed=seed, detokenize=detokenize) for seed in seeds]
        prompts = [{"prompt_token_ids": list(row)} for row in rows]
        try:
            outputs = self._llm.generate(prompts, requests, use_tqdm=False)
        except Exception as error:  # its errors have no common base in all versions
            raise BackendError(f"vLLM failed: {first_line(error)}") from error
        for output in outputs:
            yield [
                _completion(completion)
                for completion in sorted(output.outputs, key=lambda completion: int(completion.index))
            ]

    def confirm(self) -> None:
        """It is of this process."""

    def reload(self, folder: Path) -> None:
        """See `PolicyEngine.reload`."""
        try:
            self._llm.collective_rpc(policy_engine.RELOAD, kwargs={"weights_path": str(folder.resolve())})
            forgotten = self._llm.reset_prefix_cache()
        except Exception as error:
            raise BackendError(f"vLLM does not take the weights: {first_line(error)}") from error
        if forgotten is False:
            raise BackendError("vLLM does not forget its prefix cache")

    def close(self) -> None:
        """Give the memory back. Not needed at the end of a process."""
        shut_down(self._llm)
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
        chosen = checked_options(self.options)
        vllm = InstalledVllm(", or a server: docs/policy-training/samplers.md")
        arguments: dict[str, Any] = {
            "generation_config": "vllm",
            "logprobs_mode": LOGPROBS_MODE,
            "worker_extension_cls": EXTENSION,
            **vllm.flags.generating,
        }
        if vllm.device == "cpu":
            arguments["enable_chunked_prefill"] = False  # see `launch.BATCHED_TOKENS`
            arguments["max_num_batched_tokens"] = max(BATCHED_TOKENS, longest)
        llm = vllm.start(policy.name, dtype=self.dtype, max_length=longest, **(arguments | chosen))
        engine = InProcessEngine(llm, longest)
        return VllmSampler(policy, sampling, engine, tolerance=self.tolerance, folder=folder)
