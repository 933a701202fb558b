"""The vLLM samplers: an engine in this process, or one behind its HTTP server."""
