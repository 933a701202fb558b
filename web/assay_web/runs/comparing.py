"""Runs side by side: the settings in which they differ."""

from __future__ import annotations

from collections.abc import Sequence

from assay.workspace import Workspace
from assay_web.report.pages.runs import flattened
from assay_web.runs.records import Record, named_values, row_of
from assay_web.runs.replies import ComparedRuns, Difference


def compared(records: Sequence[Record], workspace: Workspace) -> ComparedRuns:
    settings = [{entry.name: entry.value for entry in named_values(flattened(r.settings))} for r in records]
    names = list(dict.fromkeys(name for found in settings for name in found))
    differences = [Difference(name=name, values=[found.get(name) for found in settings]) for name in names]
    differences = [entry for entry in differences if len(set(entry.values)) > 1]
    return ComparedRuns(
        runs=[row_of(record, workspace) for record in records],
        differences=differences,
        same=len(names) - len(differences),
    )
