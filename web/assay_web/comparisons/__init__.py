"""The area Data: looking through comparisons, one comparison with all that is known of it, lineage."""
