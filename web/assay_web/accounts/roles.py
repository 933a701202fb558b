"""The roles a person may have, each with all that the ones before it may do."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

#: viewer: look. annotator: vote. curator: run stages, make queues, adjudicate. admin: accounts.
Role: TypeAlias = Literal["viewer", "annotator", "curator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)


def allows(role: Role, needed: Role) -> bool:
    return ROLES.index(role) >= ROLES.index(needed)
