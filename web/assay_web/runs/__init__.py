"""Runs on the web: the list, a run's page with live curves and samples, comparing runs, ending one."""
