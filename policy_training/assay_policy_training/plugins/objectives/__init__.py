"""S9: the loss of a policy."""
