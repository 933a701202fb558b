"""The built-in constraints, by what they check."""
