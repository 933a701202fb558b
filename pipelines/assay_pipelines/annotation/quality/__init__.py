"""How well annotators annotate and how far they agree."""
