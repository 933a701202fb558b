"""What the records of a file mean: the base classes of layouts, choosing one by name or from a file's first records.

Leaves out: containers (`containers`), the names of the layouts (`kind`), the layouts themselves (`formats`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from assay.data.json_lines import RowError
from assay.errors import BadInputError
from assay.registry import unknown
from assay_pipelines.importers.kind import FAMILIES, IMPORTERS, layout_names
from assay_pipelines.importers.rows import RatedCompletion, Row

JsonRecord: TypeAlias = Mapping[str, Any]


class RecordLayout:
    """Base class of layouts, which turn one record into preference pairs or statements about responses.

    `title`: the layout's name for users. `source`: name of the data set in the store where neither rows nor caller give
    one (None: the file's name). `note`: a warning that is shown with the title. `mappable`: whether `--map` may rename
    its columns.
    """

    title = ""
    source: str | None = None
    note = ""
    mappable = False

    def matches(self, record: JsonRecord) -> bool:
        """Whether the record has this layout. A layout that never matches is used only where it is named."""
        return False

    def parse(self, record: JsonRecord) -> list[Row | RowError]:
        """The rows of one record. Raises RowError for a record without any; returns it for a part of the record."""
        raise NotImplementedError

    def title_of(self, record: JsonRecord) -> str:
        """The title for a source whose first record is `record`."""
        return self.title

    def describe(self, records: Iterable[JsonRecord]) -> str:
        """The title for a source, with the note."""
        title = self.title_of(next((record for record in records if self.matches(record)), {}))
        return f"{title} ({self.note})" if self.note else title


class JoinedLayout(RecordLayout):
    """Base class of layouts whose pairs take two records: completions of one prompt with opposite labels.

    `completion_field`, `label_field`: columns that rejects name. `unmatched`: why a record without a partner is
    rejected.
    """

    completion_field: str
    label_field: str
    unmatched: str

    def completions(self, record: JsonRecord) -> list[RatedCompletion]:
        """The rated completions of one record. Raises RowError."""
        raise NotImplementedError


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
