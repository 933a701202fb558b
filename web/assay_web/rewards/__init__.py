"""Rewards: a playground on running reward servers, leaderboards, calibration and length, where two models disagree."""
