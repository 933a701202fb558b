"""The score cache: in memory, on disk, and the keys that make two scores the same."""
