"""Layouts that are described in YAML instead of written as classes; those of published data sets are in `published`."""
