"""The kinds of plug-ins that the data pipelines can be extended by, for `assay plugins` and the registry."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

KINDS: tuple[Kind[Any], ...] = ()
