"""The model under training: base model, heads, packed forward pass."""
