"""S6: from rewards to advantages."""
