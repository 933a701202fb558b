"""Length bias of reward models: measuring it, fitting and evaluating a correction, reading stored lengths."""
