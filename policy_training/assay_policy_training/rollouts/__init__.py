"""Rollouts of a step: generating, prefetching, rewarding and collecting them."""
