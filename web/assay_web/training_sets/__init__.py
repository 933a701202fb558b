"""Training sets: making snapshots from the page, what they hold, downloading them."""
