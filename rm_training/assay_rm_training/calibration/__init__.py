"""Calibration of rewards as probabilities that a response wins a pair.

`measures` (calibration error and likelihood), `fitting` (the three methods), `held_out` (the choice, and figures on
left-out pairs), `plot` (reliability in a terminal). Leaves out: the fitted function itself
(`assay.models.calibration`).
"""

from assay_rm_training.calibration.fitting import fit_calibration, fit_temperature
from assay_rm_training.calibration.held_out import Calibrated, calibrate
from assay_rm_training.calibration.measures import (
    Bin,
    CalibrationReport,
    brier,
    calibration_report,
    equal_mass_error,
    expected_calibration_error,
    negative_log_likelihood,
    probabilities_of,
    random_order,
    reliability,
    sigmoid,
)

__all__ = [
    "Bin",
    "Calibrated",
    "CalibrationReport",
    "brier",
    "calibrate",
    "calibration_report",
    "equal_mass_error",
    "expected_calibration_error",
    "fit_calibration",
    "fit_temperature",
    "negative_log_likelihood",
    "probabilities_of",
    "random_order",
    "reliability",
    "sigmoid",
]
