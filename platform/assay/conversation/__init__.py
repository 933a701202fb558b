"""Conversations: messages with typed parts, and their text view."""
