"""What the curation experiments share: rows, a workspace filled from a noisy source, recorded people, one whole loop.

Covers: stage 1 then stage 2 on a scratch workspace with features that all trials share; t intervals over seeds. Leaves
out: what is measured (`curation_ukp.py`, `curation_flips.py`).
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.data.snapshots import Selection
from assay.domain import Answer, PreferencePair, Prompt
from assay.runs.record import Run, start_run
from assay.store.intake import pair_schema, store_pairs
from assay.workspace import Workspace
from assay_pipelines.curation.loop.config import PeopleConfig, Stage1Config, Stage1ModelConfig, Stage2Config
from assay_pipelines.curation.loop.parts import Parts
from assay_pipelines.curation.loop.people import JudgedPeople
from assay_pipelines.curation.loop.reward_models import LoopModel, ProbeModels
from assay_pipelines.curation.loop.stage1 import Stage1Report, run_stage1
from assay_pipelines.curation.loop.stage2 import Stage2Parts, run_stage2
from assay_pipelines.curation.reliability.label_quality import LabelQuality
from assay_pipelines.embedding.encoder import Encoder
from assay_pipelines.judging.recorded import RecordedJudge
from assay_rm_training.methods.hidden_states import FeatureCache
from assay_rm_training.methods.probe import ProbeConfig, ProbeScorer, train_probe

#: Two-sided 95 % quantiles of Student's t by degrees of freedom.
T95 = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 14: 2.145, 19: 2.093}
_SAID = {"A": "first", "B": "second", "tie": "tie"}


def loop_steps(workspace: Workspace, name: str) -> list[tuple[int, str, dict[str, Any]]]:
    """(iteration, step, outcome) of a loop in the order they happened."""
    with workspace.store.unit() as db:
        rows = db.execute(
            "SELECT iteration, step, outcome FROM loop_steps WHERE loop = ? ORDER BY created_at, iteration", [name]
        ).fetchall()
    return [(iteration, step, json.loads(outcome)) for iteration, step, outcome in rows]


@dataclass(frozen=True)
class Row:
    """One pair in canonical order. `group`: what a split must not cut."""

    comparison_id: str
    group: str
    prompt: Prompt
    a: str
    b: str

    def pair(self, label: str) -> PreferencePair:
        sides = (self.a, self.b) if label == "A" else (self.b, self.a)
        return PreferencePair(self.prompt, *sides, comparison_id=self.comparison_id, category=self.group)


@dataclass(frozen=True)
class LoopSettings:
    """`people`: comparisons that people may see over the whole loop, a third of them as the seed."""

    people: int
    iterations: int
    seed_silver: int
    recycle_below: float = 0.5


@dataclass(frozen=True)
class LoopResult:
    """`labels`: comparison -> (pool, label) of what is decided; `refused`: stage 2 decided only because it had to,
    against what gold says of its decisions."""

    labels: dict[str, tuple[str, str | None]]
    stage1: Stage1Report
    stage2: dict[str, Any]
    refused: bool

    @property
    def people_asked(self) -> int:
        return sum(i.get("people_asked", 0) for i in self.stage1.iterations)

    def flagged(self, source: Mapping[str, Answer]) -> set[str]:
        """Comparisons whose A/B label of the source the loop changed or discarded."""
        return {
            comparison
            for comparison, (pool, label) in self.labels.items()
            if source[comparison] in ("A", "B") and (pool == "discarded" or label != source[comparison])
        }


class TrialModels(ProbeModels):
    """The loop's probes, less the checkpoint at the end: a trial reads the head, nobody serves it."""

    def publish(self, run: Run, trained: dict[str, Any], name: str, sample: Sequence[PreferencePair]) -> str:
        return "not published"


def run_loop(
    rows: Sequence[Row],
    source: Mapping[str, Answer],
    people: Mapping[str, Sequence[Answer]],
    cache: FeatureCache,
    encoder: Encoder,
    settings: LoopSettings,
    *,
    seed: int,
) -> LoopResult:
    """Stage 1 with `people`'s recorded votes, the source and the loop's model as silver's voters, then stage 2 with the
    loop's best model and one trained on gold alone. Where stage 2 would be refused it is forced: what it would do is
    what is measured."""
    first = settings.people // 3
    each = (settings.people - first) // settings.iterations
    model = Stage1ModelConfig(base=cache.backbone.base, max_length=cache.backbone.renderer.max_length, device="cpu")
    config = Stage1Config(
        name="trial",
        iterations=settings.iterations,
        seed=settings.seed_silver,
        embed_responses=True,
        source_votes=True,
        model_votes=True,
        train_on="silver",
        model=model,
        people=PeopleConfig(seed=first, per_iteration=each, queue=False, judges="recorded"),
        random_seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.create(Path(folder) / "workspace")
        fill(workspace, rows, source)
        models = TrialModels(workspace, model, shared=cache)
        annotators = JudgedPeople(workspace, recorded_people(people, Path(folder)))
        parts = Parts(workspace, models, annotators, encoder, embed_responses=True)
        with start_run(workspace, "curate-stage1", config.to_dict()) as run:
            stage1 = run_stage1(config, parts, run)
            by_id = {row.comparison_id: row for row in rows}
            gold = [
                by_id[c].pair(v) for c, (pool, v) in _labels(workspace).items() if pool == "gold" and v in ("A", "B")
            ]
            on_gold = LoopModel(models.load(models.train(run, "gold-rm", "trial-gold", gold, [])), Parts.uncalibrated)
            decides = Stage2Config(recycle_below=settings.recycle_below)
            by = Stage2Parts(workspace, best_of(workspace, stage1, models), on_gold)
            stage2 = run_stage2(decides, by, Selection(("unverified",)), run.id, force=True)
            quality = {name: stage2.quality[name] for name in LabelQuality.__dataclass_fields__}
        return LoopResult(_labels(workspace), stage1, asdict(stage2), LabelQuality(**quality).worse)


def fill(workspace: Workspace, rows: Sequence[Row], source: Mapping[str, Answer]) -> None:
    """The pairs with the source's labels, stored as any import is."""
    import pyarrow as pa

    records = [
        {
            **dict.fromkeys(pair_schema().names),
            "row": number,
            "messages": [m.to_dict() for m in row.prompt],
            "first": row.a,
            "second": row.b,
            "label": _SAID[source[row.comparison_id]],
            "source": "noisy",
            "record_id": str(number),
            "category": row.group,
        }
        for number, row in enumerate(rows, start=1)
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(records, schema=pair_schema()), None)


def recorded_people(votes: Mapping[str, Sequence[Answer]], folder: Path) -> list[RecordedJudge]:
    """The first, second, ... vote on each comparison, each a person of its own."""
    people = []
    for number in range(max(len(answers) for answers in votes.values())):
        path = folder / f"voter-{number}.jsonl"
        with path.open("w", encoding="utf-8") as stream:
            for comparison, answers in votes.items():
                if number < len(answers):
                    stream.write(json.dumps({"comparison_id": comparison, "answer": answers[number]}) + "\n")
        people.append(RecordedJudge.from_file(path, name=f"voter-{number}"))
    return people


def fit(cache: FeatureCache, pairs: Sequence[PreferencePair]) -> LoopModel:
    """The reward model of every arm: a probe with its penalty chosen by cross-validation on these very pairs."""
    probe = train_probe(cache, pairs, ProbeConfig())
    return LoopModel(ProbeScorer(cache, probe, name="arm", version="trial"), Parts.uncalibrated)


def cross_fitted(
    cache: FeatureCache, rows: Sequence[Row], source: Mapping[str, Answer], *, halves: Mapping[str, bool]
) -> dict[str, float]:
    """comparison -> P(the source's label) by a model of the other half; `halves`: group -> which half."""
    labelled = [row for row in rows if source[row.comparison_id] in ("A", "B")]
    by_comparison: dict[str, float] = {}
    for side in (True, False):
        model = fit(cache, [r.pair(source[r.comparison_id]) for r in labelled if halves[r.group] != side])
        mine = [r for r in labelled if halves[r.group] == side]
        probabilities = model.probabilities([r.pair(source[r.comparison_id]) for r in mine])
        by_comparison |= {r.comparison_id: p for r, p in zip(mine, probabilities, strict=True) if p is not None}
    return by_comparison


def precision_recall(flagged: set[str], wrong: set[str]) -> dict[str, float]:
    """NaN where nothing was flagged, or nothing is wrong."""
    hits = len(flagged & wrong)
    return {
        "flagged": len(flagged),
        "wrong": len(wrong),
        "precision": hits / len(flagged) if flagged else math.nan,
        "recall": hits / len(wrong) if wrong else math.nan,
    }


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and its 95 % t interval over seeds."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.nan, math.nan
    t = T95[max(d for d in T95 if d <= len(values) - 1)]
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def show_ci(interval: tuple[float, float, float], *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    return "{:{s}.3f} [{:{s}.3f}, {:{s}.3f}]".format(*interval, s=sign)


def _labels(workspace: Workspace) -> dict[str, tuple[str, str | None]]:
    with workspace.store.unit() as db:
        rows = db.execute("SELECT comparison_id, pool, label FROM pools WHERE pool <> 'unverified'").fetchall()
    return {c: (pool, label) for c, pool, label in rows}


def best_of(workspace: Workspace, report: Stage1Report, models: ProbeModels) -> LoopModel:
    steps = {(i, s): outcome for i, s, outcome in loop_steps(workspace, report.loop)}
    chosen = next(outcome["best"] for (_, step), outcome in steps.items() if step == "publish")
    trained = steps.get((chosen, "final")) or steps[chosen, "train"]
    return LoopModel(models.load(trained["model"]), Parts.uncalibrated)
