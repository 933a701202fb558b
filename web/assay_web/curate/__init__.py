"""Curation on the web: where the data went and why, how good everybody is, and starting the stages."""
