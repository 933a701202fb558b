"""S4: which rows are trained on, and whether more are generated."""
