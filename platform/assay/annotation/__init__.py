"""Votes before they reach the store: the journal that makes them durable."""
