"""Untrusted code and slow checks in processes that can be killed."""
