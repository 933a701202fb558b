"""OpenAI-compatible chat, `POST /v1/chat/completions`: the application, a local model behind it, and the client."""
