"""From raw data to curated snapshots: sources, cleaning, curation, exports."""
