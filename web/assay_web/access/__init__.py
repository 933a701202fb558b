"""Who may do what: accounts with roles, sessions, and the record of every change."""
