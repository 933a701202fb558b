"""Rewards: the playground, leaderboards, calibration, length bias, disagreements between models."""
