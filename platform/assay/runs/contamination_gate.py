"""The contamination ledger as training and evaluation read it: is this snapshot checked against that benchmark?

Covers: the state of a snapshot (or of a file, which the ledger cannot know) against every registered benchmark,
waivers and their record, which benchmarks a set of prompts belongs to. Leaves out: making the checks and
registering benchmarks (`assay_pipelines.hygiene.contamination`). A workspace without benchmarks has no state to ask
for.

A check covers every prompt, and unless it was told otherwise every response, that was in the store when it ran. It
holds for a snapshot as long as the imports that brought the snapshot's prompts and responses have brought no others
since (`contamination_coverage`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from assay import ids
from assay.domain import Message, PreferencePair
from assay.errors import BadInputError
from assay.store.database import Connection
from assay.workspace import Workspace

State = Literal["clean", "overlaps", "not_checked", "unknown"]


@dataclass(frozen=True)
class BenchmarkState:
    """One benchmark's line. `overlaps`: items of the data whose prompt or responses hold text of the benchmark.

    `ngram`, `unit`, `run_id` are of the check, None where there is none. `waived`: the reason given at training.
    """

    benchmark: str
    content_hash: str
    state: State
    overlaps: int = 0
    ngram: int | None = None
    unit: str | None = None
    run_id: str | None = None
    waived: str | None = None

    def __str__(self) -> str:
        if self.state in ("not_checked", "unknown"):
            text = "not checked" if self.state == "not_checked" else "not known, the model was not trained here"
        else:
            summary = "clean" if self.state == "clean" else f"{self.overlaps} overlaps"
            text = f"{summary} ({self.ngram} {self.unit}s, {self.run_id})"
        return f"{self.benchmark}: {text}" + (f", waived: {self.waived}" if self.waived is not None else "")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


_CHECKS = """
    WITH compared AS (
        SELECT c.prompt_id, c.response_a, c.response_b
        FROM snapshot_items i JOIN comparisons c USING (comparison_id) WHERE i.snapshot_id = $snapshot
    ), need AS (
        SELECT coalesce(run_id, '') AS import_run FROM prompts WHERE prompt_id IN (SELECT prompt_id FROM compared)
        UNION SELECT coalesce(run_id, '') FROM responses
        WHERE response_id IN (SELECT response_a FROM compared UNION ALL SELECT response_b FROM compared)
    ), now AS (
        SELECT import_run, (SELECT count(*) FROM prompts p WHERE coalesce(p.run_id, '') = import_run) AS prompts,
               (SELECT count(*) FROM responses r WHERE coalesce(r.run_id, '') = import_run) AS responses
        FROM need
    )
    SELECT k.check_id, k.benchmark, k.ngram, k.unit, k.run_id
    FROM contamination_checks k JOIN benchmarks b ON b.benchmark = k.benchmark AND b.content_hash = k.benchmark_hash
    WHERE NOT EXISTS (
        SELECT 1 FROM now n LEFT JOIN contamination_coverage v ON v.check_id = k.check_id
            AND v.import_run = n.import_run
        WHERE (n.prompts > 0 AND v.prompts IS DISTINCT FROM n.prompts)
            OR (k.responses IS NOT NULL AND v.responses IS DISTINCT FROM n.responses))
    QUALIFY row_number() OVER (
        PARTITION BY k.benchmark
        ORDER BY k.unit = 'word' AND k.ngram > 13, k.created_at DESC, k.check_id) = 1"""
_OVERLAPS = """
    SELECT count(DISTINCT comparison_id) FROM snapshot_items i JOIN contaminated_comparisons h USING (comparison_id)
    WHERE i.snapshot_id = $snapshot AND h.check_id = $check"""


def registered_benchmarks(db: Connection) -> dict[str, str]:
    """Name -> content hash, by name."""
    return dict(db.execute("SELECT benchmark, content_hash FROM benchmarks ORDER BY benchmark").fetchall())


def contamination_of(
    workspace: Workspace, snapshot_id: str | None, *, run_id: str | None = None
) -> list[BenchmarkState]:
    """The state against every registered benchmark, by name. `snapshot_id` None: a file, never checked.

    The newest check that covers the whole snapshot counts; one laxer than the usual 13 words only where there is no
    other. `run_id`: a training whose waivers are to be shown.
    """
    with workspace.store.unit() as db:
        benchmarks = registered_benchmarks(db)
        if not benchmarks:
            return []
        checks: dict[str, tuple[Any, ...]] = {}
        if snapshot_id is not None:
            checks = {row[1]: row for row in db.execute(_CHECKS, {"snapshot": snapshot_id}).fetchall()}
        waived = dict(
            db.execute(
                """SELECT w.benchmark, w.reason FROM contamination_waivers w
                   JOIN benchmarks b ON b.benchmark = w.benchmark AND b.content_hash = w.benchmark_hash
                   WHERE w.run_id = ?""",
                [run_id],
            ).fetchall()
        )
        states = []
        for name, content in benchmarks.items():
            if (check_row := checks.get(name)) is None:
                states.append(BenchmarkState(name, content, "not_checked", waived=waived.get(name)))
                continue
            check, _, ngram, unit, by = check_row
            row = db.execute(_OVERLAPS, {"snapshot": snapshot_id, "check": check}).fetchone()
            overlaps = int(row[0]) if row else 0
            state: State = "overlaps" if overlaps else "clean"
            states.append(BenchmarkState(name, content, state, overlaps, ngram, unit, by, waived.get(name)))
        return states


def require_clean(
    states: Sequence[BenchmarkState],
    waivers: Mapping[str, str],
    *,
    data: str,
    snapshot: bool,
    resumed: bool = False,
) -> list[BenchmarkState]:
    """The states with the waivers that were needed filled in.

    Raises BadInputError where a benchmark is neither clean nor waived, for a waiver without a reason and for one of a
    benchmark that is not registered. `resumed`: the data were checked before, and no benchmark is refused.
    """
    registered = {state.benchmark for state in states}
    for name, reason in waivers.items():
        if name not in registered:
            available = ", ".join(sorted(registered)) or "none are registered"
            raise BadInputError(f"cannot waive {name!r}: not a registered benchmark ({available})")
        if not reason.strip():
            raise BadInputError(f"waiving {name!r} needs a reason: --waive-contamination {name}=REASON")
    open_ = [state for state in states if state.state != "clean" and state.benchmark not in waivers]
    if open_ and not resumed:
        first = open_[0]
        problem = (
            f"has {first.overlaps} overlaps with benchmark {first.benchmark!r}"
            if first.state == "overlaps"
            else f"is not checked against benchmark {first.benchmark!r}"
        )
        more = f" (and {len(open_) - 1} more)" if len(open_) > 1 else ""
        way = (
            "run: assay data decontaminate, and recreate the snapshot if it discards any"
            if snapshot
            else "only snapshots are: assay data import FILE, assay data decontaminate, assay data snapshot NAME, and "
            "then --data NAME"
        )
        raise BadInputError(
            f"{data} {problem}{more}; {way}; or train all the same: --waive-contamination {first.benchmark}=REASON"
        )
    return [
        replace(state, waived=waivers[state.benchmark].strip())
        if state.state != "clean" and state.benchmark in waivers
        else state
        for state in states
    ]


def record_waivers(workspace: Workspace, run_id: str, data: str, states: Sequence[BenchmarkState]) -> None:
    """Write down what was waived. `data`: snapshot id or file."""
    rows = [[run_id, data, s.benchmark, s.content_hash, s.state, s.waived] for s in states if s.waived is not None]
    if rows:
        with workspace.store.unit() as db:
            db.executemany(
                """INSERT INTO contamination_waivers (run_id, data, benchmark, benchmark_hash, state, reason)
                   VALUES (?, ?, ?, ?, ?, ?)""",
                rows,
            )


def first_turn(pair: PreferencePair) -> str | None:
    """The text of the first user turn: what benchmarks are known by."""
    return next((message.text for message in pair.prompt if message.role == "user"), None)


def benchmark_prompt_id(text: str) -> str:
    """Identity of a benchmark's prompt: that of a conversation of this one user turn."""
    return ids.prompt_id((Message("user", text),))


def benchmarks_in(workspace: Workspace, pairs: Sequence[PreferencePair]) -> dict[str, int]:
    """Registered benchmark -> how many distinct first turns of these pairs are its prompts; those with any."""
    prompts = sorted({benchmark_prompt_id(text) for pair in pairs if (text := first_turn(pair)) is not None})
    with workspace.store.unit() as db:
        return dict(
            db.execute(
                """SELECT benchmark, count(*) FROM benchmark_prompts
                   WHERE prompt_id IN (SELECT unnest($prompts)) GROUP BY benchmark ORDER BY benchmark""",
                {"prompts": prompts},
            ).fetchall()
        )


def evaluated_contamination(
    workspace: Workspace, pairs: Sequence[PreferencePair], *, snapshot_id: str | None, run_id: str | None
) -> list[tuple[BenchmarkState, int]]:
    """For each registered benchmark that the evaluated pairs are of: the state of the model's training data against
    it, and how many distinct prompts of it are evaluated.

    `snapshot_id`, `run_id`: what the model's spec says it was trained on, and by which run.
    """
    evaluated = benchmarks_in(workspace, pairs)
    if not evaluated:
        return []
    with workspace.store.unit() as db:
        snapshot_here = db.execute("SELECT 1 FROM snapshots WHERE snapshot_id = ?", [snapshot_id]).fetchall()
        run_here = db.execute("SELECT 1 FROM runs WHERE run_id = ?", [run_id]).fetchall()
    states = contamination_of(workspace, snapshot_id if snapshot_here else None, run_id=run_id)
    if not snapshot_here and not run_here:
        states = [replace(state, state="unknown") for state in states]
    return [(state, evaluated[state.benchmark]) for state in states if state.benchmark in evaluated]
