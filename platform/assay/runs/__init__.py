"""Runs: their record, process, progress, lineage and metric logs, and the contamination gate before them."""
