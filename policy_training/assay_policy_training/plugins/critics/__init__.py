"""S12: value functions."""
