"""Prometheus metrics of the HTTP server."""
