"""The headline number of a run by its kind; for a running one, from the newest line of its metrics."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay_web.runs.replies import KeyFigure

#: (path in the metrics, label, whether a share); the first one present is used.
_OF_RESULT: dict[str, Sequence[tuple[str, str, bool]]] = {
    "train": (
        ("evaluation.accuracy.value", "held-out accuracy", True),
        ("after.figures.pair_accuracy.value", "held-out accuracy", True),
        ("last_step.reward_mean", "reward", False),
        ("training.last_loss", "last loss", False),
    ),
    "rl": (("last_step.verifier_pass_rate", "verifier pass rate", True), ("last_step.reward_mean", "reward", False)),
    "eval": (("accuracy.value", "accuracy", True), ("score", "score", True)),
    "attack": (("worst.value", "worst attack", True),),
    "calibrate": (("after.ece", "calibration error", False),),
}
#: (key of a row, label, whether a share) for steps of reward-model training, most important first.
STEP_FIGURES = (
    ("loss", "loss", False),
    ("accuracy", "accuracy", True),
    ("margin", "margin", False),
    ("tokens_per_s", "tokens a second", False),
)
#: The same for policy training.
POLICY_FIGURES = (
    ("reward_mean", "reward", False),
    ("verifier_pass_rate", "verifier pass rate", True),
    ("held_out_reward_mean", "held-out reward", False),
    ("kl_k3", "KL, nats a token", False),
    ("entropy", "entropy, nats a token", False),
    ("tokens_per_second", "tokens a second", False),
)
_NEWEST = 1 << 16  #: bytes at the end of a metrics file


def key_figure(kind: str, metrics: Mapping[str, Any]) -> KeyFigure | None:
    """The key figure of a finished run: by its kind, else its first number."""
    if (figure := _of_benchmark(metrics.get("models") or [metrics])) is not None:
        return figure
    for path, label, share in _OF_RESULT.get(kind, ()):
        value: Any = metrics
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if (figure := _figure(label, value, share)) is not None:
            return figure
    numbers = ((name, value) for name, value in metrics.items() if not isinstance(value, bool))
    return next((f for name, value in numbers if (f := _figure(name.replace("_", " "), value, False))), None)


def _of_benchmark(models: Any) -> KeyFigure | None:
    """The best model's overall share in the metrics of a benchmark run, among those that are ranked if any is."""
    reports = [one for one in models if isinstance(one, Mapping)] if isinstance(models, list) else []
    number = len(reports)
    reports = [one for one in reports if one.get("ranked", True)] or reports
    figures: list[KeyFigure] = []
    for report in reports:
        aggregates = report.get("aggregates")
        label = "overall" if number == 1 else f"best overall, {report.get('model')}"
        value = aggregates.get("overall") if isinstance(aggregates, Mapping) else None
        figures += [figure for figure in [_figure(label, value, True)] if figure is not None]
    return max(figures, key=lambda figure: figure.value, default=None)


def figures_of(row: Mapping[str, Any], columns: Sequence[tuple[str, str, bool]]) -> list[KeyFigure]:
    return [figure for key, label, share in columns if (figure := _figure(label, row.get(key), share)) is not None]


def newest_step(path: Path) -> tuple[int | None, KeyFigure | None]:
    """Step and first figure of the newest whole line of a metrics file; both None without one."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _NEWEST))
            lines = stream.read().split(b"\n")[:-1]
    except OSError:
        return None, None
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int) and row.get("kind") != "eval":
            figures = figures_of(row, POLICY_FIGURES if "rollouts" in row else STEP_FIGURES)
            return row["step"], figures[0] if figures else None
    return None, None


def _figure(label: str, value: Any, share: bool) -> KeyFigure | None:
    if not isinstance(value, int | float) or value - value != 0:  # NaN or infinite
        return None
    return KeyFigure(label=label, value=value, share=share)
