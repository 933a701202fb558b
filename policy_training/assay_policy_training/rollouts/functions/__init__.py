"""Plain Python functions as rewards."""
