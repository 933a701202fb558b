"""Saves a trainer's state as a checkpoint, and restores it.

Covers: weights, optimiser, random state, every plug-in with memory (`Stateful`) or weights (`Tensors`), the sizes of
the logs. Leaves out: the files (`checkpoint`).
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from assay.errors import BadInputError
from assay.models.optimisers import publish
from assay.models.parallelism.sharded_state import ReadState, read_state, remove_states, write_state
from assay.models.parallelism.strategy import scatter_optimizer
from assay.runs.json_log import JsonLog
from assay_policy_training.core.policy import Policy
from assay_policy_training.plugins.protocols import Stateful, Tensors
from assay_policy_training.training.checkpoint import (
    UNFINISHED,
    Checkpoint,
    checkpoint_folder,
    checkpoints,
    newest_checkpoint,
    save_checkpoint,
    step_of,
    stored_checkpoint,
)
from assay_policy_training.training.checkpoint_choice import CheckpointChoice, at_most


class ResumableTrainer(Protocol):
    """What a checkpoint reads of a trainer, and sets when the run resumes."""

    policy: Policy
    parameters: dict[str, torch.nn.Parameter]
    optimiser: torch.optim.Optimizer
    metrics_log: JsonLog
    rollouts_log: JsonLog
    folder: Path
    choice: CheckpointChoice
    policy_version: str
    step: int
    updates: int

    def plugins(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class StepStart:
    """All that a step changes before its first update of a weight, as it was when the step began."""

    rng: torch.Tensor
    rng_cuda: torch.Tensor | None
    plugin_states: dict[str, Any]
    plugin_tensors: dict[str, Any]
    logs: dict[str, int]  #: name -> bytes

    @classmethod
    def of(cls, trainer: ResumableTrainer) -> "StepStart":
        """Tensors are not copied: no plug-in changes one in place before the update."""
        device = trainer.policy.device
        return cls(
            torch.get_rng_state(),
            torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
            {name: deepcopy(plugin.state_dict()) for name, plugin in _stateful(trainer).items()},
            _plugin_tensors(trainer),
            {log.path.name: log.size for log in (trainer.metrics_log, trainer.rollouts_log)},
        )


def save(trainer: ResumableTrainer, start: StepStart | None = None) -> Path:
    """Write a checkpoint from which a run resumes as if it had never stopped. All processes call this; the first
    writes, and under FSDP2 each its shares. `start`: of the step under way, whose weights are not updated yet; default:
    between steps."""
    parallel = trainer.policy.parallel
    if parallel.main:
        for log in (trainer.metrics_log, trainer.rollouts_log):
            log.sync()
        start = start or StepStart.of(trainer)
        remove_states(trainer.folder, UNFINISHED)
    tensors = {
        "parameters": {name: p.detach() for name, p in trainer.parameters.items()},
        "optimiser": trainer.optimiser.state_dict(),
        "plugins": _plugin_tensors(trainer) if start is None else start.plugin_tensors,
    }
    stored, shards = write_state(tensors, trainer.folder, parallel, UNFINISHED)
    if start is None or not parallel.main:
        return checkpoint_folder(trainer.folder, trainer.step)
    stored |= {"rng": start.rng, "rng_cuda": start.rng_cuda}
    state = {
        "updates": trainer.updates,
        "policy_version": trainer.policy_version,
        "plugins": start.plugin_states,
        "logs": start.logs,
    }
    keep = trainer.choice.steps_to_keep(list(map(step_of, checkpoints(trainer.folder))), trainer.step)
    return save_checkpoint(trainer.folder, Checkpoint(trainer.step, stored, state, shards), keep)


def restore(trainer: ResumableTrainer, folder: Path) -> int:
    """Restore the newest checkpoint in `folder`; returns its step, 0 where there is none.

    All processes call this. Raises BadInputError when the checkpoint is of another base model, other prompts or other
    plug-ins.
    """
    parallel = trainer.policy.parallel
    checkpoint = newest_checkpoint(folder) if parallel.main else None
    headers: list[tuple[int, dict[str, Any]]] = []
    if checkpoint is not None:
        _check_same(trainer, checkpoint)
        headers = [(checkpoint.step, checkpoint.state)]
    headers = parallel.share(headers)
    if not headers:
        return 0
    [(step, state)] = headers
    tensors, divided = _tensors(trainer, checkpoint)
    _copy_weights(trainer, tensors)
    scatter_optimizer(tensors["optimiser"] if tensors is not None else None, trainer.optimiser, parallel)
    plugin_tensors: Any = tensors["plugins"] if tensors is not None else None
    plugin_tensors = plugin_tensors if divided else parallel.share(plugin_tensors)
    for name, plugin in _stateful(trainer).items():
        plugin.load_state_dict(state["plugins"][name])
    for name, holder in _with_tensors(trainer).items():
        holder.load_tensors(plugin_tensors[name])
    if checkpoint is not None:
        torch.set_rng_state(checkpoint.tensors["rng"])
        if checkpoint.tensors["rng_cuda"] is not None and trainer.policy.device.type == "cuda":
            torch.cuda.set_rng_state(checkpoint.tensors["rng_cuda"], trainer.policy.device)
        for log in (trainer.metrics_log, trainer.rollouts_log):
            log.cut(int(state["logs"][log.path.name]))
    trainer.step, trainer.updates = step, int(state["updates"])
    return trainer.step


def return_to(trainer: ResumableTrainer, step: int) -> None:
    """The weights of the checkpoint of `step`, for a training that is over: its logs and all else stay. All processes
    call this."""
    parallel = trainer.policy.parallel
    checkpoint = stored_checkpoint(checkpoint_folder(trainer.folder, step)) if parallel.main else None
    _copy_weights(trainer, _tensors(trainer, checkpoint).state)
    trainer.updates = parallel.share(int(checkpoint.state["updates"]) if checkpoint is not None else None)


def take_up(trainer: ResumableTrainer, step: int) -> int | None:
    """Weights and optimiser of the newest checkpoint no later than `step`, for a training that goes on; returns its
    step, None where there is none. All processes call this."""
    parallel = trainer.policy.parallel
    saved = list(map(step_of, checkpoints(trainer.folder))) if parallel.main else []
    found = parallel.share([at_most(saved, step)] if parallel.main else None)[0]
    if found is None:
        return None
    checkpoint = stored_checkpoint(checkpoint_folder(trainer.folder, found)) if parallel.main else None
    tensors, _ = _tensors(trainer, checkpoint)
    _copy_weights(trainer, tensors)
    scatter_optimizer(tensors["optimiser"] if tensors is not None else None, trainer.optimiser, parallel)
    return int(found)


def _tensors(trainer: ResumableTrainer, checkpoint: Checkpoint | None) -> ReadState:
    """Those of the first process's checkpoint."""
    stored, shards = (None, None) if checkpoint is None else (checkpoint.tensors, checkpoint.shards)
    return read_state(stored, shards, trainer.policy.parallel)


@torch.no_grad()
def _copy_weights(trainer: ResumableTrainer, tensors: Mapping[str, Any] | None) -> None:
    for name, parameter in trainer.parameters.items():
        saved = tensors["parameters"][name] if tensors is not None else None
        parameter.copy_(trainer.policy.parallel.scatter(saved, parameter))
    publish(trainer.optimiser)


def _check_same(trainer: ResumableTrainer, checkpoint: Checkpoint) -> None:
    if checkpoint.state["policy_version"] != trainer.policy_version:
        raise BadInputError(
            f"the checkpoint continues from base {checkpoint.state['policy_version']}, not {trainer.policy_version}"
        )
    same = _stateful(trainer).keys() == checkpoint.state["plugins"].keys()
    same = same and _with_tensors(trainer).keys() == checkpoint.tensors["plugins"].keys()
    if not same or trainer.parameters.keys() != checkpoint.tensors["parameters"].keys():
        raise BadInputError("the checkpoint was made with other plug-ins or other trainable weights")


def _stateful(trainer: ResumableTrainer) -> dict[str, Stateful]:
    return {name: plugin for name, plugin in trainer.plugins().items() if isinstance(plugin, Stateful)}


def _plugin_tensors(trainer: ResumableTrainer) -> dict[str, Any]:
    return {name: plugin.tensors() for name, plugin in _with_tensors(trainer).items()}


def _with_tensors(trainer: ResumableTrainer) -> dict[str, Any]:
    return {name: plugin for name, plugin in trainer.plugins().items() if isinstance(plugin, Tensors)}
