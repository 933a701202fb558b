"""A client of `assay web`: push pairs to be annotated, pull votes and decisions as they come.

    from assay.client import WorkspaceClient

Light: imports nothing but httpx and the errors. Leaves out: scoring (`assay_serving.client`).
"""

from assay.client.records import PulledDecision, PulledVote, PushedRecords, QueueStanding, RecordError
from assay.client.workspace import WorkspaceClient

__all__ = ["PulledDecision", "PulledVote", "PushedRecords", "QueueStanding", "RecordError", "WorkspaceClient"]
