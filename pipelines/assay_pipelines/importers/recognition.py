"""Choosing the layout of a source: by its name, or from the first records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.errors import BadInputError
from assay.registry import unknown
from assay_pipelines.importers.kind import FAMILIES, IMPORTERS, layout_names
from assay_pipelines.importers.layout import JsonRecord, RecordLayout


def members_of(name: str) -> list[RecordLayout]:
    """The layout of that name or reference, or the members of a family. Raises BadInputError for an unknown name."""
    if name not in FAMILIES and name not in IMPORTERS.names() and ":" not in name:
        raise unknown("format", name, layout_names(), field="format", more="module:Name or file.py:Name")
    return [IMPORTERS.create(member, folder=Path()) for member in FAMILIES.get(name, (name,))]


def recognise(records: Sequence[JsonRecord], *, mapped: bool) -> RecordLayout | None:
    """The first layout that any of the records has; those of installed packages are tried before the built-in ones.

    `mapped`: columns were renamed, so only general layouts apply.
    """
    installed = [name for name in IMPORTERS.names() if name not in IMPORTERS.members]
    for name in (*installed, *IMPORTERS.members):
        layout: RecordLayout = IMPORTERS.create(name)
        if (layout.mappable or not mapped) and any(layout.matches(record) for record in records):
            return layout
    return None


def select_layout(name: str, records: Sequence[JsonRecord]) -> RecordLayout:
    """The layout of that name; of a family, the member that the records show. Raises BadInputError for a bad choice."""
    layouts = members_of(name)
    matching = next((layout for layout in layouts if any(layout.matches(record) for record in records)), None)
    if matching is None and len(layouts) > 1 and name != "trl":
        raise BadInputError(f"the rows are none of {', '.join(FAMILIES[name])}", field="format")
    return matching or layouts[0]
