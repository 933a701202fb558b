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
        if now.paths[path] is None or now.paths[path] != before.paths.get(path)
    ]


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
