"""The protocols of published benchmarks, one module each."""
