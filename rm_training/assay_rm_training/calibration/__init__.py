"""Calibration of rewards as probabilities that a response wins a pair.

Leaves out: the fitted function itself (`assay.models.calibration`).
"""
