"""Judges that were trained elsewhere: each asked and read as it was trained."""
