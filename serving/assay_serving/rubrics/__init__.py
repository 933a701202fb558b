"""Rewards by a rubric: the items of a prompt's own list, each graded by a verifier, a judge or a principle model.

Leaves out: writing and mending rubrics (`assay_pipelines.rubrics`).
"""
