"""Which pairs of a policy's responses are worth a label."""
