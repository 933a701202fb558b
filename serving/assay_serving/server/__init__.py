"""The scoring server."""
