"""Long work in processes of its own, which outlives the web server: starting, output, outcome."""
