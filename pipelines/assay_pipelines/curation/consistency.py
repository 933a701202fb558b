"""Reward-model consistency: keep the source labels that reward models agree with, without asking anybody.

The rule of stage 2 in Skywork-Reward-V2 for one or several reward models, each probability recorded as the reason. The
models score shards of the pool (`assay.compute`), here or on other machines; decisions are made where the store is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from assay import ids
from assay.browsing.candidates import Candidate, Label, decided_meanwhile
from assay.browsing.pair_pages import candidates_of, selected_pages
from assay.compute.executor import Executor
from assay.compute.job import JobSpec, Unit
from assay.compute.local import LocalExecutor
from assay.compute.scratch_store import scratch
from assay.compute.stage import import_stage, map_stage, open_stage
from assay.data.snapshots import Selection
from assay.domain import Judgment
from assay.errors import BadInputError
from assay.models.calibration import Calibration
from assay.runs.progress_bar import Advance, silent
from assay.runs.record import Run
from assay.score import Score, ScoreFailure, ScoreResult, score_from_dict
from assay.settings import Help
from assay.store.database import Connection
from assay.store.records import (
    Decision,
    Evidence,
    insert_annotator,
    insert_decisions,
    insert_judgments,
    insert_scores,
)
from assay.store.scored_models import stored_version
from assay_serving.model_reference import known_spec
from assay_serving.scorer import ModelInfo, ScoreItem

if TYPE_CHECKING:
    import pyarrow as pa

    from assay_pipelines.judging.reward_model import RewardModelJudge as Judge

__all__ = ["ConsistencyConfig", "ConsistencyReport", "SideScoring", "check_pool"]

STAGE = "consistency"
_MODELS = b"assay.models"
_POOL_AFTER = {"kept": "silver", "flipped": "recycled", "discarded": "discarded", "unscored": "pending"}
_NOTHING = ("seen", "kept", "flipped", "discarded", "unlabelled", "unscored", "overtaken")


@dataclass(frozen=True)
class ConsistencyConfig:
    """p = P(the source's winner wins), by each model in turn, calibrated where the model is.

    Kept as silver when the lowest p is at least `keep_above`; flipped into `recycled` when the highest p is at
    most `flip_below` (0 = never flip); else discarded.
    """

    keep_above: Annotated[float, Help("Keep a label when every model gives it at least this p.")] = 0.5
    flip_below: Annotated[float, Help("Flip it when every model gives it at most this p; 0: never.")] = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.flip_below <= self.keep_above <= 1:
            raise BadInputError(
                f"thresholds must satisfy 0 <= flip_below <= keep_above <= 1, "
                f"not {self.flip_below} and {self.keep_above}"
            )


@dataclass(frozen=True)
class ConsistencyReport:
    """Counts of comparisons. `dry_run`: nothing was written."""

    seen: int = 0
    kept: int = 0
    flipped: int = 0
    discarded: int = 0
    unlabelled: int = 0  #: no A/B label to agree with; no decision made
    unscored: int = 0  #: a model could not score a side; pending, with the reason
    overtaken: int = 0  #: decided otherwise while the models scored; that decision stands
    dry_run: bool = False


class SideScoring:
    """Job: rewards of both sides of every labelled comparison by each model, as JSON of `assay.score`.

    `models`: folders or hub ids. A result has the lists `a` and `b`, a score of each model in turn; no rows' labels.
    """

    def __init__(self, models: Sequence[str | Judge], device: str = "auto") -> None:
        self._models, self._device = models, device
        self._judges: list[Judge] = []

    def open(self) -> None:
        from assay_pipelines.judging.reward_model import load_reward_model

        self._judges = [load_reward_model(m, device=self._device) if isinstance(m, str) else m for m in self._models]

    def map(self, shard: pa.Table) -> pa.Table:
        import pyarrow as pa

        labelled = _labelled(shard)
        items = [ScoreItem(c.prompt, text) for c in labelled for text in (c.response_a, c.response_b)]
        scores = [[json.dumps(result.to_dict()) for result in judge.scorer.score(items)] for judge in self._judges]
        rows = [list(row) for row in zip(*scores, strict=True)]
        models = [{"info": j.scorer.info.to_dict(), "calibration": asdict(j.calibration)} for j in self._judges]
        names = pa.array([candidate.comparison_id for candidate in labelled], pa.string())
        lists = pa.list_(pa.string())
        table = pa.table({"comparison_id": names, "a": pa.array(rows[::2], lists), "b": pa.array(rows[1::2], lists)})
        return table.replace_schema_metadata({_MODELS: json.dumps(models)})


def check_pool(
    run: Run,
    models: Sequence[str] | Sequence[Judge],
    config: ConsistencyConfig,
    selection: Selection,
    *,
    device: str = "auto",
    dry_run: bool = False,
    executor: Executor | None = None,
    on_progress: Advance = silent,
) -> ConsistencyReport:
    """Score both sides of every labelled comparison of the selection and decide it.

    `models`: folders or hub ids, which the executor's workers load, or models that this process has loaded, for one
    that maps in it. An interrupted pass of the same thresholds resumes where it stopped, then decides what has come
    into the pool since, unless it is a dry run.
    """
    if not models:
        raise BadInputError("the consistency pass needs at least one reward model")
    workspace = run.workspace
    names = [model if isinstance(model, str) else model.name for model in models]
    reads = " ".join(_identity(model) for model in models)
    arguments = {"models": names, "device": device}
    spec = JobSpec(f"{__name__}:{SideScoring.__name__}", arguments, reads, gpus=float(device != "cpu"))
    opened = None
    if names != list(models):
        opened = SideScoring(models)
        opened.open()

    def export() -> Iterator[pa.Table]:
        with scratch(workspace) as temporary:
            yield from selected_pages(workspace, temporary, selection).shards()

    def write(db: Connection, shard: pa.Table, result: pa.Table) -> Counter[str]:
        return _decide_shard(db, shard, result, _scored_by(result.schema), config, None if dry_run else run.id)

    totals: Counter[str] = Counter(dict.fromkeys(_NOTHING, 0))
    question = {"selection": asdict(selection), "config": asdict(config), "dry_run": dry_run}
    resumed = True
    while resumed:
        for outcome in _staying(selection):  # counted again with those that have come since
            totals["seen"] -= totals[outcome]
            totals[outcome] = 0
        with open_stage(workspace, STAGE, spec, question, export) as stage:
            mapped = map_stage(stage, executor or LocalExecutor(), opened=opened, advance=on_progress)
            totals.update(import_stage(workspace, stage, _recording(run, mapped), write, run.id))
        resumed = stage.resumed and not dry_run
    return ConsistencyReport(**totals, dry_run=dry_run)


def _staying(selection: Selection) -> list[str]:
    """Outcomes whose comparisons are in the selection still."""
    return ["unlabelled", *(outcome for outcome, pool in _POOL_AFTER.items() if pool in selection.pools)]


def _identity(model: str | Judge) -> str:
    """Version and calibration; "" for a model that says neither before it is loaded."""
    if isinstance(model, str):
        spec = known_spec(model)
        return f"{spec.version} {spec.calibration.id if spec.calibration else ''}" if spec else ""
    return f"{model.scorer.info.version} {model.calibration.id}"


@dataclass(frozen=True)
class _Described:
    """A judge by its description: what it scored is here, itself it may be on another machine."""

    info: ModelInfo
    calibration: Calibration

    @classmethod
    def read(cls, payload: dict[str, Any]) -> _Described:
        return cls(ModelInfo.from_dict(payload["info"]), Calibration.from_dict(payload["calibration"]))

    @property
    def name(self) -> str:
        return f"{self.info.name}@{self.info.version}"


def _scored_by(results: pa.Schema) -> list[_Described]:
    return [_Described.read(model) for model in json.loads(results.metadata[_MODELS])]


def _recording(run: Run, mapped: Iterator[Unit]) -> Iterator[Unit]:
    """The units; the models of the first one's result are recorded with the run."""
    import pyarrow.parquet as pq

    from assay_pipelines.judging.judging_models import record_models

    recorded = False
    for unit in mapped:
        if not recorded:
            record_models(run, [judge.info for judge in _scored_by(pq.read_schema(unit.result))])
            recorded = True
        yield unit


def _labelled(shard: pa.Table) -> list[Candidate]:
    import pyarrow as pa
    import pyarrow.compute as pc

    return candidates_of(shard.filter(pc.is_in(shard.column("label"), pa.array(["A", "B"]))))


def _decide_shard(
    db: Connection,
    shard: pa.Table,
    result: pa.Table,
    judges: Sequence[_Described],
    config: ConsistencyConfig,
    run_id: str | None,
) -> Counter[str]:
    """Decide the shard's comparisons and write what was scored and decided; `run_id`: None writes nothing."""
    labelled = _labelled(shard)
    pairs = zip(result.column("a").to_pylist(), result.column("b").to_pylist(), strict=True)
    sides = [[(_score(a), _score(b)) for a, b in zip(*pair, strict=True)] for pair in pairs]
    decided = [_decide(c, judges, scores, config) for c, scores in zip(labelled, sides, strict=True)]
    counts = Counter(seen=shard.num_rows, unlabelled=shard.num_rows - len(labelled))
    overtaken = decided_meanwhile(db, labelled)
    if run_id is not None:
        for number, judge in enumerate(judges):
            _write_scores(db, judge, labelled, [scores[number] for scores in sides], run_id)
        insert_decisions(db, [d for _, d in decided if d.comparison_id not in overtaken], run_id)
    for outcome, decision in decided:
        counts["overtaken" if decision.comparison_id in overtaken else outcome] += 1
    return counts


def _score(text: str) -> ScoreResult:
    return score_from_dict(json.loads(text))


def _decide(
    candidate: Candidate,
    judges: Sequence[_Described],
    sides: Sequence[tuple[ScoreResult, ScoreResult]],
    config: ConsistencyConfig,
) -> tuple[str, Decision]:
    probabilities = []
    reasons = []
    basis = [Evidence("checked", judgment) for judgment in candidate.source_judgments]
    for judge, (a, b) in zip(judges, sides, strict=True):
        if isinstance(a, ScoreFailure) or isinstance(b, ScoreFailure):
            failure = a if isinstance(a, ScoreFailure) else b
            assert isinstance(failure, ScoreFailure)
            reason = f"{judge.info.name} could not score it: {failure.code}: {failure.message}"
            basis.append(Evidence("scored by", judge.info.version))
            return "unscored", Decision(candidate.comparison_id, "pending", None, "no_score", reason, basis=basis)
        chosen, rejected = (a, b) if candidate.label == "A" else (b, a)
        p = judge.calibration.pair_probability(chosen.reward, rejected.reward)
        probabilities.append(p)
        basis.append(Evidence("counted", _judgment(judge, candidate, a, b).id))
        reasons.append(f"{judge.info.name}@{judge.info.version} gives the source's winner p = {p:.3f}")
    why = "; ".join(reasons)
    label = candidate.label
    if min(probabilities) >= config.keep_above:
        return "kept", Decision(candidate.comparison_id, "silver", label, "rm_consistent", why, basis=basis)
    if config.flip_below > 0 and max(probabilities) <= config.flip_below:
        flipped: Label = "B" if label == "A" else "A"
        return "flipped", Decision(candidate.comparison_id, "recycled", flipped, "rm_flipped", why, basis=basis)
    return "discarded", Decision(candidate.comparison_id, "discarded", label, "rm_inconsistent", why, basis=basis)


def _write_scores(
    db: Connection,
    judge: _Described,
    candidates: Sequence[Candidate],
    sides: Sequence[tuple[ScoreResult, ScoreResult]],
    run_id: str,
) -> None:
    info = judge.info
    insert_annotator(db, "reward_model", judge.name, asdict(judge.calibration))
    scored = [
        (response, score)
        for candidate, pair in zip(candidates, sides, strict=True)
        for response, score in zip((candidate.response_a_id, candidate.response_b_id), pair, strict=True)
    ]
    version = stored_version(info.version, info.dtype)
    insert_scores(db, scored, model=info.name, version=version, template_hash=info.template_hash, run_id=run_id)
    judgments = [
        _judgment(judge, candidate, a, b)
        for candidate, (a, b) in zip(candidates, sides, strict=True)
        if isinstance(a, Score) and isinstance(b, Score)
    ]
    insert_judgments(db, judgments, run_id)


def _judgment(judge: _Described, candidate: Candidate, a: Score, b: Score) -> Judgment:
    from assay_pipelines.judging.reward_model import opinion_of

    answer, confidence = opinion_of(judge.calibration, a.reward, b.reward)
    annotator = ids.annotator_id("reward_model", judge.name)
    return Judgment(candidate.comparison_id, annotator, answer, confidence=confidence)
