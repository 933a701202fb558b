"""Training on preferences in Python: what `assay train` runs, as an object.

    trainer = RewardModelTrainer("bt", data=pairs, base="smollm2", workspace="demo", name="helpful")
    trained = trainer.train()

Covers: every training method, those of policies (`dpo`, ...) included; a plan from keyword arguments, the rows that it
names. Leaves out: the recorded run (`runs.train`), several processes (`assay train` under torchrun).
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from assay.data.row_files import Data, named_data
from assay.registry import unknown
from assay.runs.callbacks import Callback
from assay.runs.record import locate_model
from assay.workspace import Workspace
from assay_rm_training.methods.method import TRAINING_METHODS, Method, method_of
from assay_rm_training.runs.train import TrainedModel, TrainingPlan, default_name, train_model
from assay_rm_training.training_config import TrainingConfig


class RewardModelTrainer:
    """One training of a workspace.

    `method`: the name of one, whose fields may be among `settings` (`RewardModelTrainer("dpo", beta=0.05, ...)`), or an
    object. `data`, `eval_data`, `final_data`: a snapshot, a file, or rows as the objects of such a file, e.g.
    `{"prompt", "chosen", "rejected"}`. `workspace`: a folder is made one; None: as `assay` finds it. `name`: None is
    BASE-DATA, or its next version (-v2, ...); one in use is refused without `force`. `waivers`:
    registered benchmark -> reason to train although `data` is not checked against it. `settings`: fields of
    `TrainingConfig`, and of the method. Reads the rows; raises BadInputError naming file, row and field.
    """

    def __init__(
        self,
        method: Method | str = "bt",
        *,
        data: Data,
        base: str = "smollm2",
        eval_data: Data | None = None,
        final_data: Data | None = None,
        workspace: Workspace | str | Path | None = None,
        name: str | None = None,
        force: bool = False,
        waivers: Mapping[str, str] | None = None,
        callbacks: Sequence[Callback] = (),
        **settings: Any,
    ) -> None:
        self.workspace = here = Workspace.of(workspace)
        if isinstance(method, str):
            own = {field.name for field in fields(TRAINING_METHODS.find(method, field="method"))}
            method = method_of({"name": method, **{key: settings.pop(key) for key in own & settings.keys()}})
        known = {field.name for field in fields(TrainingConfig)}
        for setting in settings.keys() - known:
            raise unknown("setting", setting, {*known, *method.to_dict()})
        if (reference := getattr(method, "reference", None)) is not None:
            method = replace(method, reference=locate_model(here, reference)[0])  # type: ignore[type-var]
        name_of_data = named_data(here, data)
        held_out = [None if each is None else named_data(here, each) for each in (eval_data, final_data)]
        self.plan = TrainingPlan(
            TrainingConfig(base=locate_model(here, base)[0], **settings),
            name_of_data,
            held_out[0],
            name or default_name(base, name_of_data),
            force or name is None,
            dict(waivers or {}),
            method,
            held_out[1],
        )
        self.rows = method.read(here, name_of_data)
        self.eval_rows, self.final_rows = (None if each is None else method.read(here, each) for each in held_out)
        self.callbacks = list(callbacks)

    def train(self, *, resume: str | None = None) -> TrainedModel:
        """Train, evaluate and save the model as a recorded run. Parameters and errors as of `train_model`."""
        return train_model(
            self.workspace,
            self.plan,
            self.rows,
            self.eval_rows,
            resume=resume,
            final_rows=self.final_rows,
            callbacks=self.callbacks,
        )
