"""The FastAPI application: native routes, request bodies, replies, configuration file."""
