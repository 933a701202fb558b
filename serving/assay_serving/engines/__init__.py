"""Engines that run a reward model with transformers on this machine, and scorers made of them."""
