"""Files that people bring in the browser: received in pieces, looked into, imported."""
