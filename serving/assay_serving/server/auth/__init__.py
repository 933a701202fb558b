"""API keys, rate limits, and the middleware that every request passes."""
