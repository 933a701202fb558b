"""Reward-model benchmarks: one module a protocol, each a pure function from per-item scores to named aggregates.

`catalogue` names them; `item` is what they are made of; `records` reads the publishers' files and `recorded` files of
scores; `strata` gives means and intervals; `report` puts one evaluation together. Nothing here needs torch.
"""
