"""Writing and mending rubrics: items from feedback and references, and from rollouts that exploit an item.

Leaves out: grading by a rubric (`assay_serving.rubrics`).
"""
