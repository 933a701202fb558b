"""The policy of a run's checkpoint as a stock transformers folder, also while the run continues.

Covers: naming a checkpoint (newest, best, a step), base and trained weights put together, what the policy inherits of
benchmarks. Leaves out: the policy at the end of a run (`run`), a critic.
"""

from pathlib import Path

import torch

from assay.errors import BadInputError, NotFoundError
from assay.models.contamination import read_uses, write_uses
from assay.runs.json_log import read_metrics
from assay.runs.record import locate_model
from assay.workspace import Workspace
from assay_policy_training.core.policy import Policy
from assay_policy_training.training.checkpoint import checkpoints, read_checkpoint, step_of
from assay_policy_training.training.checkpoint_choice import CheckpointChoice
from assay_policy_training.training.run import Plan


def export_policy(workspace: Workspace, run: str, at: str, target: Path) -> int:
    """Write the policy of `run` to the folder `target`; returns its step. `at`: newest, best or a step.

    Raises NotFoundError for an unknown run or a checkpoint that it does not have, BadInputError for a folder that
    exists and for a checkpoint of another base.
    """
    plan, folder = Plan.read(workspace, run), workspace.runs / run
    checkpoint = read_checkpoint(find_checkpoint(folder, at, plan))
    recipe = plan.recipe
    base = locate_model(workspace, plan.policy)[0]
    policy = Policy(
        base,
        device=torch.device("cpu"),
        max_prompt_tokens=recipe.sampling.max_prompt_tokens,
        lora=recipe.lora,
        chat=recipe.chat,
    )
    if checkpoint.state["policy_version"] != policy.version:
        raise BadInputError(f"{run} was trained from another version of {plan.policy}", field="RUN")
    parameters, trained = policy.trainable(), checkpoint.tensors["parameters"]
    if parameters.keys() != trained.keys():
        raise BadInputError(f"the weights of {run} are not those of {plan.policy}", field="RUN")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(trained[name])
    policy.save(target)
    write_uses(target, read_uses(workspace.runs / run))
    return checkpoint.step


def find_checkpoint(folder: Path, at: str, plan: Plan) -> Path:
    """The checkpoint's folder of a run that has this folder. Raises as `export_policy`."""
    saved = {step_of(path): path for path in checkpoints(folder)}
    if not saved:
        raise NotFoundError(f"{folder.name} has no checkpoint yet (checkpoint_every: {plan.recipe.checkpoint_every})")
    if at == "newest":
        return saved[max(saved)]
    if at == "best":
        choice = CheckpointChoice(best_by=plan.best_by)
        for row in read_metrics(folder):
            choice.note(row, ())
        if choice.best is None:
            raise NotFoundError(f"no step of {folder.name} has {plan.best_by}: see --eval-every and --best-by")
        at = str(choice.best[0])
    if not at.isdecimal() or int(at) not in saved:
        raise NotFoundError(
            f"{folder.name} has no checkpoint {at!r}; it has those of steps {', '.join(map(str, saved))}"
        )
    return saved[int(at)]
