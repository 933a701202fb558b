"""Judged rows: a prompt, one or two responses, the right verdict and optionally its rationale.

Covers: reading them from a file or from a snapshot with its judgments' rationales, swapping the responses. Leaves out:
tokens (`sft`), evaluation (`evaluation`).

A file's rows are JSON objects with `prompt` and either `responses` with `verdict` (A or B of two; Yes, No or 1..10 of
one) or `chosen` and `rejected`; `rationale`, `principle` and traces of tools
(`tool_traces`) are optional. A pair is two rows for a pointwise judge: Yes
for the chosen, No for the rejected response. A rationale "CHOSEN: ... || REJECTED: ..." is one for each side.

Content-free rows: a negative test of judges, in which an answer without content must not win. Covers: building such
rows from judged ones, for evaluation and training: a pair becomes its better response against a content-free one, a
single response a content-free one with verdict No. Leaves out: the strings (`assay_serving`), the evaluation.
"""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay import ids
from assay.data.conversation import prompt_turns, text_of, text_or_empty
from assay.data.json_lines import Lines, RowError, parse_object
from assay.data.pairs import from_snapshot_or_file, pair_of
from assay.domain import Comparison, Prompt, Response, prompt_of
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_rm_training.generative.tool_traces import trace_in
from assay_serving.generative.content_free import CONTENT_FREE
from assay_serving.generative.pairwise import PairQuestion
from assay_serving.generative.templates import POINTWISE, JudgeFormat
from assay_serving.generative.verdict import JudgeVerdict, read_verdict
from assay_serving.scorer import ScoreItem
from assay_serving.tools.tool import ToolTurn

log = logging.getLogger(__name__)

_SIDES = re.compile(r"CHOSEN:\s*(?P<chosen>.*?)\s*\|\|\s*REJECTED:\s*(?P<rejected>.*)", re.DOTALL)
#: How rationales name a side. Other mentions, as in "B is better", are ambiguous and not swapped.
_MENTION = re.compile(
    r"\b((?:[Rr]esponse|[Aa]nswer|[Oo]utput|[Aa]ssistant|[Mm]odel|[Aa]rgument|[Oo]ption)s?\s+)([AB])\b"
)
_BARE = re.compile(r"\bB\b")


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """`label` and `rationale` are about `responses` in their order; `traces`: of the tools called about each of them,
    empty where none is recorded."""

    prompt: Prompt
    responses: tuple[Response, ...]
    label: str
    rationale: str = ""
    principle: str | None = None
    source: str = ""
    category: str = ""
    traces: tuple[tuple[ToolTurn, ...], ...] = ()

    @property
    def trace(self) -> tuple[ToolTurn, ...]:
        """All turns that called tools, in the order of the responses."""
        return tuple(turn for trace in self.traces for turn in trace)

    def swapped(self) -> "JudgedRow | None":
        """The same judgment with the two responses in the other order; None where the rationale names its sides in a
        way that cannot be swapped. Raises ValueError for a row of one response."""
        first, second = self.responses
        rationale = swap_mentions(self.rationale)
        if rationale is None:
            return None
        label, traces = "AB"["BA".index(self.label)], self.traces[::-1]
        return replace(self, responses=(second, first), label=label, rationale=rationale, traces=traces)

    def question(self, form: JudgeFormat) -> Prompt:
        return form.ask(self.prompt, self.responses, self.principle)

    def answer(self, form: JudgeFormat) -> str | None:
        """The target answer; None where the rationale contains a verdict, so that the answer would have several."""
        text = f"{self.rationale.strip()}\n{form.final_line(self.label)}".lstrip("\n")
        verdict = read_verdict(text, form.labels)
        return text if isinstance(verdict, JudgeVerdict) else None

    def pair(self) -> PairQuestion:
        first, second = self.responses
        return PairQuestion(self.prompt, first, second, self.principle)

    def item(self) -> ScoreItem:
        return ScoreItem(self.prompt, self.responses[0], self.principle)

    @property
    def identity(self) -> tuple[str, ...]:
        responses = (r if isinstance(r, str) else ids.conversation_json(r) for r in self.responses)
        traced = (json.dumps([turn.to_dict() for turn in self.trace]),) if self.trace else ()
        return (ids.prompt_id(self.prompt), *responses, self.label, self.rationale, self.principle or "", *traced)


def swap_mentions(rationale: str) -> str | None:
    """Exchange "Response A" and "Response B"; None where a side is named by its bare letter."""
    if _BARE.search(_MENTION.sub("", rationale)):
        return None
    return _MENTION.sub(lambda match: match[1] + "AB"["BA".index(match[2])], rationale)


def read_judged(workspace: Workspace | None, data: str | Path, form: JudgeFormat) -> list[JudgedRow]:
    """Rows of a snapshot (its pairs, with the rationales of judgments that agree with its label) or of a file; a
    snapshot comes first. Raises NotFoundError for neither, BadInputError naming file, row and field."""

    def load(here: Workspace, name: str) -> list[JudgedRow]:
        return list(_of_snapshot(here, name, form))

    return from_snapshot_or_file(workspace, data, load, lambda path: read_judged_file(path, form))


def read_judged_file(path: Path, form: JudgeFormat) -> list[JudgedRow]:
    """Every decided row. Ties are skipped and counted in a log warning. Raises BadInputError at the first bad row."""
    rows: list[JudgedRow] = []
    undecided = 0
    for number, line in Lines(path):
        try:
            parsed = rows_of(parse_object(line), form)
        except RowError as error:
            raise BadInputError(error.reason, file=path, row=number, field=error.field) from error
        undecided += not parsed
        rows += parsed
    if not rows:
        raise BadInputError("holds no judged row", file=path)
    if undecided:
        log.warning("%s: skipped %d rows without a decision", path, undecided)
    return rows


def rows_of(record: dict[str, Any], form: JudgeFormat) -> list[JudgedRow]:
    """The rows of one object: none for a tie or an empty response, two for a pair that a pointwise judge gets. Raises
    RowError."""
    if record.get("verdict") is not None:
        row = _judged(record, form)
        return [row] if row is not None else []
    if record.get("chosen") is None and record.get("rejected") is None and "chosen" in record:
        return []
    pair = pair_of(record)
    if not (pair.chosen and pair.rejected):
        return []
    responses = record.get("responses")
    texts = (pair.chosen, pair.rejected)
    if responses == [pair.rejected, pair.chosen]:
        texts = (pair.rejected, pair.chosen)  # the order of the rationale
    label = "AB"[texts.index(pair.chosen)]
    traces = tuple(trace_in(record, "chosen" if text is pair.chosen else "rejected") for text in texts)
    if not any(traces):
        traces = ()
    rationale, principle = _rationale(record), _principle(record)
    return from_pair(
        JudgedRow(pair.prompt, texts, label, rationale, principle, pair.source, pair.category, traces), form
    )


def from_pair(pair: JudgedRow, form: JudgeFormat) -> list[JudgedRow]:
    """A judged pair as the rows of a format. Raises RowError for a format that pairs do not answer."""
    sides = _SIDES.fullmatch(pair.rationale.strip())
    better = "AB".index(pair.label)
    if form.responses == 2:
        if sides is None:
            return [pair]
        rationale_fields = ("chosen", "rejected") if better == 0 else ("rejected", "chosen")
        parts = [f"Response {letter}: {sides[side]}" for letter, side in zip("AB", rationale_fields, strict=True)]
        return [replace(pair, rationale="\n".join(parts))]
    if form.name != POINTWISE.name:
        raise RowError("a pair has no rating; give verdict", field="verdict")
    reasons = (sides["chosen"], sides["rejected"]) if sides is not None else ("", "")
    sides_of = (better, 1 - better)
    return [
        replace(pair, responses=(pair.responses[side],), label=label, rationale=reason, traces=pair.traces[side:][:1])
        for side, label, reason in zip(sides_of, ("Yes", "No"), reasons, strict=True)
    ]


def _judged(record: dict[str, Any], form: JudgeFormat) -> JudgedRow | None:
    prompt = prompt_of(prompt_turns(record.get("prompt")))
    listed = record.get("responses")
    if listed is None and "response" in record:
        listed = [record["response"]]
    if not isinstance(listed, list) or len(listed) != form.responses:
        raise RowError(f"a {form.name} judge reads {form.responses} responses a row", field="responses")
    responses = tuple(text_or_empty(text, "responses") for text in listed)
    if not all(responses):
        return None
    verdict = record["verdict"]
    label = "Yes" if verdict is True else "No" if verdict is False else str(verdict)
    label = next((allowed for allowed in form.labels if allowed.lower() == label.lower()), label)
    if label in ("tie", "both_good", "both_bad", "skip"):
        return None
    if form.labels and label not in form.labels:
        raise RowError(f"a {form.name} verdict is one of {', '.join(form.labels)}", field="verdict")
    if not form.labels:  # any number of a range
        try:
            label = f"{float(label):g}"
        except ValueError:
            raise RowError(f"a {form.name} verdict is a number", field="verdict") from None
    return JudgedRow(
        prompt,
        responses,
        label,
        _rationale(record),
        _principle(record),
        str(record.get("source") or ""),
        str(record.get("category") or ""),
        (trace,) if (trace := trace_in(record)) else (),
    )


def _rationale(record: dict[str, Any]) -> str:
    value = record.get("rationale")
    if value is None:
        return ""
    return text_of(value, "rationale") if value != "" else ""


def _principle(record: dict[str, Any]) -> str | None:
    value = record.get("principle")
    return None if value is None else text_of(value, "principle")


def _of_snapshot(workspace: Workspace, name: str, form: JudgeFormat) -> Iterator[JudgedRow]:
    from assay.data.snapshots import load_pairs

    pairs = load_pairs(workspace, name)
    rationales = _rationales(workspace, [pair.comparison_id for pair in pairs])
    for pair in pairs:
        comparison, swapped = Comparison.of(pair.prompt, pair.chosen, pair.rejected)
        label = "B" if swapped else "A"
        rationale = next((text for answer, text in rationales.get(pair.comparison_id, ()) if answer == label), "")
        sides = (comparison.response_a, comparison.response_b)
        yield from from_pair(
            JudgedRow(pair.prompt, sides, label, rationale, source=pair.source, category=pair.category), form
        )


def _rationales(workspace: Workspace, comparisons: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Comparison -> (answer, rationale) of its judgments in canonical order of A and B, in a fixed order."""
    import pyarrow as pa

    comparison_ids = pa.table({"comparison_id": list(comparisons)})
    by_comparison: dict[str, list[tuple[str, str]]] = {}
    with workspace.store.unit() as db:
        db.register("wanted_rationales", comparison_ids)
        rows = db.execute(
            """SELECT j.comparison_id, j.answer, j.rationale, j.shown_order
               FROM judgments j JOIN wanted_rationales w USING (comparison_id)
               WHERE j.rationale IS NOT NULL AND j.answer IN ('A', 'B')
               ORDER BY j.comparison_id, j.judgment_id"""
        ).fetchall()
        db.unregister("wanted_rationales")
    for comparison, answer, rationale, order_shown in rows:
        text = swap_mentions(str(rationale)) if order_shown == "BA" else str(rationale)
        if text is not None:
            by_comparison.setdefault(str(comparison), []).append((str(answer), text))
    return by_comparison


#: The rationale of such a row in training, by number of responses.
REASONS = {1: "The response says nothing.", 2: "Response B says nothing."}


def content_free_rows(rows: Sequence[JudgedRow], form: JudgeFormat) -> list[JudgedRow]:
    """One row per prompt, with the strings in turn. Raises BadInputError for formats of ratings and classes."""
    if form.responses == 1 and form.labels != POINTWISE.labels:
        raise BadInputError(f"a {form.name} judge has no verdict that would be wrong", field="format")
    empty_rows: list[JudgedRow] = []
    seen = set()
    for row in rows:
        if row.prompt in seen:
            continue
        seen.add(row.prompt)
        empty = CONTENT_FREE[len(empty_rows) % len(CONTENT_FREE)]
        if form.responses == 1:
            empty_rows.append(replace(row, responses=(empty,), label="No", rationale=""))
        else:
            better = row.responses["AB".index(row.label)]
            empty_rows.append(replace(row, responses=(better, empty), label="A", rationale=""))
    return empty_rows
