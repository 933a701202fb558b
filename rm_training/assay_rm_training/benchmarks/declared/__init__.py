"""Benchmarks that a YAML file declares: where the rows lie, what their fields are called, which protocol measures
them. Those that ship with the package lie in `published/`."""
