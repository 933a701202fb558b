"""Principles (RLBFF): from annotators' free-text feedback to yes/no judgments on which they agree."""
