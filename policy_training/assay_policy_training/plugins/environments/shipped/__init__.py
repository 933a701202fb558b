"""Environments that ship: small, with programs as oracles, with tasks and a player for demonstrations."""
