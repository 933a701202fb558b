"""Webhooks: events of the workspace, told to other programs over HTTP, signed, and retried until they are taken."""
