"""Copies of a workspace, and a store made anew."""
