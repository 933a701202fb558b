"""The training loop, its gradients, checkpoints, metrics, evaluation, and the recorded run around it."""
