"""What a source's labels are worth, estimated on gold, and what follows from it."""
