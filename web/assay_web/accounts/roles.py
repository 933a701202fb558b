"""Roles in ascending order; each includes the permissions of those before it."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

#: viewer: look. annotator: vote. curator: run stages, make queues, adjudicate. admin: accounts.
Role: TypeAlias = Literal["viewer", "annotator", "curator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)


def allows(role: Role, needed: Role) -> bool:
    return ROLES.index(role) >= ROLES.index(needed)
