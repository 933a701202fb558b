"""Alerts about runs: rules, their evaluation by the web server, what rang."""
