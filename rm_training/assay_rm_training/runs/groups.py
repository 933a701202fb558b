"""Reward models of groups of annotators as a recorded run: features, groups, one model with a head for each, figures.

Covers: what `assay train groups` does; the run's folder has `annotators.jsonl`, who belongs where. Leaves out: the
groups (`methods/annotator_groups.py`), the folder of heads (`heads.py`).

The heads are brought to one deviation over the responses voted on, and to mean 0 there, so that the worst group's
reward can be compared with the others'.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import BadInputError
from assay.runs.progress_bar import progress_bar
from assay.runs.record import locate_model
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_rm_training.data.annotator_votes import AnnotatorVote
from assay_rm_training.methods.annotator_groups import AnnotatorGroups, GroupsConfig, fit_groups
from assay_rm_training.methods.head_ensemble import fit_heads
from assay_rm_training.methods.heads_config import HeadsConfig
from assay_rm_training.methods.hidden_states import FeatureCache, FrozenBackbone
from assay_rm_training.methods.probe import sides
from assay_rm_training.runs.heads import write_head_ensemble
from assay_rm_training.runs.recorded import inputs_of, training_run
from assay_serving.engines.aggregation import MemberAggregation

ANNOTATORS = "annotators.jsonl"


@dataclass(frozen=True)
class GroupsPlan:
    """Settings of the run. `least_votes`: of an annotator; those with fewer are left out, whose group their votes do
    not tell."""

    config: GroupsConfig
    base: str
    data: str
    name: str
    least_votes: int = 1
    max_length: int | None = None
    device: str = "auto"
    force: bool = False
    aggregation: MemberAggregation = field(default_factory=MemberAggregation)


@dataclass(frozen=True)
class TrainedGroups:
    artifact_id: str
    path: Path
    run_id: str
    groups: AnnotatorGroups
    metrics: dict[str, Any]


def train_groups(
    workspace: Workspace, plan: GroupsPlan, votes: Sequence[AnnotatorVote], *, waivers: Mapping[str, str] | None = None
) -> TrainedGroups:
    """Find the groups, save and record. Raises BadInputError for a name in use, data neither checked against a
    registered benchmark nor waived, too few annotators, and groups that the votes do not show."""
    counts = Counter(vote.annotator for vote in votes)
    usable = [vote for vote in votes if counts[vote.annotator] >= plan.least_votes]
    if not usable:
        raise BadInputError(f"no annotator has {plan.least_votes} votes", field="least_votes")
    base = locate_model(workspace, plan.base)
    with training_run(
        workspace,
        plan.name,
        {"method": "groups", **asdict(plan)},
        force=plan.force,
        data=plan.data,
        waivers=waivers or {},
        inputs=inputs_of(workspace, [base] if base[1] else [], [plan.data]),
        models=[plan.base],
        device=plan.device,
    ) as (run, folder, _):
        cache = FeatureCache(FrozenBackbone(plan.base, max_length=plan.max_length, device=plan.device), workspace)
        with progress_bar("features", 2 * len(usable), unit="responses") as advance:
            chosen, rejected, used = sides(cache, [vote.pair for vote in usable], advance)
        if not used:
            raise BadInputError("no vote to learn from: none has both sides within the model's length")
        names, who = np.unique([usable[i].annotator for i in used], return_inverse=True)
        pairs = np.array([int(usable[i].pair.comparison_id[-8:], 16) for i in used])
        d = chosen.astype(np.float64) - rejected
        groups = fit_groups(d, who, plan.config, pairs)
        pooled = fit_heads(
            chosen,
            rejected,
            np.ones(len(used)),
            HeadsConfig("laplace", 2, groups.l2),
            np.unique(pairs, return_inverse=True)[1],
        )
        rewards = np.concatenate([chosen, rejected]) @ groups.heads.T
        deviations = rewards.std(axis=0)
        heads = groups.heads * (deviations.mean() / deviations)[:, None]
        fitted = replace(pooled, heads=heads, method="groups", left_out=len(usable) - len(used))
        artifact, _ = write_head_ensemble(run, cache, fitted, folder, data=plan.data, aggregation=plan.aggregation)
        with replacing(run.folder / ANNOTATORS) as temporary, temporary.open("w", encoding="utf-8") as stream:
            for name, belongs in zip(names.tolist(), groups.belongs.tolist(), strict=True):
                stream.write(json.dumps({"annotator": name, "votes": counts[name], "groups": belongs}) + "\n")
        run.metrics.update(
            {
                "votes": len(used),
                "left_out": len(usable) - len(used),
                "annotators": len(names),
                "annotators_left_out": len(counts) - len(names),
                "shares": groups.shares.tolist(),
                "certain": float((groups.belongs.max(axis=1) > 0.9).mean()),
                "votes_by_group": groups.belongs[who].sum(axis=0).tolist(),
                "l2": groups.l2,
                "rounds": len(groups.trace),
                "held_out": asdict(groups.held_out) if groups.held_out is not None else None,
            }
        )
        return TrainedGroups(artifact, folder, run.id, groups, dict(run.metrics))
