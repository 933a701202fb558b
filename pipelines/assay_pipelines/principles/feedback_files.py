"""Feedback from the files of sets that give reasons, and from the reasons of judgments in the store.

Rows are normalised JSON Lines with votes and reasons over two responses, one rationale over two, a critique of each
response or of the only one, or binary tests with a rationale, which are principle judgments. A reason that compares two
responses is feedback on both; a bracketed line before it states which of the two this is and which was preferred.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.data.conversation import prompt_columns, prompt_turns
from assay.data.json_lines import Lines, RowError, parse_object
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.store import identity
from assay.store.database import registered
from assay.store.feedback_intake import (
    FeedbackCounts,
    feedback_schema,
    principle_schema,
    store_feedback,
    store_principle_judgments,
)
from assay.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 2_000
_KINDS = {"human": "human", "model": "llm", "verified": "verifier"}


@dataclass
class FeedbackReport:
    """`rows` of the file. `without`: rows without feedback. `rejected`: by reason. `new`: rows new to the store."""

    rows: int = 0
    feedback: int = 0
    principle_judgments: int = 0
    new: FeedbackCounts = field(default_factory=FeedbackCounts)
    without: int = 0
    rejected: dict[str, int] = field(default_factory=dict)


def introduction(
    which: Literal["first", "second"] | None, preferred: Literal["this one", "the other one", "neither"]
) -> str:
    """What `extraction.INTRODUCTION` reads. `which`: None where the order shown is not known."""
    position = f", the {which}" if which else ""
    return f"(One of two responses{position}; preferred: {preferred}.) "


def import_feedback(
    workspace: Workspace, path: Path, run_id: str, *, limit: int | None = None, advance: Advance = silent
) -> FeedbackReport:
    """Store every row's feedback and principle judgments, a batch at a time; a second import adds nothing.

    `advance` counts bytes of the file. Raises BadInputError for a file that cannot be opened or holds none at all.
    """
    report = FeedbackReport()
    reasons: Counter[str] = Counter()
    lines = Lines(path)
    texts: list[dict[str, Any]] = []
    tests: list[dict[str, Any]] = []
    at = 0
    for number, line in lines:
        if limit is not None and report.rows >= limit:
            break
        report.rows += 1
        try:
            row = parse_object(line)
            statements = list(_statements(row, number, path))
        except RowError as error:
            reasons[str(error)] += 1
            continue
        report.without += not statements
        for statement in statements:
            (tests if "principle" in statement else texts).append(statement)
        if len(texts) + len(tests) >= BATCH:
            _flush(workspace, report, texts, tests, run_id)
            advance(lines.position - at)
            at = lines.position
    _flush(workspace, report, texts, tests, run_id)
    advance(max(0, lines.position - at))
    report.rejected = dict(reasons.most_common())
    if not report.feedback and not report.principle_judgments:
        worst = f": {next(iter(report.rejected))}" if report.rejected else ""
        raise BadInputError(f"no row holds feedback on a response{worst}", file=path)
    return report


def feedback_from_judgments(workspace: Workspace, run_id: str, *, kinds: Sequence[str] = ("human", "source")) -> int:
    """Store every rationale of these annotators' judgments as feedback on both responses; returns how many are new."""
    sides = []
    for mine, other, order in (("A", "B", "AB"), ("B", "A", "BA")):
        sides.append(f"""
            SELECT c.response_{mine.lower()} AS response_id, j.annotator_id, j.comparison_id,
                   '(One of two responses' || CASE j.shown_order WHEN '{order}' THEN ', the first'
                        WHEN '{order[::-1]}' THEN ', the second' ELSE '' END || '; preferred: '
                   || CASE j.answer WHEN '{mine}' THEN 'this one' WHEN '{other}' THEN 'the other one' ELSE 'neither' END
                   || '.) ' || j.rationale AS content
            FROM opinions j JOIN comparisons c USING (comparison_id) JOIN annotators n USING (annotator_id)
            WHERE trim(j.rationale) <> '' AND j.answer <> 'skip' AND list_contains($kinds, n.kind)
              AND json_extract(n.config, '$.recorded') IS NULL""")  # replayed votes are not independent
    with workspace.store.unit() as db:
        db.execute(
            f"""CREATE OR REPLACE TEMP TABLE rationales AS
                SELECT *, {identity.feedback_id("response_id", "annotator_id", "content")} AS feedback_id
                FROM ({" UNION ALL ".join(sides)})""",
            {"kinds": list(kinds)},
        ).fetchall()
        row = db.execute(
            """INSERT INTO feedback (feedback_id, response_id, annotator_id, content, run_id)
               SELECT feedback_id, any_value(response_id), any_value(annotator_id), any_value(content), $run
               FROM rationales s
               WHERE NOT EXISTS (SELECT 1 FROM feedback f WHERE f.feedback_id = s.feedback_id) GROUP BY feedback_id""",
            {"run": run_id},
        ).fetchall()
        db.execute(
            """INSERT INTO feedback_items (ref, item, run_id)
               SELECT DISTINCT feedback_id, comparison_id, $run FROM rationales s
               WHERE NOT EXISTS (SELECT 1 FROM feedback_items i WHERE i.ref = s.feedback_id
                                 AND i.item = s.comparison_id)""",
            {"run": run_id},
        ).fetchall()
        db.execute("DROP TABLE rationales")
    return int(row[0][0])


def _statements(row: dict[str, Any], number: int, path: Path) -> Iterator[dict[str, Any]]:
    """Rows of `feedback_schema` (with `content`) or `principle_schema` (with `principle`), `item` added."""
    responses = row.get("responses")
    if not isinstance(responses, list) or not responses or not all(isinstance(r, str) and r for r in responses):
        raise RowError("needs a list of texts", field="responses")
    ratings_column = row.get("ratings")
    ratings: dict[str, Any] = ratings_column if isinstance(ratings_column, dict) else {}
    source = str(row.get("source") or path.name)
    record = str(row.get("id") or f"{path.name}#{number}")
    messages, conversation = prompt_columns(prompt_turns(row.get("prompt")))
    common: dict[str, Any] = {
        "row": number,
        "messages": messages,
        "conversation": conversation,
        "kind": _KINDS.get(str(row.get("label_type")), "human"),
        "source": source,
        "record_id": record,
        "category": row.get("category"),
        "license": row.get("license"),
        "language": row.get("lang"),
        "item": f"{source}#{record}",
    }
    votes = ratings.get("votes")
    question = _question(row)
    if isinstance(votes, list):
        for vote in votes:
            reason, voter = str(vote.get("reason") or "").strip(), str(vote.get("annotator") or "anonymous")
            answer = str(vote.get("value"))
            if question and answer.lower() in ("yes", "no", "partially"):
                yield {
                    **common,
                    "response": responses[0],
                    "voter": voter,
                    "principle": question,
                    "answer": answer.lower(),
                    "evidence": reason or None,
                }
            elif len(responses) == 2 and reason and answer in ("A", "B", "tie"):
                yield from _compared(common, responses, voter, answer, reason)
        return
    critiques = ratings.get("critiques")
    if isinstance(critiques, list) and len(critiques) == len(responses):
        for response, critique in zip(responses, critiques, strict=True):
            if isinstance(critique, str) and critique.strip():
                yield {**common, "response": response, "voter": None, "content": critique.strip()}
        return
    rationale = str(row.get("rationale") or "").strip()
    if not rationale:
        return
    if len(responses) == 1:
        yield {**common, "response": responses[0], "voter": None, "content": rationale}
    elif len(responses) == 2 and row.get("chosen") in responses:
        yield from _compared(common, responses, None, "A" if row["chosen"] == responses[0] else "B", rationale)


def _compared(
    common: dict[str, Any], responses: list[str], voter: str | None, answer: str, reason: str
) -> Iterator[dict[str, Any]]:
    places: tuple[Literal["first", "second"], ...] = ("first", "second")
    for position, name, response in zip(places, "AB", responses, strict=True):
        preamble = introduction(
            position, "neither" if answer == "tie" else "this one" if answer == name else "the other one"
        )
        yield {**common, "response": response, "voter": voter, "content": preamble + reason}


def _question(row: dict[str, Any]) -> str | None:
    """The question of a binary test, which is its principle."""
    meta = row.get("meta")
    test = meta.get("test") if isinstance(meta, dict) else None
    question = test.get("question") if isinstance(test, dict) else None
    return " ".join(question.split()) if isinstance(question, str) and question.strip() else None


def _flush(
    workspace: Workspace,
    report: FeedbackReport,
    texts: list[dict[str, Any]],
    tests: list[dict[str, Any]],
    run_id: str,
) -> None:
    import pyarrow as pa

    with workspace.store.unit() as db:
        for rows, schema, store in (
            (texts, feedback_schema(), store_feedback),
            (tests, principle_schema(), store_principle_judgments),
        ):
            if not rows:
                continue
            report.new += store(db, pa.Table.from_pylist(rows, schema=schema), run_id)
            _insert_texts(db, pa.Table.from_pylist(rows, schema=schema.append(pa.field("item", pa.string()))), run_id)
    report.feedback += len(texts)
    report.principle_judgments += len(tests)
    texts.clear()
    tests.clear()


def _insert_texts(db: Any, rows: "pa.Table", run_id: str) -> None:
    """Store the item of each statement in `rows`."""
    response = identity.response_id(identity.prompt_id("messages"), "response")
    annotator = identity.annotator_id("kind", "if(voter IS NULL, source, source || '/' || voter)")
    if "principle" in rows.column_names:
        ref = identity.principle_judgment_id("r", identity.principle_id("principle"), "a", "answer")
    else:
        ref = identity.feedback_id("r", "a", "content")
    with registered(db, "placed", rows):
        db.execute(
            f"""INSERT INTO feedback_items (ref, item, run_id)
                SELECT DISTINCT ref, item, $run FROM (
                    SELECT *, {ref} AS ref FROM (SELECT *, {response} AS r, {annotator} AS a FROM placed)) s
                WHERE NOT EXISTS (SELECT 1 FROM feedback_items i WHERE i.ref = s.ref AND i.item = s.item)""",
            {"run": run_id},
        ).fetchall()
