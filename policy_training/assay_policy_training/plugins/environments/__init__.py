"""Environments that the policy acts in: turns, tools, rewards by turn and by episode."""
