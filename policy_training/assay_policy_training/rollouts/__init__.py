"""Rollouts of a step: generating (also beside training), rewarding and collecting them."""
