"""The page's own checks: component tests, and that its types are those of the routes. `make lint` has its style."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
FRONTEND = REPOSITORY / "web" / "frontend"


def module(name: str) -> ModuleType:
    """A script of the folder web, which is no package."""
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "web" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def npm(*arguments: str) -> subprocess.CompletedProcess[str]:
    building = module("build_frontend")
    try:
        command, environment = building.npm_command()
    except building.BuildError as error:
        pytest.skip(str(error))
    if not (FRONTEND / "node_modules").is_dir():
        pytest.skip("no web/frontend/node_modules (python web/build_frontend.py --force makes it)")
    return subprocess.run(
        [*command, *arguments], cwd=FRONTEND, env=environment, capture_output=True, text=True, check=False
    )


def test_the_pages_types_are_those_of_the_routes() -> None:
    kept = (FRONTEND / "openapi.json").read_text(encoding="utf-8")
    assert json.loads(module("describe_api").description()) == json.loads(kept), "run python web/describe_api.py"


@pytest.mark.slow
def test_components() -> None:
    done = npm("test", "--silent")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_lock_file_names_no_registry() -> None:
    """Each machine has its own; web/frontend/.npmrc keeps npm from writing it down."""
    packages = json.loads((FRONTEND / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert len(packages) > 100
    assert not [name for name, kept in packages.items() if "resolved" in kept]
    assert not [name for name, kept in packages.items() if name and "integrity" not in kept]
