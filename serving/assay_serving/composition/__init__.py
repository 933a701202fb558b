"""Named rewards made of parts: models and verifiers, each shaped, then combined, with every part in the reply.

Covers: what can be decided for one response alone. Leaves out: shaping over a group or a batch, running statistics,
multipliers that are learned (`assay_policy_training`), ensembles of one kind of model
(`assay_serving.engines.ensemble`).
"""
