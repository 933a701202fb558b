"""Weights on their way from the trainer to those who generate: published by number, loaded, and checked.

Covers: the relays (this process's memory, a folder, the object store of a Ray cluster), and the check after each load:
log-probs of a fixed row are compared with the trainer's, since weights that did not arrive whole, or not at all, report
no error. Leaves out: which publication is loaded when (`buffer`).
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from assay.compute.executor import LOCAL, put_object, ray_address
from assay.errors import BackendError
from assay.system.atomic_files import replacing
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import RELOAD_TOLERANCE, Policy
from assay_policy_training.plugins.samplers.assembly import assemble
from assay_policy_training.plugins.samplers.vllm.policy_engine import PROBE, PROBE_TOKENS


@dataclass(frozen=True)
class Publication:
    """One set of weights. `version`: weight updates before it; `handle`: what a relay's reader gets; `probe`: the
    trainer's log-probs of the row that is compared."""

    key: str  #: no other publication of this process has it
    version: int
    weights: Mapping[str, Tensor]
    handle: Any
    probe: list[float]


class Relay(Protocol):
    def put(self, key: str, weights: Mapping[str, Tensor]) -> Any:
        """The handle from which `weights_of` gives the weights, in any process that an actor may be."""

    def drop(self, handle: Any) -> None:
        """Nobody will load them again."""

    def close(self) -> None:
        """Nobody will load any: remove those that are left, also a killed trainer's."""


class MemoryRelay:
    """For a thread of this process."""

    def put(self, key: str, weights: Mapping[str, Tensor]) -> Any:
        return weights

    def drop(self, handle: Any) -> None:
        pass

    def close(self) -> None:
        pass


class FolderRelay:
    """For processes that can read `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, key: str, weights: Mapping[str, Tensor]) -> Any:
        from safetensors.torch import save_file

        path = self.folder / f"{key}.safetensors"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                save_file({name: values.contiguous() for name, values in weights.items()}, temporary)
        except OSError as error:
            raise BackendError(f"cannot write the weights to {path}: {error.strerror or error}") from error
        return str(path)

    def drop(self, handle: Any) -> None:
        Path(handle).unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class ObjectRelay:
    """For the actors of a Ray cluster; its object store copies weights once to each node."""

    def __init__(self, on: str) -> None:
        ray_address(on)  # or it says why there is none, before work starts
        self.on = on

    def put(self, key: str, weights: Mapping[str, Tensor]) -> Any:
        return put_object(self.on, dict(weights))

    def drop(self, handle: Any) -> None:
        """The object goes with its last reference."""

    def close(self) -> None:
        pass


def open_relay(on: str, folder: Path) -> Relay:
    return FolderRelay(folder) if on == LOCAL else ObjectRelay(on)


def weights_of(handle: Any) -> Mapping[str, Tensor]:
    """Raises BackendError for a file that is not there or not whole."""
    if not isinstance(handle, str):
        weights: Mapping[str, Tensor] = handle
        return weights
    from safetensors.torch import load_file

    try:
        return load_file(handle)
    except Exception as error:  # of safetensors' own kinds, too
        raise BackendError(f"cannot read the weights {handle}: {error}") from error


@torch.no_grad()
def load_weights(policy: Policy, weights: Mapping[str, Tensor]) -> None:
    parameters = dict(policy.model.named_parameters())
    for name, values in weights.items():
        parameters[name].copy_(values)


def probe_logp(policy: Policy) -> list[float]:
    """Log-probs of a fixed row under the policy, without autocast."""
    return [float(value) for value in policy.float32_logp(_probe(policy))[0]]


def check_loaded(policy: Policy, expected: list[float], version: int) -> None:
    """Raises BackendError where a log-prob of the fixed row is not the trainer's."""
    worst = max(abs(a - b) for a, b in zip(probe_logp(policy), expected, strict=True))
    if not worst <= RELOAD_TOLERANCE:
        raise BackendError(
            f"a rollout actor does not have the policy's weights (version {version}): a log-prob is {worst:.3g} off "
            f"the trainer's, tolerance {RELOAD_TOLERANCE:g}"
        )


def _probe(policy: Policy) -> RolloutBatch:
    """The probe's prompt, answered by its own first tokens."""
    tokens = torch.tensor([policy.renderer.encode(PROBE.prompt).ids[:PROBE_TOKENS]])
    mask = torch.ones(tokens.shape, dtype=torch.bool)
    return assemble(policy, [PROBE], 1, (tokens, mask, torch.zeros(tokens.shape)), version=0)
