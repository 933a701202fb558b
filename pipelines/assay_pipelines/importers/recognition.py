"""Choosing the layout of a source: by its name, or by reading the first records with each.

A single record decides nothing: one response that begins with "Human:" is no dialogue of HH-RLHF.
"""

from collections.abc import Sequence

from assay.data.json_lines import RowError
from assay.errors import BadInputError
from assay.registry import unknown
from assay_pipelines.importers.kind import FAMILIES, IMPORTERS, create_layout, layout_names
from assay_pipelines.importers.layout import JoinedLayout, JsonRecord, RecordLayout
from assay_pipelines.importers.rows import RatedCompletion, Row

MATCHED = 0.9  #: of the records that the most general layout matches
READ = 0.25  #: of the records that the best layout reads


def members_of(name: str) -> list[RecordLayout]:
    """The layout of that name or reference, or the members of a family. Raises BadInputError for an unknown name."""
    if name not in FAMILIES and name not in IMPORTERS.names() and not (":" in name or name.endswith((".yaml", ".yml"))):
        more = "module:Name, file.py:Name or file.yaml"
        raise unknown("format", name, layout_names(), field="format", more=more)
    return [create_layout(member) for member in FAMILIES.get(name, (name,))]


def recognise(records: Sequence[JsonRecord], *, mapped: bool) -> RecordLayout | None:
    """The layout that reads the records; those of installed packages are tried before the built-in ones. None where
    under half of the records have it.

    `mapped`: columns were renamed, so only general layouts apply.
    """
    installed = [name for name in IMPORTERS.names() if name not in IMPORTERS.members]
    layouts: list[RecordLayout] = [IMPORTERS.create(name) for name in (*installed, *IMPORTERS.members)]
    best = _best([layout for layout in layouts if layout.mappable or not mapped], records)
    return best if best is not None and 2 * sum(map(best.matches, records)) >= len(records) else None


def select_layout(name: str, records: Sequence[JsonRecord]) -> RecordLayout:
    """The layout of that name; of a family, the member that reads the records. Raises BadInputError for none."""
    layouts = members_of(name)
    if len(layouts) == 1:
        return layouts[0]
    best = _best(layouts, records)
    if best is None and name != "trl":
        raise BadInputError(f"the rows are none of {', '.join(FAMILIES[name])}", field="format")
    return best or layouts[0]


def _best(layouts: Sequence[RecordLayout], records: Sequence[JsonRecord]) -> RecordLayout | None:
    """The first of the layouts that nearly as many records have as have any, and that reads its share of them; where
    there is none, the one that reads most. None where no record has any of the layouts.

    The first, because a special layout says more of a record than a general one that reads it too. A share, because it
    also refuses more: what is no comparison in its terms.
    """
    matching = [[record for record in records if layout.matches(record)] for layout in layouts]
    if not any(matching):
        return None
    reads = [sum(_is_read(layout, record) for record in some) for layout, some in zip(layouts, matching, strict=True)]
    most, best = max(map(len, matching)), max(reads)
    likely = [
        layout
        for layout, some, count in zip(layouts, matching, reads, strict=True)
        if len(some) >= MATCHED * most and count >= READ * best
    ]
    return likely[0] if likely else layouts[reads.index(best)]


def _is_read(layout: RecordLayout, record: JsonRecord) -> bool:
    return any(not isinstance(row, RowError) for row in trial_parse(layout, record))


def trial_parse(layout: RecordLayout, record: JsonRecord) -> list[Row | RatedCompletion | RowError]:
    """What the layout reads in one record: its rows and the completions that wait for a partner; its RowErrors."""
    try:
        rows, completions = layout.read(record) if isinstance(layout, JoinedLayout) else (layout.parse(record), [])
        return [*rows, *completions]
    except RowError as error:
        return [error]
