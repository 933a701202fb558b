"""Accounts of a workspace: roles, passwords, sessions, invitations, and the audit log, in one SQLite file."""
