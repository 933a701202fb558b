"""Label Studio as the place where people vote: projects, pushing comparisons, pulling votes, webhooks."""
