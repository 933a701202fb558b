"""What a checkpoint of a policy run holds, and how a trainer goes back to it.

Covers: weights, optimiser, random state, every plug-in with memory (`Stateful`) or weights (`Tensors`), the
logs' sizes. Leaves out: the files (`checkpoint`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from assay.errors import BadInputError
from assay_policy_training.checkpoint import Checkpoint, newest_checkpoint, save_checkpoint
from assay_policy_training.slots import Stateful, Tensors

if TYPE_CHECKING:
    from assay_policy_training.loop import PolicyTrainer


def save(trainer: PolicyTrainer) -> Path:
    """Everything needed to go on as if nothing had happened."""
    device = trainer.policy.device
    tensors = {
        "parameters": {name: p.detach().cpu() for name, p in trainer.parameters.items()},
        "optimiser": trainer.optimiser.state_dict(),
        "rng": torch.get_rng_state(),
        "rng_cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "plugins": {name: plugin.tensors() for name, plugin in _with_tensors(trainer).items()},
    }
    logs = (trainer.metrics_log, trainer.rollouts_log)
    state = {
        "updates": trainer.updates,
        "policy_version": trainer.policy_version,
        "plugins": {name: plugin.state_dict() for name, plugin in _stateful(trainer).items()},
        "logs": {log.path.name: log.sync() for log in logs},
    }
    return save_checkpoint(trainer.folder, Checkpoint(trainer.step, tensors, state))


def restore(trainer: PolicyTrainer, folder: Path) -> int:
    """Go back to the newest checkpoint in `folder`; returns its step, 0 where there is none.

    Raises BadInputError when the checkpoint is of another base model, other prompts or other plug-ins.
    """
    if (found := newest_checkpoint(folder)) is None:
        return 0
    if found.state["policy_version"] != trainer.policy_version:
        raise BadInputError(
            f"the checkpoint continues from base {found.state['policy_version']}, not {trainer.policy_version}"
        )
    plugins, states = _stateful(trainer), found.state["plugins"]
    weighted, weights = _with_tensors(trainer), found.tensors["plugins"]
    same = plugins.keys() == states.keys() and weighted.keys() == weights.keys()
    if not same or trainer.parameters.keys() != found.tensors["parameters"].keys():
        raise BadInputError("the checkpoint was made with other plug-ins or other trainable weights")
    with torch.no_grad():
        for name, parameter in trainer.parameters.items():
            parameter.copy_(found.tensors["parameters"][name])
    trainer.optimiser.load_state_dict(found.tensors["optimiser"])
    for name, plugin in plugins.items():
        plugin.load_state_dict(states[name])
    for name, holder in weighted.items():
        holder.load_tensors(weights[name])
    torch.set_rng_state(found.tensors["rng"])
    if found.tensors["rng_cuda"] is not None and trainer.policy.device.type == "cuda":
        torch.cuda.set_rng_state(found.tensors["rng_cuda"], trainer.policy.device)
    for log in (trainer.metrics_log, trainer.rollouts_log):
        log.cut(int(found.state["logs"][log.path.name]))
    trainer.step, trainer.updates, trainer.collector.drawer.published = found.step, int(found.state["updates"]), None
    return trainer.step


def _stateful(trainer: PolicyTrainer) -> dict[str, Stateful]:
    return {name: plugin for name, plugin in trainer.plugins().items() if isinstance(plugin, Stateful)}


def _with_tensors(trainer: PolicyTrainer) -> dict[str, Any]:
    return {name: plugin for name, plugin in trainer.plugins().items() if isinstance(plugin, Tensors)}
