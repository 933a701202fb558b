"""What code a benchmark measures: the paths that a script declares, their state in git, what has changed since.

Covers: `declared` (the MEASURES of a script, read without running it), `state` (git's object id of each path, so
that a rebase changes nothing), `changed` (what differs from a stored state). Leaves out: the text of the script itself.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parent
ROOT = BENCHMARKS.parent
#: Results carry these where they are installed, beside the peers that a script names.
CORE_PACKAGES = ("torch", "transformers", "numpy", "duckdb", "polars", "pyarrow")


@dataclass(frozen=True)
class CodeState:
    """`commit`: the newest that changed one of `paths`; `dirty`: one of them had changes that were not committed."""

    commit: str | None
    dirty: bool
    paths: dict[str, str | None]

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> CodeState:
        """As a baseline has it; one without it says that nothing is known."""
        return cls(stored.get("commit"), bool(stored.get("dirty")), dict(stored.get("paths") or {}))


def state(paths: Sequence[str], root: Path = ROOT) -> CodeState:
    """The code under `paths` (relative to the repository's root) as it is now; all unknown without git."""
    commit = _git(root, "log", "-1", "--format=%h", "--abbrev=10", "--", *paths) if paths else None
    dirty = bool(paths) and bool(_git(root, "status", "--porcelain", "--", *paths))
    return CodeState(commit or None, dirty, {path: _git(root, "rev-parse", f"HEAD:{path}") for path in paths})


def changed(paths: Sequence[str], before: CodeState, root: Path = ROOT) -> list[str]:
    """Why figures of the state `before` are older than the code under `paths`; empty if they are not."""
    if not before.commit or not before.paths:
        return ["no commit is recorded"]
    if before.dirty:
        return [f"measured with changes that were not committed, after {before.commit}"]
    now = state(paths, root)
    return [
        f"{path} was not measured" if path not in before.paths else f"{path} has changed since {before.commit}"
        for path in paths
        if now.paths[path] is None or not _runs_alike(root, now.paths[path], before.paths.get(path))
    ]


def _runs_alike(root: Path, one: str | None, other: str | None) -> bool:
    """Whether two git objects, files or folders, hold the same modules with the same code."""
    if one == other or one is None or other is None:
        return one == other
    now, before = _modules(root, one), _modules(root, other)
    if now is None or before is None or now.keys() != before.keys():
        return False
    return all(now[name] == before[name] or _code(root, now[name]) == _code(root, before[name]) for name in now)


def _modules(root: Path, object_id: str) -> dict[str, str] | None:
    """The git object of each file by its name in the folder, "" for a file; None if git does not have them."""
    kind = _git(root, "cat-file", "-t", object_id)
    if kind == "blob":
        return {"": object_id}
    listing = _git(root, "ls-tree", "-r", "--format=%(objectname) %(path)", object_id) if kind == "tree" else None
    if listing is None:
        return None
    return {name: blob for blob, _, name in (line.partition(" ") for line in listing.splitlines())}


def _code(root: Path, blob: str) -> str:
    """What a file does, without its docstrings; a file that is no Python as it is, one that is missing as its id."""
    text = _git(root, "cat-file", "blob", blob)
    if text is None:
        return blob
    try:
        tree = ast.parse(text or "")
    except SyntaxError:
        return text
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:]
    return ast.dump(tree)


def scripts() -> dict[str, Path]:
    """Each file of the benchmarks by the name of its results: `gpu/grpo_steps.py` is `gpu_grpo_steps`."""
    paths = BENCHMARKS.rglob("*.py")
    return {"_".join(path.relative_to(BENCHMARKS).with_suffix("").parts): path for path in paths}


def declared(script: Path) -> tuple[str, ...] | None:
    """The script's `MEASURES`; None where it has none."""
    for node in ast.parse(script.read_text()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["MEASURES"]:
            paths: tuple[str, ...] = tuple(ast.literal_eval(node.value))
            return paths
    return None


def _git(root: Path, *words: str) -> str | None:
    try:
        ended = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return ended.stdout.strip() if ended.returncode == 0 else None
