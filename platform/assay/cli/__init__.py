"""The `assay` command: assembled from entry points, so no part is imported upward."""
