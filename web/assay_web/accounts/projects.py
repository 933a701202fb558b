"""Membership of people in projects: whose queues they see. A queue names its project (`assay queue create --project`).

A project is its queues and its members: it needs no making and no deleting. Administrators see every queue. Leaves out:
the queues (`assay_pipelines.annotation.queues`), what a member may do there (`assay_web.access.permissions`).
"""

from assay_pipelines.annotation.queues import check_project
from assay_web.accounts.access_file import AccessFile
from assay_web.accounts.accounts import account_row


def projects_of(access: AccessFile, name: str) -> list[str]:
    """In alphabetical order."""
    with access.reading() as db:
        return [row[0] for row in db.execute("SELECT project FROM members WHERE name = ? ORDER BY project", (name,))]


def members(access: AccessFile) -> dict[str, list[str]]:
    """Project -> the accounts that are members, both in alphabetical order."""
    with access.reading() as db:
        rows = db.execute("SELECT project, name FROM members ORDER BY project, name COLLATE NOCASE").fetchall()
    projects: dict[str, list[str]] = {}
    for row in rows:
        projects.setdefault(row["project"], []).append(row["name"])
    return projects


def join(access: AccessFile, name: str, project: str) -> None:
    """Make an account a member, with its next request. Raises NotFoundError, BadInputError."""
    check_project(project)
    with access.writing() as db:
        account_row(db, name)
        db.execute("INSERT OR IGNORE INTO members VALUES (?, ?)", (project, name))


def leave(access: AccessFile, name: str, project: str) -> None:
    """End a membership, with the next request. Raises NotFoundError for an unknown account."""
    with access.writing() as db:
        account_row(db, name)
        db.execute("DELETE FROM members WHERE project = ? AND name = ?", (project, name))
