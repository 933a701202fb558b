"""Training methods of reward models, one module each."""
