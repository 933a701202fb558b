"""Objectives of scalar reward models: pure functions, each with its formula, source and oracle."""
