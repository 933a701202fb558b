"""The web server: one FastAPI application of REST routes and the built page."""
