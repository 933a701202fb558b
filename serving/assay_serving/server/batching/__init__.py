"""Dynamic batching: requests wait in a fair queue and are scored together."""
