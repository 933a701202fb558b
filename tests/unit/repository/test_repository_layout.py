"""The folder `platform/` holds packages only: a module in it would replace Python's own `platform`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assay import __version__
from assay.runs.record import code_version

ROOT = Path(__file__).resolve().parents[3]


def test_no_module_lies_directly_in_platform() -> None:
    assert not list((ROOT / "platform").glob("*.py"))


def test_python_finds_its_own_platform_at_the_root() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import platform; print(platform.machine(), platform.__file__)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(ROOT) not in found.stdout.split()[-1] or "lib/python" in found.stdout


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_code_version_names_the_commit() -> None:
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    code_version.cache_clear()
    version = code_version()
    assert version.startswith(f"{__version__}+")
    assert version.split("+")[1].removesuffix("-dirty")[:7] == head[:7]
