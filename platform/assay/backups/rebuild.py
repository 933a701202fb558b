"""A workspace's store made anew: from its redo log, then the votes of its journal.

Covers: what `assay rebuild` and `assay restore` do to the store, and what they report. Leaves out: the log and the file
(`assay.store.rebuilding`), the queues' own state (`annotation.sqlite` is rebuilt from store and journal when opened).
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from assay.annotation.vote_journal import fold, fold_again
from assay.store.rebuilding import rebuild_store
from assay.workspace import Workspace


@dataclass(frozen=True)
class RebuildReport:
    """`rows`: by table, as the log has them. `votes`: of the journal that the log did not have. `problems`: what could
    not be read, one line each; all else is in the store."""

    units: int
    rows: dict[str, int]
    votes: int
    old_file: Path | None
    problems: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"old_file": str(self.old_file) if self.old_file is not None else None}


def rebuild(workspace: Workspace, *, advance: Callable[[int], object] = lambda n: None) -> RebuildReport:
    """Raises BackendError where there is no log, BusyError where another process holds the store."""
    made = rebuild_store(workspace.store, advance=advance)
    earlier, waiting = fold_again(workspace), fold(workspace)
    return RebuildReport(
        made.replay.units,
        dict(sorted(made.replay.rows.items())),
        earlier.new + waiting.new,
        made.old_file,
        [*made.replay.problems, *earlier.problems, *waiting.problems],
    )
