"""Extracting the principles that feedback mentions: the pass over feedback not read yet, resumable, page by page."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from assay import ids
from assay.conversation.message import stored_prompt
from assay.domain import Prompt
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.store.database import registered
from assay.workspace import Workspace

if TYPE_CHECKING:
    from assay_pipelines.llm.budget import Spending
    from assay_pipelines.llm.configuration import EndpointConfig

Fulfilment: TypeAlias = Literal["yes", "no", "partially"]


#: Precedes a reason that compares two responses: which of them this one is. Not the annotator's words.
INTRODUCTION = re.compile(
    r"^\(One of two responses(?:, the (?P<which>first|second))?; "
    r"preferred: (?P<preferred>this one|the other one|neither)\.\) "
)


@dataclass(frozen=True, slots=True)
class Feedback:
    """Free-text feedback of one annotator on one response."""

    feedback_id: str
    prompt: Prompt
    response: str
    content: str


@dataclass(frozen=True, slots=True)
class ExtractedPrinciple:
    """One principle that a text of feedback mentions. `evidence`: the quoted words of the feedback."""

    principle: str
    fulfilment: Fulfilment
    evidence: str


@dataclass(frozen=True, slots=True)
class ExtractionFailure:
    """No answer. `final`: a retry would fail again; it is recorded, and retried only on request.
    `code`: e.g. bad_answer, refused, truncated, timeout, over_budget."""

    code: str
    message: str
    final: bool = True


Reading: TypeAlias = tuple[ExtractedPrinciple, ...] | ExtractionFailure


class PrincipleExtractor(Protocol):
    """`name` includes a version of everything that determines the answers. `page`: how many texts it reads at a time;
    each page is stored before the next."""

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def page(self) -> int: ...

    def read(self, feedback: Sequence[Feedback], run_id: str | None) -> tuple[list[Reading], str | None]:
        """One reading per text, in order; and why it stopped early, if it did."""


@dataclass(frozen=True)
class ExtractorOptions:
    """What the registry's extractors are created from. `prompts`, `lexicon`: the user's own files."""

    workspace: Workspace
    endpoint: "EndpointConfig | None" = None
    prompts: Path | None = None
    lexicon: Path | None = None
    spending: "Spending | None" = None


@dataclass
class ExtractionReport:
    """Counts of feedback texts, and of the items in those read. `failures`: by code, final or not.
    `failure_rate`: failures as a share of the answers."""

    extractor: str
    read_before: int = 0
    read: int = 0
    empty: int = 0  #: read, without a principle
    items: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    stopped: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON; `known` is the earlier name of `read_before`."""
        return {**asdict(self), "known": self.read_before}

    @property
    def failure_rate(self) -> float | None:
        answered = self.read + sum(self.failures.values())
        return sum(self.failures.values()) / answered if answered else None


def extract(
    workspace: Workspace,
    extractor: PrincipleExtractor,
    run_id: str,
    *,
    source: str | None = None,
    limit: int | None = None,
    again: bool = False,
    advance: Advance = silent,
) -> ExtractionReport:
    """Read the feedback that this extractor has not read, page by page, each stored before the next. `source`: only
    feedback of annotators whose name begins with it. `limit`: at most this many. `again`: also final failures.

    Raises BadInputError where there is no feedback at all.
    """
    waiting, read_before = _waiting(workspace, extractor.name, source, again)
    if not waiting and not read_before:
        raise BadInputError("there is no feedback to read; import some with: assay principles import-feedback FILE")
    report = ExtractionReport(extractor.name, read_before=read_before)
    failures: Counter[str] = Counter()
    waiting = waiting[:limit] if limit is not None else waiting
    for start in range(0, len(waiting), extractor.page):
        texts = _load(workspace, waiting[start : start + extractor.page])
        readings, report.stopped = extractor.read(texts, run_id)
        _store(workspace, extractor.name, texts, readings, run_id)
        for reading in readings:
            if isinstance(reading, ExtractionFailure):
                failures[reading.code] += 1
            else:
                report.read += 1
                report.items += len(reading)
                report.empty += not reading
        advance(len(texts))
        if report.stopped:
            break
    report.failures = dict(failures.most_common())
    return report


def count_waiting(workspace: Workspace, extractor: str, *, source: str | None = None, again: bool = False) -> int:
    """How many feedback texts `extract` would read."""
    return len(_waiting(workspace, extractor, source, again)[0])


def _waiting(workspace: Workspace, extractor: str, source: str | None, again: bool) -> tuple[list[str], int]:
    """Ids of the feedback to read, in order; and how many were read before."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT f.feedback_id, bool_or(e.feedback_id IS NOT NULL AND (e.error IS NULL OR NOT $again))
               FROM feedback f JOIN annotators n USING (annotator_id)
               LEFT JOIN principle_extractions e ON e.feedback_id = f.feedback_id AND e.extractor = $extractor
               WHERE $source IS NULL OR starts_with(n.name, $source)
               GROUP BY f.feedback_id ORDER BY f.feedback_id""",
            {"extractor": extractor, "source": source, "again": again},
        ).fetchall()
    waiting = [name for name, done in rows if not done]
    return waiting, len(rows) - len(waiting)


def _load(workspace: Workspace, feedback_ids: Sequence[str]) -> list[Feedback]:
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT f.feedback_id, p.messages, p.conversation, r.content, f.content
               FROM feedback f JOIN (SELECT unnest($wanted) AS feedback_id) USING (feedback_id)
               JOIN responses r USING (response_id) JOIN prompts p USING (prompt_id) ORDER BY f.feedback_id""",
            {"wanted": list(feedback_ids)},
        ).fetchall()
    return [
        Feedback(name, stored_prompt(messages, conversation), response, content)
        for name, messages, conversation, response, content in rows
    ]


def _store(
    workspace: Workspace, extractor: str, texts: Sequence[Feedback], readings: Sequence[Reading], run_id: str | None
) -> None:
    import pyarrow as pa

    rows: list[tuple[str, ...]] = []
    passes: list[tuple[str, int | None, str | None]] = []
    for text, reading in zip(texts, readings, strict=True):
        if isinstance(reading, ExtractionFailure):
            if reading.final:
                passes.append((text.feedback_id, None, f"{reading.code}: {reading.message}"))
            continue
        passes.append((text.feedback_id, len(reading), None))
        for extracted in reading:
            principle = " ".join(extracted.principle.split())
            rows.append(
                (text.feedback_id, ids.principle_id(principle), principle, extracted.fulfilment, extracted.evidence)
            )
    kinds = (pa.string(), pa.int32(), pa.string())
    columns = [pa.array(values, kind) for values, kind in zip(_columns(passes, 3), kinds, strict=True)]
    done = pa.table(columns, names=["feedback_id", "items", "error"])
    items = pa.table(
        [pa.array(values, pa.string()) for values in _columns(rows, 5)],
        names=["feedback_id", "principle_id", "statement", "answer", "evidence"],
    )
    values = {"extractor": extractor, "run": run_id}
    with workspace.store.unit() as db, registered(db, "done", done), registered(db, "found", items):
        db.execute(
            """INSERT INTO principles (principle_id, statement, run_id)
               SELECT principle_id, any_value(statement), $run FROM found f
               WHERE NOT EXISTS (SELECT 1 FROM principles p WHERE p.principle_id = f.principle_id)
               GROUP BY principle_id""",
            {"run": run_id},
        )
        # Apart from a judgment that a person stated: it is this extractor's reading of this feedback.
        db.execute(
            """INSERT INTO principle_judgments
                   (judgment_id, response_id, principle_id, annotator_id, answer, evidence, feedback_id, extractor,
                    run_id)
               SELECT judgment_id, response_id, principle_id, annotator_id, answer, evidence, feedback_id, $extractor,
                      $run
               FROM (SELECT 'y-' || left(sha256(array_to_string([i.feedback_id, $extractor, i.principle_id, i.answer],
                                                chr(31))), 32) AS judgment_id, f.response_id, f.annotator_id, i.*
                     FROM found i JOIN feedback f USING (feedback_id)) s
               WHERE NOT EXISTS (SELECT 1 FROM principle_judgments t WHERE t.judgment_id = s.judgment_id)
               QUALIFY row_number() OVER (PARTITION BY judgment_id ORDER BY evidence) = 1""",
            values,
        )
        db.execute(
            """UPDATE principle_extractions AS e
               SET items = d.items, error = d.error, run_id = $run, created_at = now()
               FROM done d WHERE e.feedback_id = d.feedback_id AND e.extractor = $extractor""",
            values,
        )
        db.execute(
            """INSERT INTO principle_extractions (feedback_id, extractor, items, error, run_id)
               SELECT d.feedback_id, $extractor, d.items, d.error, $run FROM done d
               WHERE NOT EXISTS (SELECT 1 FROM principle_extractions e
                                 WHERE e.feedback_id = d.feedback_id AND e.extractor = $extractor)""",
            values,
        )


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
