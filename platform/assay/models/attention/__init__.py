"""Forward passes over packed sequences and shared prefixes."""
