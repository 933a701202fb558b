"""What people write about a run: a note, tags, and whether it is archived, which takes it out of lists.

Covers: reading and changing them; the change is recorded with a name. Leaves out: what the run records of itself
(`assay.runs.record`), removing its files (`assay.runs.catalogue`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.errors import BadInputError, NotFoundError
from assay.store.database import Connection
from assay.workspace import Workspace

LONGEST_NOTE = 20_000  #: characters
LONGEST_TAG = 60
MOST_TAGS = 30


@dataclass(frozen=True)
class RunNote:
    """Of a run that nobody wrote about: all of it empty."""

    note: str = ""
    tags: tuple[str, ...] = ()
    archived: bool = False


def notes_of(db: Connection, runs: Sequence[str]) -> dict[str, RunNote]:
    """Of those runs that have one."""
    rows = db.execute(
        "SELECT run_id, note, tags, archived FROM run_notes WHERE run_id IN (SELECT unnest($runs))",
        {"runs": list(runs)},
    ).fetchall()
    return {run: RunNote(note, tuple(tags), archived) for run, note, tags, archived in rows}


def change_notes(
    workspace: Workspace,
    runs: Sequence[str],
    *,
    by: str,
    note: str | None = None,
    add_tags: Sequence[str] = (),
    remove_tags: Sequence[str] = (),
    archived: bool | None = None,
) -> dict[str, RunNote]:
    """Change what is given and leave the rest; of all the runs or of none. Raises NotFoundError, BadInputError."""
    added = [tag for text in add_tags if (tag := " ".join(text.split()))]
    if note is not None and len(note) > LONGEST_NOTE:
        raise BadInputError(f"at most {LONGEST_NOTE} characters, not {len(note)}", field="note")
    if any(len(tag) > LONGEST_TAG for tag in added):
        raise BadInputError(f"a tag has at most {LONGEST_TAG} characters", field="tags")
    with workspace.store.unit() as db:
        rows = db.execute("SELECT run_id FROM runs WHERE list_contains($runs, run_id)", {"runs": list(runs)})
        if missing := set(runs) - {run for (run,) in rows.fetchall()}:
            raise NotFoundError(f"no run {', '.join(sorted(missing))}; assay runs lists them")
        before = notes_of(db, runs)
        after = {}
        for run in dict.fromkeys(runs):
            old = before.get(run, RunNote())
            tags = tuple(tag for tag in dict.fromkeys([*old.tags, *added]) if tag not in remove_tags)
            if len(tags) > MOST_TAGS:
                raise BadInputError(f"{run} would have {len(tags)} tags, over {MOST_TAGS}", field="tags")
            after[run] = RunNote(
                old.note if note is None else note.strip(), tags, old.archived if archived is None else archived
            )
        for run, new in after.items():
            db.execute(
                "INSERT OR REPLACE INTO run_notes VALUES (?, ?, ?, ?, ?, now())",
                [run, new.note, list(new.tags), new.archived, by],
            )
    return after
