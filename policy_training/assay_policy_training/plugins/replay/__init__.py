"""S15: rows of other steps and other sources."""
