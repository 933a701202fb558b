"""Stored baselines that are older than the code they measured. Exit status 1 if there is one.

    python benchmarks/stale.py [SCRIPT ...]

Covers: `stored_baselines`, and why each is stale: the code under a path of its script's MEASURES has
changed since, it was measured with uncommitted changes, or it has no commit. Leaves out: measuring again.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import BASELINES
from measured_code import CodeState, changed, declared, scripts


@dataclass(frozen=True)
class Baseline:
    """One stored result of the script `script`; `quick`: with --quick."""

    path: Path
    script: str
    quick: bool
    result: dict[str, Any]

    @property
    def code(self) -> CodeState:
        return CodeState.of(self.result.get("code", {}))

    def stale(self) -> list[str]:
        """Why it is older than the code; empty if it is not."""
        return changed(declared(scripts()[self.script]) or (), self.code)


def stored_baselines() -> list[Baseline]:
    """In order of the scripts' names; lists of cells (.jsonl) are left out."""
    return [
        Baseline(path, path.name.split(".")[0], path.name.endswith(".quick.json"), json.loads(path.read_text()))
        for path in sorted(BASELINES.glob("*.json"))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="of these scripts only, without .py")
    names = parser.parse_args().scripts
    stored = [baseline for baseline in stored_baselines() if not names or baseline.script in names]
    reasons = {baseline.path.name: baseline.stale() for baseline in stored}
    for name, why in reasons.items():
        if why:
            print(f"{name}: {'; '.join(why)}")
    print(f"{sum(map(bool, reasons.values()))} of {len(stored)} baselines are older than the code")
    sys.exit(any(reasons.values()))


if __name__ == "__main__":
    main()
