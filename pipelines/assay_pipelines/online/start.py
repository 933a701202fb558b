"""The beginning of a loop: its first reward model, from a name, from pairs, or from labels bought on the rollouts of
the untrained policy.

Leaves out: all that happens once the policy trains (`labelling`).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer

from assay.data.pairs import load_pairs_or_file
from assay.errors import BadInputError
from assay.models.devices import pick_device
from assay.runs.record import Run, locate_model
from assay.workspace import Workspace
from assay_pipelines.online.candidate_pairs import candidate_pairs
from assay_pipelines.online.config import LoopConfig, named_field
from assay_pipelines.online.journal import Journal, LabelRow
from assay_pipelines.online.label_sources.kind import LabelSource
from assay_pipelines.online.labelling import InitialPairs, fitted_version
from assay_pipelines.online.purchase import LabelLimits, LabelPurchase
from assay_pipelines.online.record import LoopRecord
from assay_pipelines.online.refit import Refit, RewardVersion, TrainingPair
from assay_pipelines.online.selectors.candidates import Candidates
from assay_pipelines.online.selectors.kind import SELECTORS
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import derived_seed
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.training.run import Plan
from assay_rm_training.runs.recorded import snapshot_id
from assay_serving.engines.head_ensemble import HeadEnsembleSpec

LOOK_S = 0.5  #: between two looks for answers of people
GROUP = 4  #: rollouts of a prompt that the first labels are bought on


@dataclass(frozen=True)
class LoopStart:
    """`rows`: the labels that were bought."""

    version: RewardVersion
    initial: InitialPairs | None
    rows: tuple[LabelRow, ...] = ()


def first_version(
    run: Run,
    config: LoopConfig,
    plan: Plan,
    prompts: Sequence[PromptItem],
    refit: Refit,
    record: LoopRecord,
    source: LabelSource,
) -> LoopStart:
    """Raises BadInputError for a start that makes no model, and what the label source raises."""
    reward, initial = config.reward, initial_pairs(run.workspace, config)
    if reward.start is not None:
        return LoopStart(refit.load(start_folder(run.workspace, reward.start)), initial)
    seed = plan.recipe.seed
    purchase = LabelPurchase(record, source, Journal(run.folder), run, seed, config.labels.held_out)
    if reward.labels:
        batch = _untrained_rollouts(run.workspace, plan, prompts, reward.labels)
        pairs = candidate_pairs(batch)
        candidates = Candidates(pairs.first, pairs.second, pairs.prompt_numbers, np.full(len(batch), np.nan))
        limits = LabelLimits(money=config.budget.money)
        rows = purchase.buy(0, SELECTORS.create("random"), pairs, candidates, reward.labels, limits)
        rows += _awaited(purchase)
        if not any(row.label in ("A", "B") and not row.held_out for row in rows):
            raise BadInputError(
                f"none of the first {len(rows)} labels prefers one of two responses: more of them (reward.labels), "
                "or another start",
                field="reward.labels",
            )
    version = fitted_version(refit, purchase, initial)
    return LoopStart(version, initial, tuple(purchase.rows.values()))


def start_folder(workspace: Workspace, name: str) -> Path:
    """Of the reward model to begin with. Raises BadInputError where there is none."""
    with named_field("reward.start"):
        folder = Path(locate_model(workspace, name)[0])
    if not folder.exists():
        raise BadInputError(f"no reward model {name!r}: not in this workspace, and no folder", field="reward.start")
    return folder


def _awaited(purchase: LabelPurchase) -> list[LabelRow]:
    """The answers of people, without which there is no first model."""
    rows: list[LabelRow] = []
    if purchase.waiting:
        typer.echo(f"waiting for {len(purchase.waiting)} first labels: {purchase.source.name}", err=True)
    while purchase.waiting:
        time.sleep(LOOK_S)
        rows += purchase.collect(0)
    return rows


def initial_pairs(workspace: Workspace, config: LoopConfig) -> InitialPairs | None:
    """As `reward.pairs` names them. Heads that `reward.start` names are fitted again on their own snapshot, too."""
    data, start = config.reward.pairs, config.reward.start
    fitted = 0
    if start is not None and config.reward.refit == "heads":
        spec = HeadEnsembleSpec.read(start_folder(workspace, start))
        data, fitted = spec.snapshot and snapshot_id(workspace, spec.snapshot), spec.pairs
    with named_field("reward.pairs"):
        pairs = tuple(map(TrainingPair.of_pair, load_pairs_or_file(workspace, data))) if data is not None else ()
    if fitted > len(pairs):
        typer.echo(
            f"later versions are fitted on {len(pairs)} of the {fitted} pairs of {start}: its snapshot", err=True
        )
    return InitialPairs(snapshot_id(workspace, data) or str(Path(data).resolve()), pairs) if data is not None else None


def _untrained_rollouts(workspace: Workspace, plan: Plan, prompts: Sequence[PromptItem], labels: int) -> RolloutBatch:
    """Of so many prompts that each needs to give one label, as far as there are so many."""
    recipe, device = plan.recipe, pick_device(plan.device)
    policy = Policy(
        locate_model(workspace, plan.policy)[0],
        device=device,
        max_prompt_tokens=recipe.sampling.max_prompt_tokens,
        autocast=recipe.optimisation.autocasts(device),
        chat=recipe.chat,
    )
    items: list[Any] = list(prompts)[:labels]
    sampler = TransformersSampler(policy, recipe.sampling)
    seed = derived_seed(recipe.seed, 0, "first labels")
    return sampler.rollout(items, GROUP, seed=seed, version=0).with_(
        items=tuple(item for item in items for _ in range(GROUP))
    )
