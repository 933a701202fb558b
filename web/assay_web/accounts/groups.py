"""Groups of people in a project: named lists, to which queues can be assigned. A name without an account belongs to
nobody yet.

Leaves out: who is a member of a project (`projects`), which queues are whose (`assay_web.access.queue_access`).
"""

from collections.abc import Sequence

from assay.errors import BadInputError
from assay_web.accounts.access_file import AccessFile

LONGEST = 100


def groups_in(access: AccessFile, project: str) -> dict[str, list[str]]:
    """Group -> its people, both in alphabetical order."""
    with access.reading() as db:
        rows = db.execute(
            "SELECT name, member FROM person_groups WHERE project = ? ORDER BY name, member COLLATE NOCASE", (project,)
        ).fetchall()
    groups: dict[str, list[str]] = {}
    for row in rows:
        groups.setdefault(row["name"], []).append(row["member"])
    return groups


def groups_of(access: AccessFile, project: str, person: str) -> set[str]:
    """Those of the project that the person is in."""
    with access.reading() as db:
        rows = db.execute("SELECT name FROM person_groups WHERE project = ? AND member = ?", (project, person))
        return {row["name"] for row in rows}


def set_group(access: AccessFile, project: str, name: str, people: Sequence[str]) -> None:
    """These are the group from now on; without people there is none any more. Raises BadInputError for a bad name."""
    name = " ".join(name.split())
    if not name or len(name) > LONGEST or not name.isprintable():
        raise BadInputError(f"a group's name has 1 to {LONGEST} printable characters", field="name")
    with access.writing() as db:
        db.execute("DELETE FROM person_groups WHERE project = ? AND name = ?", (project, name))
        rows = [(project, name, member) for member in dict.fromkeys(people)]
        db.executemany("INSERT INTO person_groups VALUES (?, ?, ?)", rows)
