"""The ways to ask annotators about an item: one module per question type."""
