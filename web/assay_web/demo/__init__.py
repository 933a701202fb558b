"""`assay demo`: every part of the product on one small problem, with all figures measured in the same run.

Covers: the steps (`pipeline`), the synthetic noisy source (`source`), the report (`pages`). Each step is a call that a
user's pipeline would make.
"""
