"""Training on preferences in Python: what `assay train` runs, as an object.

    RewardModelTrainer("bt", data=pairs, base="smollm2", workspace="demo", name="helpful").train()

Covers every training method, those of policies (`dpo`, ...) included. Leaves out: the recorded run (`runs.train`),
several processes (`assay train` in torchrun).
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from assay.data.row_files import Data, named_data
from assay.errors import BadInputError
from assay.registry import check_names
from assay.runs.callbacks import Callback
from assay.runs.record import locate_model
from assay.workspace import Workspace
from assay_rm_training.methods.method import TRAINING_METHODS, Method, method_of
from assay_rm_training.runs.train import TrainedModel, TrainingPlan, default_name, train_model
from assay_rm_training.training_config import TrainingConfig

#: What TRL calls what is here.
_TRL = {
    "model": "base",
    "train_dataset": "data",
    "eval_dataset": "eval_data",
    "ref_model": "reference",
    "peft_config": "lora",
    "learning_rate": "lr",
    "num_train_epochs": "epochs",
    "per_device_train_batch_size": "batch_size",
    "lr_scheduler_type": "schedule",
    "eval_steps": "eval_every",
    "save_steps": "save_every",
    "output_dir": "workspace",
    "report_to": "track",
}


class RewardModelTrainer:
    """One training of a workspace. `method`: an object (`Dpo(beta=0.05)`), or a name, whose fields may be among
    `settings`. `data`, `eval_data`: a snapshot, a file, or rows as the objects of such a file. `workspace`: a folder is
    made one; None: as `assay` finds it. `name`: None is BASE-DATA, or its next version. `settings`: fields of
    `TrainingConfig`. Reads the rows; raises BadInputError naming file, row and field."""

    def __init__(
        self,
        method: Method | str = "bt",
        *,
        data: Data | None = None,
        eval_data: Data | None = None,
        base: str = "smollm2",
        workspace: Workspace | str | Path | None = None,
        name: str | None = None,
        callbacks: Sequence[Callback] = (),
        **settings: Any,
    ) -> None:
        if settings.get("preset") is not None:  # of TrainingConfig, which only records it
            raise BadInputError("is applied by assay train --preset; here, pass its settings", field="preset")
        if data is None:
            raise BadInputError("name a snapshot, a file, or rows (TRL's train_dataset)", field="data")
        self.workspace = here = Workspace.of(workspace)
        if isinstance(method, str):
            names = {field.name for field in fields(TRAINING_METHODS.find(method, field="method"))}
            method = method_of({"name": method, **{key: settings.pop(key) for key in names & settings.keys()}})
        if (reference := getattr(method, "reference", None)) is not None:
            method = replace(method, reference=locate_model(here, reference)[0])  # type: ignore[type-var]
        check_names(settings, TrainingConfig.__dataclass_fields__.keys() - {"base"}, _TRL)
        config = TrainingConfig(base=locate_model(here, base)[0], **settings)
        source, held_out = named_data(here, data), None if eval_data is None else named_data(here, eval_data)
        name_of_model = name or default_name(base, source)
        self.plan = TrainingPlan(config, source, held_out, name_of_model, force=name is None, method=method)
        self.rows = method.read(here, source)
        self.eval_rows = None if held_out is None else method.read(here, held_out)
        self.callbacks = callbacks

    def train(self, *, resume: str | None = None) -> TrainedModel:
        """Train, evaluate and save the model as a recorded run. Parameters and errors as of `train_model`."""
        rows = (self.rows, self.eval_rows)
        return train_model(self.workspace, self.plan, *rows, resume=resume, callbacks=self.callbacks)
