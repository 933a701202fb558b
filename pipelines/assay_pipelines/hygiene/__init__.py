"""Data hygiene: cleaning, deduplication, near-duplicates, contamination, statistics."""
