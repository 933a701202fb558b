"""RLBFF's filters: the principles on which annotators agree; every dropped one has its stage and reason.

The stages in their order: evidence (RapidFuzz partial ratio above 60), partially, helpfulness, consensus (every other
annotator, cosine above 0.8), conflict and duplicate (one of each meaning per response; RLBFF, steps 5 and 6). A
judgment that a person stated directly has no quote to check. Annotators are compared within one comparison or record.
Vectors have length 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Le

from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.settings import CheckedSettings, Help
from assay.store.database import registered
from assay.workspace import Workspace
from assay_pipelines.embedding.encoder import Encoder
from assay_pipelines.embedding.stored import embed_texts, load_vectors
from assay_pipelines.principles.extraction import INTRODUCTION

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


#: In the order in which they are applied; what survives is `kept`.
STAGES = ("evidence", "partially", "helpfulness", "consensus", "conflict", "duplicate")
KEPT = "kept"
PAGE = 1_000


@dataclass(frozen=True)
class FilterConfig(CheckedSettings):
    """`extractor`: whose principles; None = those stated by people."""

    extractor: str | None = None
    evidence_above: Annotated[float, Ge(-1), Le(100), Help("Quote against feedback, 0-100; -1: do not check.")] = 60.0
    consensus_above: Annotated[float, Ge(-1), Le(1), Help("Cosine that every other annotator must reach.")] = 0.8
    at_least: Annotated[int | None, Ge(1), Help("This many others suffice. Default: all, as RLBFF.")] = None
    merge_above: Annotated[float, Ge(-1), Le(1), Help("Cosine from which two principles are one.")] = 0.8
    same_fulfilment: Annotated[
        bool, Help("Whether others must give the same answer.", "--same-fulfilment/--any-fulfilment")
    ] = True
    alone: Annotated[bool, Help("Keep principles of a single annotator.", "--alone")] = False
    drop: Annotated[tuple[str, ...], Help("Principle to drop; repeatable. Default: helpfulness.")] = ("helpfulness",)


@dataclass
class FilterReport:
    """Counts of principle judgments. `dropped`: by stage, in order. `groups`: items of a response whose annotators were
    compared, by how many annotators they have."""

    items: int = 0
    accepted: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    responses: int = 0
    responses_with: int = 0  #: those with at least one survivor
    groups: dict[int, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON; `kept` is the earlier name of `accepted`."""
        return {**asdict(self), "kept": self.accepted}


@dataclass
class _Judgment:
    """One principle judgment and the stage that dropped it."""

    judgment_id: str
    response_id: str
    item: str
    annotator_id: str
    principle_id: str
    principle: str
    answer: str
    evidence: str | None
    feedback: str | None
    stage: str = KEPT
    reason: str = ""
    merged_into: str | None = None

    def leave(self, stage: str, reason: str, merged_into: str | None = None) -> None:
        self.stage, self.reason, self.merged_into = stage, reason, merged_into


def filter_principles(
    workspace: Workspace, encoder: Encoder, config: FilterConfig, run_id: str, *, advance: Advance = silent
) -> FilterReport:
    """Apply the stages to every principle judgment of the extractor; `advance` counts responses.

    The outcomes are stored under `run_id`, beside those of earlier runs. Raises BadInputError with nothing to filter.
    """
    responses = _responses(workspace, config.extractor)
    if not responses:
        whose = f"read by {config.extractor}" if config.extractor else "stated by people"
        raise BadInputError(f"there are no principle judgments {whose}; see: assay principles report")
    _embed(workspace, encoder, config.extractor, run_id)
    report = FilterReport(responses=len(responses))
    dropped: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    for start in range(0, len(responses), PAGE):
        part = responses[start : start + PAGE]
        judged, readers = _load(workspace, part, config.extractor)
        for one in judged:
            _alone(one, config)
        _together(workspace, encoder, judged, readers, config, sizes)
        _store(workspace, judged, run_id)
        report.items += len(judged)
        dropped.update(one.stage for one in judged)
        report.responses_with += len({one.response_id for one in judged if one.stage == KEPT})
        advance(len(part))
    report.accepted = dropped.pop(KEPT, 0)
    report.dropped = {stage: dropped.get(stage, 0) for stage in STAGES}
    report.groups = dict(sorted(sizes.items()))
    return report


def count_responses(workspace: Workspace, extractor: str | None) -> int:
    """How many responses `filter_principles` would look at."""
    return len(_responses(workspace, extractor))


def evidence_score(evidence: str | None, feedback: str) -> float:
    """0 to 100: how well the quote matches the feedback (RapidFuzz partial ratio: at the best position)."""
    from rapidfuzz.fuzz import partial_ratio

    return float(partial_ratio(evidence.strip(), feedback)) if evidence and evidence.strip() else 0.0


def _alone(one: _Judgment, config: FilterConfig) -> None:
    """The stages that look at one item only."""
    if one.feedback is not None and config.evidence_above >= 0:
        score = evidence_score(one.evidence, INTRODUCTION.sub("", one.feedback))
        if score <= config.evidence_above:
            return one.leave("evidence", f"the quote matches the feedback to {score:.0f} of 100")
    if one.answer == "partially":
        return one.leave("partially", "neither fulfilled nor not")
    name = one.principle.casefold().strip(" .")
    if name in {entry.casefold() for entry in config.drop}:
        return one.leave("helpfulness", f"the principle {name!r} says nothing of its own")
    return None


def _together(
    workspace: Workspace,
    encoder: Encoder,
    judged: Sequence[_Judgment],
    readers: dict[tuple[str, str], list[str]],
    config: FilterConfig,
    sizes: Counter[int],
) -> None:
    """The stages that compare items: consensus within an item, then one of each meaning within a response."""
    import numpy as np

    remaining = [one for one in judged if one.stage == KEPT]
    names, rows = load_vectors(workspace, encoder.name, sorted({one.principle_id for one in remaining}))
    vector = dict(zip(names, rows, strict=True))
    empty = np.empty((0, encoder.dimension), dtype=np.float32)
    groups: dict[tuple[str, str], dict[str, list[_Judgment]]] = {}
    for (response, item), annotators in readers.items():
        groups[response, item] = {annotator: [] for annotator in sorted(annotators)}
    for one in remaining:
        groups.setdefault((one.response_id, one.item), {}).setdefault(one.annotator_id, []).append(one)
    supported: Counter[str] = Counter()
    for voices in groups.values():
        sizes[len(voices)] += 1
        by_annotator = list(voices.values())
        matrices = [np.stack([vector[one.principle_id] for one in mine]) if mine else empty for mine in by_annotator]
        answers = [[one.answer for one in mine] for mine in by_annotator] if config.same_fulfilment else None
        tests = consensus(
            matrices,
            answers,
            threshold=config.consensus_above,
            at_least=config.at_least,
            alone=config.alone,
        )
        for mine, results in zip(by_annotator, tests, strict=True):
            for one, shared in zip(mine, results, strict=True):
                if shared.accepted:
                    supported[one.judgment_id] = shared.agreeing
                elif not shared.other_annotators:
                    one.leave("consensus", "one annotator only")
                else:
                    one.leave("consensus", f"{shared.agreeing} of {shared.other_annotators} other annotators share it")
    by_response: dict[str, list[_Judgment]] = {}
    for one in remaining:
        if one.stage == KEPT:
            by_response.setdefault(one.response_id, []).append(one)
    for mine in by_response.values():
        mine.sort(key=lambda one: (-supported[one.judgment_id], one.judgment_id))
        _merge(mine, np.stack([vector[one.principle_id] for one in mine]), config.merge_above)


def _merge(mine: Sequence[_Judgment], vectors: npt.NDArray[np.float32], threshold: float) -> None:
    representative_of = merge(vectors, threshold=threshold)
    members: dict[int, list[int]] = {}
    for i, representative in enumerate(representative_of):
        members.setdefault(representative, []).append(i)
    for representative, group in members.items():
        answers = Counter(mine[i].answer for i in group)
        if len(answers) > 1:
            counts = ", ".join(f"{n} {answer}" for answer, n in sorted(answers.items()))
            for i in group:
                mine[i].leave("conflict", f"this response has both answers: {counts}")
            continue
        for i in group:
            if i != representative:
                duplicate_of = mine[representative]
                mine[i].leave("duplicate", f"says the same as {duplicate_of.principle!r}", duplicate_of.judgment_id)


def _of(extractor: str | None) -> str:
    return "j.extractor = $extractor" if extractor is not None else "j.extractor IS NULL AND $extractor IS NULL"


def _responses(workspace: Workspace, extractor: str | None) -> list[str]:
    with workspace.store.unit() as db:
        rows = db.execute(
            f"SELECT DISTINCT j.response_id FROM standing_principle_judgments j WHERE {_of(extractor)} ORDER BY 1",
            {"extractor": extractor},
        ).fetchall()
    return [name for (name,) in rows]


def _embed(workspace: Workspace, encoder: Encoder, extractor: str | None, run_id: str) -> None:
    with workspace.store.unit() as db:
        rows = db.execute(
            f"""SELECT p.principle_id, p.statement FROM principles p
                WHERE EXISTS (SELECT 1 FROM standing_principle_judgments j
                              WHERE j.principle_id = p.principle_id AND {_of(extractor)})
                  AND NOT EXISTS (SELECT 1 FROM embeddings e WHERE e.ref = p.principle_id AND e.encoder = $space)
                ORDER BY 1""",
            {"extractor": extractor, "space": encoder.name},
        ).fetchall()
    embed_texts(workspace, encoder, dict(rows), run_id)


def _load(
    workspace: Workspace, responses: Sequence[str], extractor: str | None
) -> tuple[list[_Judgment], dict[tuple[str, str], list[str]]]:
    """The judgments on these responses, and the annotators of each (response, item): those whose feedback the extractor
    read or failed to read, because an annotator without principles still counts; of stated judgments, those who
    answered on principles with a vote, even if only `partially`."""
    values: dict[str, Any] = {"extractor": extractor, "part": list(responses)}
    with workspace.store.unit() as db:
        rows = db.execute(
            f"""SELECT j.judgment_id, j.response_id, coalesce(j.item, i.item, ''), j.annotator_id, j.principle_id,
                       p.statement, j.answer, j.evidence, f.content
                FROM standing_principle_judgments j JOIN (SELECT unnest($part) AS response_id) USING (response_id)
                JOIN principles p USING (principle_id)
                LEFT JOIN feedback f ON f.feedback_id = j.feedback_id
                LEFT JOIN (SELECT ref, min(item) AS item FROM feedback_items GROUP BY ref) i
                    ON i.ref = coalesce(j.feedback_id, j.judgment_id)
                WHERE {_of(extractor)} ORDER BY j.judgment_id""",
            values,
        ).fetchall()
        annotators = db.execute(
            """SELECT f.response_id, coalesce(i.item, ''), list(DISTINCT f.annotator_id)
               FROM feedback f JOIN (SELECT unnest($part) AS response_id) USING (response_id)
               JOIN principle_extractions e ON e.feedback_id = f.feedback_id AND e.extractor = $extractor
               LEFT JOIN (SELECT ref, min(item) AS item FROM feedback_items GROUP BY ref) i ON i.ref = f.feedback_id
               GROUP BY ALL
               UNION ALL
               SELECT j.response_id, j.item, list(DISTINCT j.annotator_id)
               FROM standing_principle_judgments j JOIN (SELECT unnest($part) AS response_id) USING (response_id)
               WHERE j.item IS NOT NULL AND $extractor IS NULL GROUP BY ALL""",
            values,
        ).fetchall()
    return [_Judgment(*row) for row in rows], {(response, item): people for response, item, people in annotators}


def _store(workspace: Workspace, judged: Sequence[_Judgment], run_id: str) -> None:
    import pyarrow as pa

    text = pa.string()
    table = pa.table(
        {
            "judgment_id": pa.array([one.judgment_id for one in judged], text),
            "stage": pa.array([one.stage for one in judged], text),
            "reason": pa.array([one.reason or "agreed on" for one in judged], text),
            "merged_into": pa.array([one.merged_into for one in judged], text),
        }
    )
    with workspace.store.unit() as db, registered(db, "outcomes", table):
        db.execute(
            """INSERT INTO principle_outcomes (run_id, judgment_id, stage, reason, merged_into)
               SELECT $run, judgment_id, stage, reason, merged_into FROM outcomes""",
            {"run": run_id},
        )


@dataclass(frozen=True, slots=True)
class ConsensusTest:
    """The result for one principle. `agreeing`: how many of the `other_annotators` have one above the threshold."""

    accepted: bool
    agreeing: int
    other_annotators: int


def consensus(
    vectors: Sequence[npt.NDArray[np.float32]],
    answers: Sequence[Sequence[str]] | None = None,
    *,
    threshold: float = 0.8,
    at_least: int | None = None,
    alone: bool = False,
) -> list[list[ConsensusTest]]:
    """For each annotator and principle: whether EVERY other annotator has one whose cosine is above `threshold`.

    `vectors`: one [principles, dimension] matrix per annotator; an annotator without principles agrees with none, so
    that no principle of the others is accepted. `answers`: if given, the matching principle must have the same answer
    (our reading: RLBFF does not specify annotators who agree on a principle but not on its fulfilment). `at_least`:
    this many others suffice (not RLBFF's rule; for feedback so short that no two texts name every principle).
    `alone`: whether principles of a single annotator are accepted, which RLBFF does not specify. The test is per
    principle, not a clique test: a supporting principle may itself be dropped.
    """
    other_annotators = len(vectors) - 1
    needed = other_annotators if at_least is None else min(at_least, other_annotators)
    tests: list[list[ConsensusTest]] = []
    for a, mine in enumerate(vectors):
        rows = []
        for i in range(len(mine)):
            agreeing = sum(
                _best(mine[i], theirs, answers[a][i] if answers else None, answers[b] if answers else None) > threshold
                for b, theirs in enumerate(vectors)
                if b != a
            )
            rows.append(ConsensusTest(agreeing >= needed if other_annotators else alone, agreeing, other_annotators))
        tests.append(rows)
    return tests


def merge(vectors: npt.NDArray[np.float32], *, threshold: float = 0.8) -> list[int]:
    """For each row the index of its representative, possibly itself. Rows are in order of preference: each joins the
    first representative whose cosine is above `threshold`."""
    representatives: list[int] = []
    representative_of: list[int] = []
    for i in range(len(vectors)):
        representative = next((s for s in representatives if float(vectors[i] @ vectors[s]) > threshold), i)
        representative_of.append(representative)
        if representative == i:
            representatives.append(i)
    return representative_of


def _best(
    mine: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32], answer: str | None, answers: Sequence[str] | None
) -> float:
    """The highest cosine to another annotator's principles; -1 without any that counts."""
    if answers is not None:
        theirs = theirs[[i for i, other_answer in enumerate(answers) if other_answer == answer]]
    return float((theirs @ mine).max()) if len(theirs) else -1.0
