"""The registered losses of preference pairs, which `--loss` and a run's record name.

Leaves out: their formulas (`pair.py`, `ties.py`), their settings and regularisers (`objective.py`).
"""

from typing import Any

from assay.registry import Kind

_PAIR = "assay_rm_training.objectives.pair"

LOSSES: Kind[Any] = Kind(
    "loss",
    "A loss of preference pairs: a function of d = chosen - rejected [B], or of `chosen` and `rejected` [B], to one "
    "loss per pair [B]; or a TieLoss, which learns from ties.",
    {
        "bradley_terry": f"{_PAIR}:bradley_terry",
        "davidson": f"{_PAIR}:DAVIDSON",
        "focal": f"{_PAIR}:focal",
        "focal_internlm": f"{_PAIR}:focal_internlm",
        "hinge": f"{_PAIR}:hinge",
        "margin_mse": f"{_PAIR}:margin_mse",
        "pointwise": f"{_PAIR}:pointwise",
        "rao_kupper": f"{_PAIR}:RAO_KUPPER",
        "tempered_log": f"{_PAIR}:tempered_log",
    },
    option="--loss",
)
