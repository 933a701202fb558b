"""Preference data as training and evaluation read it: conversations, pairs, votes, snapshots, row files."""
