"""S8: how much each token counts, and which tokens count at all."""
