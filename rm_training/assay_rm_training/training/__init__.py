"""The training loop of reward models: batches, schedules, early stopping, resuming."""
