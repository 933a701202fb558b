"""Queues and annotation sessions: items, votes, agreement."""
