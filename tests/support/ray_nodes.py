"""A Ray cluster of nodes of this machine.

Leaves out: what is done on it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

#: Of every cluster of this process: Ray reads it once.
TOKEN = secrets.token_hex(32)


@contextmanager
def two_nodes() -> Iterator[Any]:
    """Two nodes with one slot each, which refuse whoever has no token; their workers import the modules beside this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # it kills workers of a machine whose memory others use
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
        import ray
        from ray.cluster_utils import Cluster

        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        nodes.add_node(num_cpus=1, include_dashboard=False)
        try:
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()
