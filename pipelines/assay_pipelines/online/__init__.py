"""A policy's training that buys labels as it goes on: which pairs are labelled, who labels them, what is refitted."""
