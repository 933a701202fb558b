"""Assay's platform: domain types, workspace, DuckDB store, lineage, models and chat templates, the `assay` command."""

import os

__version__ = "0.1.0"

# Read by torch when it is imported: its large blocks are of huge pages where the system allows them (madvise), since
# a training step on a CPU otherwise spends a fifth of its time on page faults (docs/reward-models/speed.md).
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
