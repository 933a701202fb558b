"""Outcomes of an evaluation that goes on: kept as they are made, so that a killed one does not score them again.

A journal is a file of JSON Lines, a line for each part of the items, named by the hash of what was asked: the items and
the model as it was read. It is removed once the results are stored. Leaves out: scoring (`scoring.py`), results that
are kept (`stored_results.py`), scoring on shards (`assay_serving.sharded_scorer`, which keeps its own).
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assay.conversation.message import response_form
from assay.runs.json_log import JsonLog
from assay.runs.progress_bar import Advance, silent
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome

FOLDER = "evaluations"
PART = 512  #: responses scored between two writes
#: Outcomes of a part of the items, and what else is counted of it.
Scored = tuple[Sequence[Outcome], Mapping[str, Any]]


class OutcomeJournals:
    """Of the models of one evaluation. `folder`: None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._used: list[Path] = []

    def complete(
        self,
        items: Sequence[BenchmarkItem],
        model: Mapping[str, Any],
        score: Callable[[Sequence[BenchmarkItem]], Scored],
        *,
        part: int = PART,
        unit: Callable[[BenchmarkItem], int] = lambda case: len(case.responses),
        advance: Advance = silent,
    ) -> tuple[list[Outcome], list[Mapping[str, Any]]]:
        """An outcome for each item, and what was counted of the parts: from the journal, else by `score`, which is
        asked for parts of about `part` responses. `model`: everything that a score depends on. `unit`: what `advance`
        counts of an item that the journal has."""
        log = self._log(items, model)
        outcomes_by_key: dict[str, Outcome] = {}
        counted: list[Mapping[str, Any]] = []
        for row in log.rows() if log is not None else ():
            outcomes_by_key.update({key: _outcome(values) for key, values in row["outcomes"].items()})
            counted.append(row["counted"])
        if log is not None and outcomes_by_key:
            log.replace(log.rows())  # without an incomplete last line
            advance(sum(unit(case) for case in items if case.key in outcomes_by_key))
        for members in _parts([case for case in items if case.key not in outcomes_by_key], part):
            outcomes, counts = score(members)
            mine = dict(zip((case.key for case in members), outcomes, strict=True))
            if log is not None:
                log.add({"outcomes": {key: _without_defaults(one) for key, one in mine.items()}, "counted": counts})
                log.sync()
            outcomes_by_key.update(mine)
            counted.append(counts)
        return [outcomes_by_key[case.key] for case in items], counted

    def remove(self) -> None:
        """What these models' evaluation left, now that its results are stored."""
        for path in self._used:
            path.unlink(missing_ok=True)
        if self.folder is not None:
            with suppress(OSError):  # of another evaluation, or gone
                self.folder.rmdir()

    def _log(self, items: Sequence[BenchmarkItem], model: Mapping[str, Any]) -> JsonLog | None:
        if self.folder is None:
            return None
        digest = hashlib.sha256(json.dumps(dict(model), sort_keys=True, default=str).encode())
        for case in items:
            texts = [[turn.to_dict() for turn in case.prompt], [response_form(r) for r in case.responses]]
            digest.update(json.dumps([case.key, case.principle, case.steps, *texts]).encode())
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{digest.hexdigest()[:24]}.jsonl"
        self._used.append(path)
        return JsonLog(path, allow_nan=True)


def _parts(items: Sequence[BenchmarkItem], size: int) -> list[list[BenchmarkItem]]:
    parts: list[list[BenchmarkItem]] = []
    room = 0
    for case in items:
        if room <= 0:
            parts.append([])
            room = size
        parts[-1].append(case)
        room -= len(case.responses)
    return parts


def _without_defaults(outcome: Outcome) -> dict[str, Any]:
    return {name: value for name, value in asdict(outcome).items() if value not in (None, False)}


def _outcome(values: Mapping[str, Any]) -> Outcome:
    lists = {name: tuple(values[name]) for name in ("scores", "decisions") if name in values}
    return Outcome(**lists, failure=values.get("failure"), truncated=values.get("truncated", False))
