"""Chat templates: rendering conversations into tokens, and reading rendered texts back."""
