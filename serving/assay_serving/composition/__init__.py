"""Rewards composed of models and verifiers: each part shaped, then combined, with every part in the reply.

Covers: rewards that depend on one response alone. Leaves out: shaping over a group or a batch, running statistics,
learned multipliers (`assay_policy_training`), ensembles of one kind of model
(`assay_serving.engines.ensemble`).
"""
