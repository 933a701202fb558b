"""examples/plugin_package: installed, listed with its origin, and the commands of its README run as they stand."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from console_page import PORT, VARIABLES, check_output, read_page
from reserved_ports import reserved_port

REPOSITORY = Path(__file__).resolve().parents[3]
PACKAGE = REPOSITORY / "examples" / "plugin_package"
RUNNER = REPOSITORY / "tests" / "support" / "console_page.py"
NAME = "assay-tickets"
MEMBERS = {
    "importer": "tickets",
    "judge": "style-guide",
    "question_type": "reasoned",
    "verifier": "mentions_ticket",
    "loss": "symmetric_sigmoid",
    "benchmark": "tickets",
    "dialect": "best-of",
    "estimator": "group_median",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of an environment in which the package is installed, into a folder of its own."""
    pytest.importorskip("pip", reason="no pip in this environment")
    pytest.importorskip("hatchling", reason="no hatchling to build it with: pip install 'assay[test]'")
    folder = tmp_path_factory.mktemp("plugin_package")
    source, target = shutil.copytree(PACKAGE, folder / "source"), folder / "site"
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    paths = [str(target), os.environ.get("PYTHONPATH", "")]
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return {**environment, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def python(environment: dict[str, str], *arguments: str, cwd: Path) -> Any:
    """The last line that Python printed, read as JSON."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_each_member_is_listed_with_its_origin(installed: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import json; from assay.registry import all_kinds; "
        "print(json.dumps([[k.name, m.name, m.origin] for k in all_kinds() for m in k.entries()]))"
    )
    listed = python(installed, "-c", code, cwd=tmp_path)
    assert {kind: name for kind, name, origin in listed if origin == NAME} == MEMBERS


@pytest.mark.slow(reason="minutes; test_extending runs a plug-in of every kind, and each member is listed above")
def test_the_commands_of_its_readme(installed: dict[str, str], tmp_path: Path) -> None:
    folder = shutil.copytree(PACKAGE, tmp_path / "package", ignore=shutil.ignore_patterns("src"))
    port = str(reserved_port())
    serve = folder / "serve.yaml"
    serve.write_text(serve.read_text(encoding="utf-8").replace(PORT, port), encoding="utf-8")
    _, commands = read_page(folder / "README.md", port)
    outputs = python(installed, str(RUNNER), "README.md", port, cwd=folder)
    for command, text in zip(commands, outputs, strict=True):
        check_output(command, text)
    files = [path for path in folder.iterdir() if path.is_file() and path.name != "pyproject.toml"]
    used = "\n".join(path.read_text(encoding="utf-8") for path in files)
    assert all(name in used for name in MEMBERS.values())
