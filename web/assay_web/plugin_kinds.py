"""The kinds of plug-ins that the web pages can be extended by, for `assay plugins` and the registry."""

from typing import Any

from assay.registry import Kind
from assay_web.jobs.kind import JOB_KINDS

KINDS: tuple[Kind[Any], ...] = (JOB_KINDS,)
