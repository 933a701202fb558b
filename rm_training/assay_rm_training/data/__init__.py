"""Training data of reward models: typed rows, and the same rows as tokens."""
