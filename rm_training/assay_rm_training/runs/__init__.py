"""Recorded runs: training, evaluation, calibration, ensembles, merging, verification."""
