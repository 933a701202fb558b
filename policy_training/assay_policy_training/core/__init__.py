"""Batches, prompts, policies and the tensor functions that every plug-in uses."""
