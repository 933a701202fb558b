"""Recorded votes as a judge: annotators' votes in the store, or a file. The annotators of an experiment.

A comparison without a recorded vote is a failure (`no_answer`) and costs nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay import ids
from assay.data.json_lines import Lines, RowError, parse_object
from assay.domain import ANSWERS, AnnotatorKind
from assay.errors import BadInputError, NotFoundError
from assay.ids import fraction
from assay.workspace import Workspace
from assay_pipelines.judging.asking import opinions
from assay_pipelines.judging.judge import JudgeFailure, OnResult, Vote
from assay_pipelines.judging.merging import OnSplit, merge_votes
from assay_pipelines.llm.annotators import config_hash
from assay_pipelines.llm.questions import Question

#: comparison ids -> their recorded votes, by voter.
Lookup = Callable[[Sequence[str]], Mapping[str, Mapping[str, Vote]]]


class RecordedJudge:
    """Merges the recorded votes on a comparison like a judge's own. Use `from_store` or `from_file`."""

    def __init__(
        self,
        lookup: Lookup,
        config: Mapping[str, Any],
        *,
        name: str = "recorded",
        kind: AnnotatorKind = "human",
        votes: int | None = None,
        limit: int | None = None,
        seed: int = 0,
        on_split: OnSplit = "tie",
    ) -> None:
        """`votes`: of each comparison, drawn by hash from those that voted; None = all. `limit`: questions answered by
        this object; past it `over_budget`."""
        if votes is not None and votes < 1:
            raise BadInputError(f"must be at least 1, not {votes}", field="votes")
        self.name, self.kind = name, kind
        self._lookup, self._votes, self._limit, self._seed, self._on_split = lookup, votes, limit, seed, on_split
        self._config = {**config, "votes": votes, "seed": seed, "on_split": on_split}
        self.given = 0

    @property
    def config(self) -> Mapping[str, Any]:
        return self._config

    @classmethod
    def from_store(
        cls,
        workspace: Workspace,
        *,
        kind: AnnotatorKind = "human",
        annotators: str = "%",
        exclude: Sequence[str] = (),
        **settings: Any,
    ) -> "RecordedJudge":
        """The votes of the store's annotators of this kind whose names match `annotators` (SQL LIKE: % for anything),
        without those whose ids are in `exclude`. Raises NotFoundError where there are none."""
        with workspace.store.unit() as db:
            rows = db.execute(  # votes that a recorded judge repeats are left out
                """SELECT annotator_id FROM annotators
                   WHERE kind = ? AND name LIKE ? AND json_extract(config, '$.recorded') IS NULL""",
                [kind, annotators],
            ).fetchall()
        voters = sorted({row[0] for row in rows} - set(exclude))
        if not voters:
            raise NotFoundError(f"no {kind} annotator in {workspace.root} has a name like {annotators!r}")

        def lookup(comparisons: Sequence[str]) -> dict[str, dict[str, Vote]]:
            return {
                comparison: {
                    voter: Vote(o.answer, confidence=o.confidence, rationale=o.rationale, strength=o.strength)
                    for voter, o in by_voter.items()
                }
                for comparison, by_voter in opinions(workspace, comparisons, voters).items()
            }

        described = {"recorded": annotators, "kind": kind, "voters": config_hash({"voters": voters})}
        return cls(lookup, described, kind=kind, **settings)

    @classmethod
    def from_file(cls, path: Path, **settings: Any) -> "RecordedJudge":
        """JSON lines with `comparison_id`, `answer` (A, B, tie, both_good, both_bad, skip, in canonical order), and
        where there are any `annotator`, `confidence`, `strength`, `rationale`. Raises BadInputError naming the row."""
        votes: dict[str, dict[str, Vote]] = {}
        rows = []
        for number, line in Lines(path):
            try:
                row = parse_object(line)
            except RowError as error:
                raise BadInputError(error.reason, file=path, row=number) from error
            comparison, answer = row.get("comparison_id"), row.get("answer")
            if not isinstance(comparison, str) or not comparison.startswith("c-"):
                raise BadInputError("must be a comparison's id", file=path, row=number, field="comparison_id")
            if answer not in ANSWERS:
                raise BadInputError(f"one of {', '.join(ANSWERS)}", file=path, row=number, field="answer")
            strength = _number(row.get("strength"), path, number, "strength", 3)
            vote = Vote(
                answer,
                confidence=_number(row.get("confidence"), path, number, "confidence", 1),
                rationale=None if row.get("rationale") is None else str(row["rationale"]),
                strength=None if strength is None else round(strength),
            )
            votes.setdefault(comparison, {})[str(row.get("annotator", number))] = vote
            rows.append((comparison, answer, row.get("annotator")))
        described = {"recorded": path.name, "content": ids.rows_digest(rows)}
        return cls(lambda comparisons: {c: votes[c] for c in comparisons if c in votes}, described, **settings)

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        recorded = self._lookup([q.comparison_id for q in questions])
        for index, question in enumerate(questions):
            by_voter = recorded.get(question.comparison_id)
            if not by_voter:
                on_result(index, JudgeFailure("no_answer", "there is no vote on it"))
            elif self._limit is not None and self.given >= self._limit:
                on_result(index, JudgeFailure("over_budget", f"{self._limit} questions have been answered"))
            else:
                self.given += 1
                drawn = sorted(by_voter, key=lambda v: fraction(self._seed, "voter", question.comparison_id, v))
                chosen = [by_voter[voter] for voter in drawn[: self._votes]]
                votes = [replace(vote, sample=number) for number, vote in enumerate(chosen)]
                on_result(index, merge_votes(votes, on_split=self._on_split))


def _number(value: object, path: Path, row: int, field: str, most: int) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
        raise BadInputError(f"must be a number from 0 to {most}", file=path, row=row, field=field)
    return value
