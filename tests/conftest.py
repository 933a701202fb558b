"""Fixtures shared by the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.workspace import Workspace

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real preference data, $ASSAY_SHARED_DATA or ../shared/data; the test is skipped without it."""
    folder = Path(os.environ.get("ASSAY_SHARED_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}: set ASSAY_SHARED_DATA")
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A new, empty workspace."""
    return Workspace.create(tmp_path / "workspace")
