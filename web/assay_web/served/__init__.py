"""Reward servers (`assay serve`) that were started from the page and outlive the web server."""
