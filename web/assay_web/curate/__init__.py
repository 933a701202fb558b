"""Curation: the funnel, quality of annotators and judges, conflicts, contamination, and running stages."""
