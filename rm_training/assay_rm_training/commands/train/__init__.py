"""The commands of `assay train`."""
