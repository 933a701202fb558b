"""Rewards of a server for trainers, each in the form that it asks for. Light: httpx, and nothing of the trainers."""
