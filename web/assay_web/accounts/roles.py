"""The roles of accounts. What each may see and do is in `assay_web.access.permissions`."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Role: TypeAlias = Literal["viewer", "annotator", "curator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
