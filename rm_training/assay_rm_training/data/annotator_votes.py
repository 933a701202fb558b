"""Votes with the annotator who cast each: what groups of annotators are found in.

Covers: the standing opinions of a snapshot's comparisons, JSON Lines rows with `ratings.votes` (the normalised form)
or, one vote a row, with `annotator` beside `chosen` and `rejected`. Leaves out: votes counted by comparison
(`assay.data.voted_pairs`). Ties and skips say nothing here; a data set's own label is nobody's vote.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.conversation.message import stored_prompt, stored_response
from assay.data.conversation import prompt_turns, response_form_of, row_turns
from assay.data.json_lines import RowError
from assay.data.pairs import from_snapshot_or_file, pair_of
from assay.data.row_files import read_rows
from assay.data.snapshots import get_snapshot
from assay.domain import Comparison, PreferencePair, Prompt, Response, prompt_of, response_of
from assay.workspace import Workspace


@dataclass(frozen=True, slots=True)
class AnnotatorVote:
    """`pair`: chosen and rejected as this annotator said."""

    pair: PreferencePair
    annotator: str


def load_annotator_votes(workspace: Workspace | None, data: str | Path) -> list[AnnotatorVote]:
    """Of a snapshot or a file; a snapshot comes first. Raises NotFoundError for neither, BadInputError naming file, row
    and field for a bad row and for a file without a vote."""
    return from_snapshot_or_file(workspace, data, _of_snapshot, _of_file)


def _of_file(path: Path) -> list[AnnotatorVote]:
    return read_rows(path, _parse, what="votes of named annotators")


def _of_snapshot(workspace: Workspace, name: str) -> list[AnnotatorVote]:
    snapshot = get_snapshot(workspace, name)
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT pr.messages, pr.conversation, a.content, a.turns, b.content, b.turns, o.comparison_id,
                      n.kind || ' ' || n.name, o.answer
               FROM snapshot_items i
               JOIN opinions o USING (comparison_id) JOIN annotators n USING (annotator_id)
               JOIN comparisons c USING (comparison_id) JOIN prompts pr USING (prompt_id)
               JOIN responses a ON a.response_id = c.response_a JOIN responses b ON b.response_id = c.response_b
               WHERE i.snapshot_id = ? AND n.kind <> 'source' AND o.answer IN ('A', 'B')
                 AND json_extract(n.config, '$.recorded') IS NULL
               ORDER BY o.comparison_id, o.judgment_id""",
            [snapshot.id],
        ).fetchall()
    votes = []
    for messages, conversation, first, first_turns, second, second_turns, comparison, annotator, answer in rows:
        sides = stored_response(first, first_turns), stored_response(second, second_turns)
        votes.append(_vote(stored_prompt(messages, conversation), sides, comparison, annotator, answer))
    return votes


def _parse(record: dict[str, Any]) -> Iterator[AnnotatorVote]:
    ratings = record.get("ratings")
    listed = ratings.get("votes") if isinstance(ratings, dict) else None
    if isinstance(listed, list):
        responses = record.get("responses")
        if not isinstance(responses, list) or len(responses) != 2:
            raise RowError("votes are on two responses", field="responses")
        turns = prompt_turns(record.get("prompt"))
        first, second = (response_form_of(text, "responses") for text in responses)
        if first == second:
            return
        prompt = prompt_of(row_turns(record, turns, first, second))
        sides = response_of(first), response_of(second)
        comparison = Comparison.of(prompt, *sides)[0].id
        for cast in listed:
            annotator = cast.get("annotator") if isinstance(cast, Mapping) else None
            if not isinstance(annotator, str):
                raise RowError("a vote without an annotator", field="ratings.votes")
            if cast.get("value") in ("A", "B"):
                yield _vote(prompt, sides, comparison, annotator, cast["value"])
    elif isinstance(record.get("annotator"), str) and record.get("chosen") is not None:
        yield AnnotatorVote(pair_of(record), record["annotator"])


def _vote(
    prompt: Prompt, sides: tuple[Response, Response], comparison: str, annotator: str, answer: str
) -> AnnotatorVote:
    chosen, rejected = sides if answer == "A" else sides[::-1]
    return AnnotatorVote(PreferencePair(prompt, chosen, rejected, comparison), annotator)
