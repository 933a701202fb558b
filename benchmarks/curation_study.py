"""What each way of curating is worth: the study of docs/curation/study.md, cell by cell, with the product's own code.

A cell is a data set, a mix of sources and a seed; its figures are one line of --cells, and a cell that is there is not
run again. Arms that need cleanlab are left out, by name, where it is not installed.

It needs the shared data (--data FOLDER) and pip install 'assay[embed,bench]'. Texts are embedded once (--vectors keeps
them, minutes). --quick: one small cell of UKP M3. --report prints the tables of what is in --cells, and runs nothing.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import trim_mean

from assay.browsing.candidates import candidates_by_id
from assay.data.snapshots import Selection, create_snapshot, load_pairs
from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.ids import fraction
from assay.runs.record import start_run
from assay.store.intake import pair_schema, store_pairs
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.curation.loop.choosing import choose_for_judges, choose_seed
from assay_pipelines.curation.loop.config import PeopleConfig, Stage1Config, Stage1ModelConfig, Stage2Config
from assay_pipelines.curation.loop.cross_fitted import READING_L2
from assay_pipelines.curation.loop.held_out import gold_candidates
from assay_pipelines.curation.loop.parts import Parts
from assay_pipelines.curation.loop.pass_config import RelabelConfig, SourcePassConfig
from assay_pipelines.curation.loop.people import JudgedPeople
from assay_pipelines.curation.loop.relabelling import run_relabelling
from assay_pipelines.curation.loop.reward_models import LoopModel, preferring
from assay_pipelines.curation.loop.source_pass import run_source_pass
from assay_pipelines.curation.loop.stage1 import run_stage1
from assay_pipelines.curation.loop.stage2 import Stage2Parts, run_stage2
from assay_pipelines.curation.reliability.estimates import reliabilities
from assay_pipelines.embedding.hashing import HashingEncoder
from assay_pipelines.judging.recorded import RecordedJudge
from assay_rm_training.methods.hidden_states import FeatureCache
from assay_rm_training.methods.probe import ProbeConfig, ProbeScorer, train_probe
from curation_mixes import MIXES, POOL, NoisyPool, StudyFeatures, TextVectors, draw, read_pairs
from curation_trials import TrialModels, best_of
from measure import Report, arguments

MEASURES = ("pipelines/assay_pipelines/curation",)

SEEDS = range(4000, 4010)  #: of the third run of docs/curation/study.md
PEOPLE, JUDGED, FIRST, ITERATIONS, EACH = 200, 400, 100, 2, 150
PROBE = ProbeConfig(l2=(1.0, 0.3, 0.1), folds=3)
SHIPPED, BEFORE = "as shipped", "as shipped before"
LEAST_SEEDS = 5  #: under which no interval is printed: a bootstrap of fewer says nothing
UNVERIFIED, DECIDED = Selection(("unverified",)), Selection(("gold", "silver"))
Pairs = list[PreferencePair]
Floats = npt.NDArray[np.float64]


@dataclass
class Cell:
    """One draw and what its arms share: the store as imported, the same with gold, the model of gold alone."""

    pool: NoisyPool
    cache: FeatureCache
    folder: Path
    seed: int
    asked: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_id = {pair.comparison_id: pair for pair in self.pool.train}
        self.plain = Workspace.create(self.folder / "plain")
        _fill(self.plain, self.pool)
        first = choose_seed(self.plain, UNVERIFIED, PEOPLE + FIRST, seed=self.seed)[:PEOPLE]
        self.gold = {c: self.pool.people[c] for c in first}
        self.verified = self.copy("verified", self.plain)
        with self.verified.store.unit() as db:
            insert_decisions(db, [Decision(c, "gold", v, "people", "people: 1") for c, v in self.gold.items()], None)
        self.labels = {**self.pool.label, **self.gold}
        self.gold_model = self.model([self.by_id[c].pair(v) for c, v in self.gold.items()])

    def copy(self, name: str, of: Workspace | None = None) -> Workspace:
        """A store of its own, as `of` is now; with gold by default."""
        target = self.folder / name
        shutil.copytree((of or self.verified).root, target)
        return Workspace.find(target)

    def model(self, pairs: Sequence[PreferencePair]) -> LoopModel:
        probe = train_probe(self.cache, pairs, PROBE)
        return LoopModel(ProbeScorer(self.cache, probe, name="probe", version="study"), Parts.uncalibrated)

    def reader(self, pairs: Sequence[PreferencePair]) -> LoopModel:
        """As `assay curate sources --model` refits it."""
        probe = train_probe(self.cache, pairs, ProbeConfig(l2=(READING_L2,)))
        return LoopModel(ProbeScorer(self.cache, probe, name="reader", version="study"), Parts.uncalibrated)

    def accuracy(self, pairs: Sequence[PreferencePair]) -> float:
        p = self.model(pairs).probabilities([pair.pair(pair.true) for pair in self.pool.test])
        return float(np.mean([q is not None and q > 0.5 for q in p]))

    def pairs(self, labels: Mapping[str, str | None]) -> Pairs:
        """Those that have a label."""
        return [self.by_id[c].pair(v) for c, v in labels.items() if v is not None]

    def judge(self, number: int = 0) -> RecordedJudge:
        return _recorded(self.folder / f"judge-{number}.jsonl", self.pool.judges[number], "simulated")

    def cross_fitted(self) -> dict[str, float]:
        """comparison -> P(its label) by models of the other folds of raw + gold."""
        fold = {c: int(fraction("study fold", c) * PROBE.folds) for c in self.labels}
        p: dict[str, float] = {}
        for number in range(PROBE.folds):
            model = self.model(self.pairs({c: v for c, v in self.labels.items() if fold[c] != number}))
            mine = [c for c in self.labels if fold[c] == number]
            scored = model.probabilities([self.by_id[c].pair(self.labels[c]) for c in mine])
            p |= {c: q for c, q in zip(mine, scored, strict=True) if q is not None}
        return p


def raw(cell: Cell) -> Pairs:
    return cell.pairs(cell.pool.label)


def oracle(cell: Cell) -> Pairs:
    return [pair.pair(pair.true) for pair in cell.pool.train]


def gold_only(cell: Cell) -> Pairs:
    return cell.pairs(cell.gold)


def raw_and_gold(cell: Cell) -> Pairs:
    return cell.pairs(cell.labels)


def source_pass(name: str, *, judged: bool = False, model: bool = False, **settings: Any) -> Callable[[Cell], Pairs]:
    """`assay curate sources` with these settings; gold and silver with their weights. `model`: with --model."""

    def arm(cell: Cell) -> Pairs:
        workspace = cell.copy(name)
        if judged:
            settings["judged"] = JUDGED
            cell.asked[name] = JUDGED + PEOPLE
        judges = [cell.judge()] if judged else []
        refit = cell.reader if model else None
        return _decided(cell, workspace, SourcePassConfig(seed=cell.seed, **settings), judges, name, refit)

    return arm


def _decided(
    cell: Cell,
    workspace: Workspace,
    config: SourcePassConfig,
    judges: Sequence[Any],
    name: str,
    refit: Callable[[Sequence[PreferencePair]], LoopModel] | None = None,
) -> Pairs:
    try:
        report = run_source_pass(workspace, config, UNVERIFIED, "study", judges=judges, refit=refit)
    except BadInputError as error:
        cell.notes[name] = str(error)
        return raw_and_gold(cell)
    cell.notes[name] = [report.kept, report.reversed, report.discarded, report.unmeasured]
    return _snapshot(workspace, DECIDED)


def relabel(cell: Cell) -> Pairs:
    workspace = cell.copy("relabel")
    labels = _decided(cell, workspace, SourcePassConfig(seed=cell.seed), [], "relabel")
    model = cell.model(labels)
    try:
        gold = len(cell.gold)

        def refit(pairs: Sequence[PreferencePair]) -> LoopModel:
            rest = [pair for pair in labels if pair.comparison_id not in cell.gold]
            assert len(pairs) < gold
            return cell.model([*pairs, *rest])

        report = run_relabelling(workspace, RelabelConfig(), model, "study", refit=refit)
        cell.notes["relabel"] = [report.relabelled, report.against]
    except BadInputError as error:
        cell.notes["relabel"] = str(error)
        return labels
    return _snapshot(workspace, DECIDED, "relabelled")


def judged_at_random(cell: Cell) -> Pairs:
    cell.asked["judge at random"] = JUDGED
    pool = sorted((c for c in cell.pool.label if c not in cell.gold), key=lambda c: fraction(cell.seed, "random", c))
    return cell.pairs({**cell.labels, **{c: cell.pool.judges[0][c] for c in pool[:JUDGED]}})


def judged_by_contradiction(cell: Cell) -> Pairs:
    cell.asked["judge by contradiction"] = JUDGED
    with cell.verified.store.unit() as db:
        worth = reliabilities(db)
    chosen = choose_for_judges(cell.verified, UNVERIFIED, JUDGED, "contradiction", worth, model=cell.gold_model)
    answers = {target.comparison_id: cell.pool.judges[0][target.comparison_id] for target in chosen}
    return cell.pairs({**cell.labels, **answers})


def stages(cell: Cell) -> Iterator[tuple[str, Pairs]]:
    """Stage 1, then stage 2 on copies of its store, every pair alike and by weights."""
    workspace = cell.copy("stage 1", cell.plain)
    model = Stage1ModelConfig(base="minilm+surface", device="cpu", options={"l2": PROBE.l2, "folds": PROBE.folds})
    people = PeopleConfig(seed=PEOPLE, per_iteration=0, queue=False, judges="recorded")
    config = Stage1Config(
        "study", ITERATIONS, seed=FIRST, per_iteration=EACH, judges="recorded", demonstrations=0, embed_responses=True,
        model=model, people=people, random_seed=cell.seed,
    )  # fmt: skip
    models = TrialModels(workspace, model, shared=cell.cache)
    annotators = JudgedPeople(workspace, [_recorded(cell.folder / "people.jsonl", cell.pool.people, "human")])
    parts = Parts(workspace, models, annotators, HashingEncoder(256), [cell.judge()], embed_responses=True)
    with start_run(workspace, "curate-stage1", config.to_dict()) as run:
        report = run_stage1(config, parts, run)
        cell.asked["stage 1"] = sum(done.get("judges_asked", 0) for done in report.iterations)
        after_stage1 = _snapshot(workspace, Selection(("gold", "silver", "unverified")), "stage 1")
        yield "stage 1", after_stage1
        best = best_of(workspace, report, models)
        for use in ("equal", "weights"):
            name = f"stages 1+2, {use}"
            again = cell.copy(name, workspace)
            gold = cell.model([preferring(c, c.label) for c in gold_candidates(again, labelled=False)])
            stage2 = Stage2Parts(again, best, gold, [cell.judge()], refit_gold=cell.model)
            if use == "weights":
                _measure_judge(again, cell)
            try:
                done = run_stage2(Stage2Config(sources=use), stage2, UNVERIFIED, run.id)
            except BadInputError as error:
                cell.notes[name] = str(error)
                yield name, after_stage1
                continue
            cell.asked[name] = cell.asked["stage 1"] + done.to_ask
            cell.notes[name] = [done.kept, done.discarded]
            yield name, _snapshot(again, DECIDED, name)


def _measure_judge(workspace: Workspace, cell: Cell) -> None:
    from assay_pipelines.judging.asking import ask
    from assay_pipelines.llm.questions import questions_of

    ask(workspace, cell.judge(), questions_of(workspace, candidates_by_id(workspace, list(cell.gold))), None)


def cleaners(cell: Cell) -> Iterator[tuple[str, Pairs]]:
    """The published cleaners, on raw + gold."""
    p = cell.cross_fitted()
    kept = {c: v for c, v in cell.labels.items() if c in p}
    share = float(np.mean([cell.pool.label[c] != v for c, v in cell.gold.items()]))
    worst = sorted((c for c in kept if c not in cell.gold), key=lambda c: p[c])[: round(share * len(kept))]
    yield "loss-based", cell.pairs({c: v for c, v in kept.items() if c not in set(worst)})
    against = {
        c: sum(judge[c] != v for judge in cell.pool.judges) == len(cell.pool.judges)
        for c, v in kept.items()
        if c not in cell.gold
    }
    asked = len(cell.pool.judges) * len(cell.pool.train)
    cell.asked |= {"three judges, removed": asked, "three judges, flipped": asked}
    yield "three judges, removed", cell.pairs({c: v for c, v in kept.items() if not against.get(c)})
    other = {"A": "B", "B": "A"}
    yield "three judges, flipped", cell.pairs({c: other[v] if against.get(c) else v for c, v in kept.items()})
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        cell.notes["confident learning"] = "cleanlab is not installed"
        return
    names = list(kept)
    given = np.array([kept[c] == "A" for c in names], dtype=int)
    p_a = np.array([p[c] if kept[c] == "A" else 1 - p[c] for c in names])
    issues = find_label_issues(given, np.stack([1 - p_a, p_a], axis=1), n_jobs=1)
    wrong = {c for c, issue in zip(names, issues, strict=True) if issue and c not in cell.gold}
    yield "confident learning", cell.pairs({c: v for c, v in kept.items() if c not in wrong})


ARMS: dict[str, Callable[[Cell], Pairs]] = {
    "raw": raw,
    "oracle": oracle,
    "gold only": gold_only,
    "raw + gold": raw_and_gold,
    "drop sources": source_pass("drop sources", use="drop"),
    "reliability weights": source_pass("reliability weights"),
    "soft labels": source_pass("soft labels", use="soft"),
    "relabel": relabel,
    "judge at random": judged_at_random,
    "judge by contradiction": judged_by_contradiction,
    BEFORE: source_pass(BEFORE, judged=True),
    SHIPPED: source_pass(SHIPPED, judged=True, model=True),
    "as shipped, no judge": source_pass("as shipped, no judge", model=True),
    "as shipped, soft": source_pass("as shipped, soft", judged=True, model=True, use="soft"),
    "as shipped, by contradiction": source_pass(
        "as shipped, by contradiction", judged=True, model=True, spend="contradiction"
    ),
}
SEVERAL = {"stages": stages, "cleaners": cleaners}


def run_cell(pool: NoisyPool, cache: FeatureCache, seed: int, arms: Sequence[str]) -> dict[str, Any]:
    """Accuracy by arm, questions to judges, what the passes said."""
    with tempfile.TemporaryDirectory() as folder:
        cell = Cell(pool, cache, Path(folder), seed)
        accuracy = {name: cell.accuracy(arm(cell)) for name, arm in ARMS.items() if name in arms}
        for several in (several for name, several in SEVERAL.items() if name in arms):
            accuracy |= {name: cell.accuracy(pairs) for name, pairs in several(cell)}
        wrong = float(np.mean([pool.label[pair.comparison_id] != pair.true for pair in pool.train]))
        return {"accuracy": accuracy, "wrong": wrong, "asked": cell.asked, "notes": cell.notes, "test": len(pool.test)}


def _fill(workspace: Workspace, pool: NoisyPool) -> None:
    import pyarrow as pa

    records = [
        {
            **dict.fromkeys(pair_schema().names),
            "row": number,
            "messages": [m.to_dict() for m in pair.prompt],
            "first": pair.a,
            "second": pair.b,
            "label": "first" if pool.label[pair.comparison_id] == "A" else "second",
            "source": pool.source[pair.comparison_id],
            "record_id": str(number),
            "category": pair.group,
        }
        for number, pair in enumerate(pool.train, start=1)
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(records, schema=pair_schema()), None)


def _recorded(path: Path, answers: Mapping[str, str], kind: Any) -> RecordedJudge:
    lines = (json.dumps({"comparison_id": c, "answer": answer}) for c, answer in answers.items())
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return RecordedJudge.from_file(path, name=path.stem, kind=kind)


def _snapshot(workspace: Workspace, selection: Selection, name: str = "labels") -> Pairs:
    name = "".join(letter if letter.isalnum() else "-" for letter in name)
    create_snapshot(workspace, name, selection, None)
    return load_pairs(workspace, name)


def iqm(values: Floats) -> Any:
    """Mean of the middle half, along the last axis."""
    return trim_mean(values, 0.25, axis=-1)


def resampled(rows: Floats, figure: Callable[[Floats], Any], draws: int) -> tuple[float, float] | None:
    """95 % percentile interval of `figure`, which takes [k, draws, n], of rows [n, k] drawn with replacement; None of
    under LEAST_SEEDS."""
    if len(rows) < LEAST_SEEDS:
        return None
    chosen = np.random.default_rng(0).integers(len(rows), size=(draws, len(rows)))
    low, high = np.nanpercentile(figure(np.moveaxis(rows[chosen], -1, 0)), [2.5, 97.5])
    return float(low), float(high)


def overall(table: Mapping[str, Any], cells: Sequence[dict[str, Any]], draws: int) -> dict[str, Any]:
    """Of every arm the IQM gain over all cells, each data set and mix resampled for itself."""
    rng = np.random.default_rng(0)
    figures = {}
    for arm in dict.fromkeys(name for cell in cells for name in cell["accuracy"]):
        parts = []
        for key in table:
            gains = [
                cell["accuracy"][arm] - cell["accuracy"]["raw"]
                for cell in cells
                if f"{cell['data']} {cell['mix']}" == key and arm in cell["accuracy"]
            ]
            if gains:
                parts.append(np.array(gains)[rng.integers(len(gains), size=(draws, len(gains)))])
        low, high = np.percentile(iqm(np.concatenate(parts, axis=1)), [2.5, 97.5])
        all_gains = [c["accuracy"][arm] - c["accuracy"]["raw"] for c in cells if arm in c["accuracy"]]
        figures[arm] = {"gain": float(iqm(np.array(all_gains))), "interval": (float(low), float(high))}
    return figures


def summary(cells: Sequence[dict[str, Any]], draws: int = 10_000) -> dict[str, Any]:
    """By data set and mix: raw, headroom, and of every arm gain and recovered share, with intervals."""
    table: dict[str, Any] = {}
    for key in dict.fromkeys((cell["data"], cell["mix"]) for cell in cells):
        rows = [cell for cell in cells if (cell["data"], cell["mix"]) == key]
        start, top = (np.array([row["accuracy"][arm] for row in rows]) for arm in ("raw", "oracle"))
        headroom = float(iqm(top - start))
        arms = {}
        for arm in dict.fromkeys(name for row in rows for name in row["accuracy"]):
            there = np.array([arm in row["accuracy"] for row in rows])
            gain = np.array([row["accuracy"].get(arm, np.nan) for row in rows]) - start
            both = np.stack([gain, top - start], axis=1)[there]
            asked = [row["asked"].get(arm, 0) for row in rows]
            figures = {
                "seeds": int(there.sum()),
                "gain": float(iqm(gain[there])),
                "interval": resampled(both, lambda v: iqm(v[0]), draws),
                "asked": round(float(np.mean(asked))),
            }
            if headroom > 0.03:
                figures["recovered"] = float(iqm(gain[there])) / headroom
                figures["recovered_interval"] = resampled(both, lambda v: iqm(v[0]) / iqm(v[1]), draws)
            arms[arm] = figures
        table[" ".join(key)] = {
            "seeds": len(rows),
            "wrong": float(np.mean([row["wrong"] for row in rows])),
            "raw": float(iqm(start)),
            "headroom": headroom,
            "headroom_interval": resampled((top - start)[:, None], lambda v: iqm(v[0]), draws),
            "arms": arms,
        }
    return table


def _with_interval(figure: str, interval: Sequence[float] | None, form: str, scale: float) -> str:
    if interval is None:
        return figure
    low, high = interval
    return f"{figure} [{scale * low:{form}}, {scale * high:{form}}]"


def print_tables(table: Mapping[str, Any]) -> None:
    for name, cell in table.items():
        seeds, headroom = cell["seeds"], f"{100 * cell['headroom']:+.1f}"
        print(
            f"\n{name}: {seeds} seeds, {cell['wrong']:.1%} of the labels wrong, raw {cell['raw']:.3f}, headroom "
            f"{_with_interval(headroom, cell['headroom_interval'], '+.1f', 100)} points"
        )
        print("| arm | questions | gain, points | recovered |\n|---|---|---|---|")
        for arm, figures in sorted(cell["arms"].items(), key=lambda entry: -entry[1]["gain"]):
            recovered, n = "", figures["seeds"]
            if "recovered" in figures:
                share = f"{figures['recovered']:.0%}"
                recovered = _with_interval(share, figures["recovered_interval"], ".0%", 1)
            few = "" if n == seeds else f" ({n} seeds)"
            gain = _with_interval(f"{100 * figures['gain']:+.1f}", figures["interval"], "+.1f", 100)
            print(f"| {arm}{few} | {figures['asked'] or ''} | {gain} | {recovered} |")


def run_cells(options: Namespace) -> None:
    """Append every cell that the file does not have yet."""
    done = {(cell["data"], cell["mix"], cell["seed"]) for cell in read_cells(options.cells)}
    vectors = TextVectors(options.vectors)
    cache: Any = StudyFeatures(vectors)
    for name in options.sets:
        todo = [(m, s) for m in options.mixes for s in options.seeds if (name, m, s) not in done]
        if not todo:
            continue
        pairs = read_pairs(options.data, name)
        vectors.add([text for pair in pairs for text in (pair.a, pair.b)])
        for mix, seed in todo:
            started = time.perf_counter()
            pool = draw(pairs, name, mix, seed, options.size or POOL[name])
            cell = {
                "data": name,
                "mix": mix,
                "seed": seed,
                **run_cell(pool, cache, seed, ["raw", "oracle", SHIPPED, *options.arms]),
            }
            with options.cells.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(cell) + "\n")
            accuracy = cell["accuracy"]
            print(
                f"{name} {mix} {seed}: raw {accuracy['raw']:.3f} oracle {accuracy['oracle']:.3f} shipped "
                f"{accuracy[SHIPPED]:.3f} ({time.perf_counter() - started:.0f} s)",
                flush=True,
            )


def read_cells(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the shared data")
    parser.add_argument(
        "--cells", type=Path, default=Path("curation_study.jsonl"), help="figures, a line for each cell"
    )
    parser.add_argument("--vectors", type=Path, default=Path("curation_study.npz"), help="embeddings, kept")
    parser.add_argument("--sets", nargs="+", choices=list(POOL), default=["UKP", "ALP", "HH"])
    parser.add_argument("--mixes", nargs="+", choices=list(MIXES), default=["M3", *(m for m in MIXES if m != "M3")])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--size", type=int, default=0, help="pairs of the pool; 0: as in docs/curation/study.md")
    every = [*ARMS, *SEVERAL]
    parser.add_argument(
        "--arms", nargs="+", choices=every, default=every, help="raw, oracle and as shipped are always run"
    )
    parser.add_argument("--report", action="store_true", help="print what is in --cells")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.quick:
            options.sets, options.mixes, options.seeds, options.size = ["UKP"], ["M3"], [1999], 1_000
            options.cells, options.vectors = Path(folder) / "cells.jsonl", Path(folder) / "vectors.npz"
        if not options.report:
            if not (options.data / "ukpconvarg1_pairs.jsonl.gz").is_file():
                sys.exit(f"skipped: no shared data at {options.data} (--data FOLDER)")
            run_cells(options)
        cells = read_cells(options.cells)
        table = summary(cells)
        several = overall(table, cells, 10_000) if len(table) > 1 else {}
    print_tables(table)
    if several:
        print("\nall cells together, each data set and mix resampled for itself\n| arm | gain, points |\n|---|---|")
    for arm, figures in sorted(several.items(), key=lambda entry: -entry[1]["gain"]):
        low, high = figures["interval"]
        print(f"| {arm} | {100 * figures['gain']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}] |")
    report = Report("curation_study", measures=MEASURES)
    for name, cell in table.items():
        figures = cell["arms"][SHIPPED]
        if "recovered" in figures:
            report.ratios[f"{name}: gain as shipped / headroom"] = figures["recovered"]
    report.figures = {"cells": table, "together": several}
    report.finish(options)


if __name__ == "__main__":
    main()
