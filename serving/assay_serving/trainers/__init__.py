"""Reward functions for trainers, by a reward server. Light: imports httpx, and none of the trainers."""
