"""What a workspace holds and what to do next, for the page that people begin at."""
