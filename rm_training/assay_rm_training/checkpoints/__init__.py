"""Finished reward models on disk: checkpoint, parity gate, model card."""
