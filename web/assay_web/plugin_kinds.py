"""The kinds of plug-ins that the web pages can be extended by, for `assay plugins` and the registry."""

from typing import Any

from assay.registry import Kind

KINDS: tuple[Kind[Any], ...] = ()
