"""A loop's reward model all of whose weights are trained again on every label so far, from the version before.

Covers: the settings of `assay train`, versions under names of what they were trained on. Leaves out: the training
(`assay_rm_training.runs.train`), heads on a frozen backbone, which cost far less (`refit`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from assay import ids
from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.runs.record import find_artifact
from assay.workspace import Workspace
from assay_pipelines.online.config import RewardPlan
from assay_pipelines.online.refit import RecentFeatures, RewardVersion, TrainingPair
from assay_rm_training.methods.method import TRAINING_METHODS, method_of
from assay_rm_training.runs.train import TrainingPlan, train_model
from assay_rm_training.training_config import TrainingConfig
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer


class WholeModelRefit:
    """Versions of the reward model `name`. `plan.training`: the method and its fields, and those of `TrainingConfig`.
    Raises BadInputError for another one."""

    features: RecentFeatures | None = None

    def __init__(self, workspace: Workspace, name: str, plan: RewardPlan, base: str, device: str, seed: int) -> None:
        self.workspace, self.name, self.device = workspace, name, device
        settings = {"method": "bt", **plan.training}
        method = str(settings.pop("method"))
        names = {f.name for f in fields(TRAINING_METHODS.find(method, field="reward.training"))}
        self.method = method_of({"name": method, **{key: settings.pop(key) for key in names & settings.keys()}})
        options = {f.name for f in fields(TrainingConfig)} - {"base", "device", "seed", "preset"}
        if unknown := sorted(settings.keys() - options):
            raise BadInputError("no setting of a reward model's training", field=f"reward.training.{unknown[0]}")
        self.config = TrainingConfig(base=base, device=device, seed=seed, **{"max_length": plan.max_length, **settings})

    def fitted(
        self, pairs: Sequence[TrainingPair], inputs: Mapping[str, str], before: RewardVersion | None
    ) -> RewardVersion:
        """See `Refit`."""
        rows = [
            PreferencePair(
                p.chosen.prompt, p.chosen.response, p.rejected.response, weight=p.weight, preference=1 - p.wrong
            )
            for p in pairs
        ]
        if not rows:
            raise BadInputError("no decided label to train the reward on: buy more (reward.labels)", field="reward")
        config = self.config if before is None else replace(self.config, base=str(before.folder))
        content = [[*map(_text, (row.prompt, row.chosen, row.rejected)), row.preference, row.weight] for row in rows]
        name = f"{self.name}-{ids.digest(json.dumps([config.to_dict(), content], default=str))[:8]}"
        if (artifact := find_artifact(self.workspace, name, ("reward_model",))) is not None and artifact[0].is_dir():
            return self.load(artifact[0])
        plan = TrainingPlan(config, next(iter(inputs)), None, name, method=self.method)
        return self.load(train_model(self.workspace, plan, rows).path)

    def load(self, folder: Path) -> RewardVersion:
        """Any reward model; what loading it raises."""
        config = ModelConfig(str(folder), served_as=self.name, device=self.device)
        return RewardVersion(folder.name, folder, load_scorer(config, self.workspace.root))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps([asdict(message) for message in value], default=str)
