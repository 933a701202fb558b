"""The ways to train a reward model, one module a method."""
