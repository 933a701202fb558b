"""Near-duplicates: comparisons or prompts that share most of their word shingles, found by MinHash and verified."""
