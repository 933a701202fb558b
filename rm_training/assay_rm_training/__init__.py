"""Reward models: training, evaluation, calibration."""
