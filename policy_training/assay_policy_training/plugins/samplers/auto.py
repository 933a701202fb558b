"""The default sampler: vLLM for a policy on a GPU, where there is one that can sample it, else transformers.

Covers: the choice and its reason, in one line of the log. Leaves out: the samplers; a choice by hand (`sampler.kind`).
"""

import logging
from collections.abc import Iterator
from typing import ClassVar

from assay.errors import BadInputError
from assay.models.attention.packing import unwrapped
from assay_policy_training.core.config import Asynchrony
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import Sampler, SamplerPlan
from assay_policy_training.plugins.samplers.transformers import Transformers

log = logging.getLogger(__name__)


class Auto(RecipeSettings, section="sampler"):
    """S2: vLLM for a policy on a GPU, in this process where it is installed, else as a server of the Python that
    $ASSAY_VLLM_PYTHON names; transformers without a GPU, without vLLM, and for what vLLM does not sample here."""

    reads_images: ClassVar[bool] = True

    def chosen(self, policy: Policy, sampling: Sampling, asynchrony: Asynchrony) -> SamplerPlan:
        """The plan that is opened, of several processes the same in all; says in the log which one, and why."""
        plan, why = vllm_plan() if policy.device.type == "cuda" else (None, "there is no GPU")
        obstacle = why if plan is None else next(obstacles(plan, policy, sampling, asynchrony), None)
        if reasons := [each for each in policy.parallel.gather(obstacle) if each]:
            plan, why = None, reasons[0]
        log.info("sampler: %s, since %s", "transformers" if plan is None else "vLLM", why)
        return plan or Transformers()

    def open(self, policy: Policy, sampling: Sampling) -> Sampler:
        """Of rollouts that are not generated ahead."""
        return self.chosen(policy, sampling, Asynchrony()).open(policy, sampling)


def obstacles(plan: SamplerPlan, policy: Policy, sampling: Sampling, asynchrony: Asynchrony) -> Iterator[str]:
    """What vLLM does not sample, or not beside a training, as the default sampler. `plan`: its own."""
    from assay_policy_training.plugins.samplers.vllm.in_process import Vllm
    from assay_policy_training.plugins.samplers.vllm.memory import memory_share
    from assay_policy_training.plugins.samplers.vllm.policy_engine import adapter_rank, engine_dtype, needed_length

    if asynchrony.actors:
        yield "rollout actors share no engine (sampler.kind=vllm_server starts one each)"
    elif asynchrony.ahead:
        yield "rollouts are generated during updates, when an engine would have to keep its memory (sampler.kind=vllm)"
    if isinstance(plan, Vllm) and policy.device.index and policy.parallel.world == 1:
        yield f"vLLM in this process runs on the first GPU, not on {policy.device} (CUDA_VISIBLE_DEVICES)"
    if policy.renderer.images is not None:
        yield "the policy reads images"
    if getattr(unwrapped(policy.model), "is_quantized", False):
        yield "the policy's base is quantised"
    try:
        if policy.lora is not None:
            adapter_rank(policy.lora.rank)
        memory_share(policy, sampling, needed_length(policy, sampling), engine_dtype(policy, "auto"), sleeps=True)
    except BadInputError as error:
        yield str(error)


def vllm_plan() -> tuple[SamplerPlan | None, str]:
    """The plan with the vLLM that is installed, None where there is none that is supported; and why."""
    from assay_policy_training.plugins.samplers.vllm.in_process import Vllm
    from assay_policy_training.plugins.samplers.vllm.installed import (
        PYTHON_VARIABLE,
        unsupported,
        vllm_python,
        vllm_version,
    )
    from assay_policy_training.plugins.samplers.vllm.server import VllmServerSampler
    from assay_serving.vllm.in_process import process_model

    python = ""
    installed = vllm_version()
    if installed is not None and (model := process_model()) is not None:
        return None, f"this process has an engine already, of {model}, and holds one for its lifetime"
    if installed is None and (python := vllm_python()):
        installed = vllm_version(python)
    if installed is None:
        where = f"in the environment of {python}" if python else f"installed, and ${PYTHON_VARIABLE} names none"
        return None, f"vLLM is not {where}"
    if (problem := unsupported(installed, python or "this environment")) is not None:
        return None, problem
    if python:
        return VllmServerSampler(
            launch=True, python=python
        ), f"the policy is on a GPU, and {python} has vLLM {installed}"
    return Vllm(), f"the policy is on a GPU, and vLLM {installed} is installed"
