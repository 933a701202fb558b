"""Commands of reward-model training. Heavy imports happen inside the commands."""

import typer

from assay_rm_training.commands.calibration import calibrate
from assay_rm_training.commands.combining import ensemble, merge
from assay_rm_training.commands.evaluation import eval_, eval_judge
from assay_rm_training.commands.length_bias import bias
from assay_rm_training.commands.train import group
from assay_rm_training.commands.verification import verify


def register(app: typer.Typer) -> None:
    group.register(app)
    for name, command in (
        ("eval", eval_),
        ("eval-judge", eval_judge),
        ("calibrate", calibrate),
        ("verify", verify),
        ("ensemble", ensemble),
        ("merge", merge),
        ("length-bias", bias),
    ):
        app.command(name)(command)
