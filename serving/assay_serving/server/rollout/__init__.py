"""Replacing a served model: swap policies, shadow scoring, agreement, drift."""
