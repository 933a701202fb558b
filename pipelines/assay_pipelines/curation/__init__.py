"""Curation: deciding which labels to trust. Every comparison that is looked at gets a decision with a reason."""
