"""S7: changes of advantages."""
