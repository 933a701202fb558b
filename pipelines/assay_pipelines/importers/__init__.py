"""Readers of preference data: many formats in, the one intermediate form of `assay.store.intake` out."""
