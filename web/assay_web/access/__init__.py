"""Who may do what: the person of a request, required roles, audited routes, and the routes of accounts."""
