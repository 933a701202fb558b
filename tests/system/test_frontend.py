"""The page's own checks: types, style, component tests, and that its types are those of the routes."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FRONTEND = REPOSITORY / "web" / "frontend"


def npm(*command: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which("npm")
    if found is None or not (FRONTEND / "node_modules").is_dir():
        pytest.skip("no npm, or no web/frontend/node_modules (python web/build_frontend.py makes it)")
    return subprocess.run([found, *command], cwd=FRONTEND, capture_output=True, text=True, check=False)


def described() -> ModuleType:
    spec = importlib.util.spec_from_file_location("describe_api", REPOSITORY / "web" / "describe_api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_types_are_those_of_the_routes() -> None:
    kept = (FRONTEND / "openapi.json").read_text(encoding="utf-8")
    assert json.loads(described().description()) == json.loads(kept), "run python web/describe_api.py"


def test_types_and_style_of_the_page() -> None:
    done = npm("run", "--silent", "check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_components() -> None:
    done = npm("test", "--silent")
    assert done.returncode == 0, done.stdout + done.stderr
