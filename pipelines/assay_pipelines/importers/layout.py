"""The base classes of layouts, which say what the records of a file mean.

Leaves out: the names of the layouts (`kind`), choosing one (`recognition`), the layouts themselves (`formats`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from assay.data.json_lines import RowError
from assay_pipelines.importers.rows import RatedCompletion, Row

JsonRecord: TypeAlias = Mapping[str, Any]
NOTHING = "nothing to read: no label, rating or text"  #: why a record is rejected of which nothing is imported


class RecordLayout:
    """Base class of layouts, which turn one record into preference pairs or statements about responses.

    `title`: the layout's name for users; "": its docstring's first line. `source`: name of the data set in the store
    where neither rows nor caller give one (None: the file's name). `note`: a warning that is shown with the title.
    `mappable`: whether `--map` may rename its columns.
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
        return self.title or (self.__doc__ or "").partition("\n")[0].rstrip(".")

    def describe(self, records: Iterable[JsonRecord]) -> str:
        """The title for a source, with the note."""
        title = self.title_of(next((record for record in records if self.matches(record)), {}))
        return f"{title} ({self.note})" if self.note else title


class JoinedLayout(RecordLayout):
    """Base class of layouts whose pairs take two records: completions of one prompt that are rated differently.

    `completion_field`, `label_field`: columns that rejects name. `unmatched`: why a record without a partner is
    rejected, if `parse` gives no rows of it either.
    """

    completion_field: str
    label_field: str
    unmatched: str

    def completions(self, record: JsonRecord) -> list[RatedCompletion]:
        """The rated completions of one record. Raises RowError."""
        raise NotImplementedError

    def parse(self, record: JsonRecord) -> list[Row | RowError]:
        """What the record says beside its part of pairs. Raises RowError."""
        return []

    def read(self, record: JsonRecord) -> tuple[list[Row | RowError], list[RatedCompletion]]:
        """`parse` and `completions` of one record."""
        return self.parse(record), self.completions(record)


class GroupedLayout(RecordLayout):
    """Base class of layouts whose rows take several records of a file, in any order. `parse` is what a record says by
    itself, for recognising and previewing it."""

    def group_of(self, record: JsonRecord) -> str:
        """What the records of a group share. Raises RowError."""
        raise NotImplementedError

    def parse_group(self, records: list[tuple[int, dict[str, Any]]]) -> Iterable[tuple[int, Row | RowError]]:
        """The rows of a group's numbered records, each with the number of its record."""
        raise NotImplementedError
