"""Annotation in a terminal: key presses, the item as text, one annotator's session."""
