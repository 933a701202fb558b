"""The HTTP layer of `assay web`: middleware for bodies, origins and threads, the page, reward server child."""
