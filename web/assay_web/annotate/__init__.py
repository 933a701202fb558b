"""Queues and sittings: what people are asked, their votes, how far they agree."""
