"""Comparison of runs: the settings in which they differ."""

from __future__ import annotations

from collections.abc import Sequence

from assay.workspace import Workspace
from assay_web.report.pages.runs import flattened
from assay_web.runs.records import RunRecord, named_values, row_of
from assay_web.runs.replies import ComparedRuns, SettingDifference


def compared(records: Sequence[RunRecord], workspace: Workspace) -> ComparedRuns:
    settings = [{entry.name: entry.value for entry in named_values(flattened(r.settings))} for r in records]
    names = list(dict.fromkeys(name for setting in settings for name in setting))
    differences = [SettingDifference(name=name, values=[setting.get(name) for setting in settings]) for name in names]
    differences = [entry for entry in differences if len(set(entry.values)) > 1]
    return ComparedRuns(
        runs=[row_of(record, workspace) for record in records],
        differences=differences,
        same=len(names) - len(differences),
    )
