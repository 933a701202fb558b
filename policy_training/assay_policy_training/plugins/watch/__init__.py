"""S16: metrics of a run, and rules that end it."""
