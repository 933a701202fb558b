"""The one way to score: engines, the HTTP server, its dialects, the client."""
