"""Who may see and do what: the permissions of each role, and what replies withhold for the sake of blind votes.

Every route asks for one permission (`guard`); the page gets the list with its session; exports are routes. An annotator
sees their queues and the item before them. Labels, pools, votes, names, sources, judges' opinions, scores, quality,
runs and lineage are records, which annotators may not read: what somebody has read cannot be made unread when the next
queue opens. Leaves out: who is a member of which project (`assay_web.accounts.projects`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, TypeVar

from assay_pipelines.annotation.quality.agreement import AgreementReport
from assay_pipelines.annotation.quality.annotators import OwnFigures
from assay_pipelines.annotation.queue_options import SuggestionTime
from assay_web.accounts.accounts import Role
from assay_web.accounts.sessions import Person

T = TypeVar("T")

#: queues: one's own session and the queues one may be asked in, without counts or people. vote: items of these queues.
#: records: comparisons, labels, votes, runs, rewards and lineage. curate: run stages, make queues, adjudicate, export.
#: administer: accounts, projects and the audit log.
Permission: TypeAlias = Literal["queues", "vote", "records", "curate", "administer"]

PERMISSIONS: dict[Role, tuple[Permission, ...]] = {
    "viewer": ("queues", "records"),
    "annotator": ("queues", "vote"),
    "curator": ("queues", "vote", "records", "curate"),
    "admin": ("queues", "vote", "records", "curate", "administer"),
}


def may(person: Person, permission: Permission) -> bool:
    return permission in PERMISSIONS[person.role]


def is_within(role: Role, other: Role) -> bool:
    """Whether who has `other` may do all that `role` may."""
    return set(PERMISSIONS[role]) <= set(PERMISSIONS[other])


def role_by_token(role: Role, token_role: Role) -> Role | None:
    """The role of a program with a token that was made for `token_role`, in the name of somebody who has `role` now:
    the lesser one. None if neither is: an annotator's program reads no records by a viewer's token of theirs."""
    if is_within(token_role, role):
        return token_role
    return role if is_within(role, token_role) else None


def roles_with(permission: Permission) -> list[Role]:
    """In ascending order."""
    return [role for role, permissions in PERMISSIONS.items() if permission in permissions]


def visible_agreement(person: Person, report: AgreementReport, *, closed: bool) -> AgreementReport | None:
    """None for an annotator while the queue is open: with one item that two have voted on, the agreement is the
    other's vote."""
    return report if closed or may(person, "records") else None


def visible_own_figures(person: Person, figures: OwnFigures, *, closed: bool) -> OwnFigures:
    """Without the comparison with others, for an annotator while the queue is open."""
    if closed or may(person, "records"):
        return figures
    return replace(figures, compared=0, agreed=0, agreement=None)


def visible_opinions(person: Person, opinions: Sequence[T], suggestions: SuggestionTime) -> list[T]:
    """Judges' opinions on an item after its vote: none for an annotator, who can undo the vote and cast another, but
    where the queue shows them; the other vote's record then says so."""
    return list(opinions) if may(person, "records") or suggestions != "never" else []


def sees_queue(person: Person, *, assigned: bool) -> bool:
    """Whether a member of its project sees a queue: who is not asked in it does only to read its records."""
    return assigned or may(person, "records")
