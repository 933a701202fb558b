"""Evaluation of reward models on pairs and on judged responses."""
