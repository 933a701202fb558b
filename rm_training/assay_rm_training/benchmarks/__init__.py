"""Reward-model benchmarks: protocols as pure functions from per-item scores to named aggregates.

`protocols/` has one module per benchmark and `catalogue` registers them; `item` and `benchmark` are their types;
`records` reads publishers' files, `recorded` files of scores; `strata` computes means and intervals; `report` is one
evaluation. Nothing here needs torch.
"""
