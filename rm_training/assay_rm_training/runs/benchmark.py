"""Evaluation of models on a benchmark as a recorded run: items, scores of every contender, reports, comparison.

A contender is a local or served model (`models`), a pairwise judge (`judges`), or a file of recorded scores (`scores`).
With recorded scores alone nothing is loaded and no workspace is needed; in a workspace it leaves a run record, and
per-item results in the store. What models have scored is kept while it goes on: an evaluation that was killed, begun
again, asks only for the rest. Leaves out: the protocols (`benchmarks`), printing (`commands`).
"""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from assay.compute.executor import Executor
from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.models.contamination import BenchmarkUse, union
from assay.runs.contamination_gate import BenchmarkState, evaluated_contamination
from assay.runs.progress_bar import progress_bar
from assay.runs.record import Run, locate_model, start_run
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_rm_training.benchmarks.benchmark import Benchmark
from assay_rm_training.benchmarks.catalogue import absolute_benchmark
from assay_rm_training.benchmarks.catalogue import benchmark as benchmark_named
from assay_rm_training.benchmarks.comparison import ModelComparison, compare
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome
from assay_rm_training.benchmarks.outcome_journal import FOLDER, OutcomeJournals, Scored
from assay_rm_training.benchmarks.recorded import read_recorded
from assay_rm_training.benchmarks.report import BenchmarkItems, BenchmarkReport, read_items, report
from assay_rm_training.benchmarks.stored_results import item_table, store_results, write_parquet
from assay_rm_training.run_settings import BenchmarkConfig
from assay_rm_training.runs.contamination_lineage import relevant, uses_of_model
from assay_serving.model_config import ModelConfig
from assay_serving.model_reference import is_url
from assay_serving.scorer import ModelInfo, Scorer
from assay_serving.sharded_scorer import ShardedScorer, shared_workspace

REPORT, ITEMS = "benchmark.json", "items.parquet"
JUDGED_PART = 64  #: responses that a judge is asked about between two writes


@dataclass(frozen=True)
class Contender:
    """One model's outcomes. `info` is None for recorded scores."""

    name: str
    outcomes: tuple[Outcome, ...]
    reference: str
    info: ModelInfo | None = None
    snapshot: str | None = None  #: the training snapshot in its spec
    trained_by: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    lineage: tuple[BenchmarkUse, ...] = ()  #: what the model carries of the evaluated benchmarks


@dataclass(frozen=True)
class BenchmarkRun:
    """`comparisons`: of every other contender with the first. `folder`: where the report and the items lie. `unread`:
    of each judge with more unreadable replies than readable ones, what happened."""

    benchmark: Benchmark
    reports: tuple[BenchmarkReport, ...]
    comparisons: tuple[ModelComparison, ...]
    run_id: str | None
    folder: Path | None
    contamination: tuple[tuple[tuple[BenchmarkState, int], ...], ...]
    unread: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A single report unchanged; several under `models`, with `comparisons`."""
        reports = [one.to_dict() for one in self.reports]
        records = {"run_id": self.run_id, "folder": str(self.folder) if self.folder else None}
        if len(reports) == 1:
            return {**reports[0], **records}
        return {
            "bench": self.benchmark.name,
            "models": reports,
            "comparisons": [one.to_dict() for one in self.comparisons],
            "warnings": [f"{one.model}: {warning}" for one in self.reports for warning in one.warnings],
            **records,
        }


def run_benchmark(
    workspace: Workspace | None,
    config: BenchmarkConfig,
    *,
    out: Path | None = None,
    api_key: str | None = None,
    executor: Executor | None = None,
) -> BenchmarkRun:
    """Evaluate every contender on the same items, with progress on standard error. `executor`: where models score, on
    shards in the workspace; None: in this process.

    Raises BadInputError for malformed items or scores, NotFoundError for an unknown file or
    model, BackendError where a server or the hub does not answer.
    """
    bench = benchmark_named(config.bench)
    if config.judges and not bench.takes_decisions:
        raise BadInputError(f"{bench.title} is not judged in pairs; give a model that scores", field="--judge")
    dataset = read_items(bench, [Path(path) for path in config.paths], limit=config.limit)
    config = replace(
        config,
        bench=absolute_benchmark(config.bench),
        scores=tuple(_scores_file(workspace, name) for name in config.scores),
    )
    with ExitStack() as stack:
        run = None
        if workspace is not None:
            run = stack.enter_context(start_run(workspace, "eval", asdict(config), inputs=_inputs(workspace, config)))
        kept_in = workspace.root if workspace is not None else out.expanduser() if out is not None else None
        journals = OutcomeJournals(kept_in / FOLDER if kept_in is not None else None)
        contenders = _contenders(bench, dataset.items, config, workspace, api_key, executor, journals)
        reports, states = [], []
        for one in contenders:
            contamination = _contamination(workspace, dataset.items, one)
            one = replace(one, lineage=_lineage(workspace, one, contamination))
            states.append(tuple(contamination))
            reports.append(_report(bench, dataset, one, config, contamination))
        comparisons = tuple(
            compare(
                bench,
                dataset.items,
                (contenders[0].name, contenders[0].outcomes),
                (other.name, other.outcomes),
                ties=config.ties,
                seed=config.seed,
            )
            for other in contenders[1:]
        )
        folders = [folder.expanduser() for folder in (out, run.folder if run else None) if folder is not None]
        result = BenchmarkRun(
            bench,
            tuple(reports),
            comparisons,
            run.id if run else None,
            folders[0] if folders else None,
            tuple(states),
            tuple(line for one in contenders if (line := _unread(one))),
        )
        _write(folders, run, bench, dataset.items, contenders, result, config)
        if run is not None:
            run.metrics.update(result.to_dict())
        journals.remove()
        return result


def _contenders(
    bench: Benchmark,
    items: Sequence[BenchmarkItem],
    config: BenchmarkConfig,
    workspace: Workspace | None,
    api_key: str | None,
    executor: Executor | None,
    journals: OutcomeJournals,
) -> list[Contender]:
    root = workspace.root if workspace else None
    # Files first: they fail before a model is loaded.
    recorded = [_recorded(path, bench, items) for path in config.scores]
    contenders = [
        *(_scored(items, reference, config, workspace, api_key, executor, journals) for reference in config.models),
        *(_judged(items, reference, config, root, api_key, journals) for reference in config.judges),
        *recorded,
    ]
    names: set[str] = set()
    for index, contender in enumerate(contenders):
        numbered = (f"{contender.name}#{number}" for number in count(2))
        name = next(name for name in chain([contender.name], numbered) if name not in names)
        names.add(name)
        contenders[index] = replace(contender, name=name)
    return contenders


def _recorded(path: str, bench: Benchmark, items: Sequence[BenchmarkItem]) -> Contender:
    recorded = read_recorded(Path(path), bench, items)
    details = {"recorded": {"path": path, "rows": recorded.rows, "matched_in_order": recorded.in_order}}
    return Contender(_stem(path), recorded.outcomes, path, details=details)


def _scored(
    items: Sequence[BenchmarkItem],
    reference: str,
    config: BenchmarkConfig,
    workspace: Workspace | None,
    api_key: str | None,
    executor: Executor | None,
    journals: OutcomeJournals,
) -> Contender:
    from assay_rm_training.benchmarks.scoring import score_items
    from assay_serving.model_loader import open_scorer, server_config

    if is_url(reference):
        model = server_config(reference, model=config.server_model, api_key=api_key, correct=config.correct)
    else:
        model = config.model_config(reference)
    scorer: Scorer
    if executor is not None:
        scorer = ShardedScorer(shared_workspace(workspace), model, executor)
    else:
        scorer = open_scorer(model, workspace.root if workspace else None)
    responses = sum(len(item.responses) for item in items)
    with progress_bar(f"scoring with {scorer.info.name}", responses, unit="responses") as advance:
        if executor is not None:  # shards resume by themselves
            outcomes = score_items(scorer, items, principle=config.principle, advance=advance)
        else:

            def score(part: Sequence[BenchmarkItem]) -> Scored:
                return score_items(scorer, part, principle=config.principle, advance=advance), {}

            scored_as = _scored_with(config, reference, scorer.info)
            outcomes, _ = journals.complete(items, scored_as, score, advance=advance)
    return _contender(outcomes, reference, scorer.info, getattr(scorer, "spec", None))


def _judged(
    items: Sequence[BenchmarkItem],
    reference: str,
    config: BenchmarkConfig,
    root: Path | None,
    api_key: str | None,
    journals: OutcomeJournals,
) -> Contender:
    from assay_rm_training.benchmarks.scoring import judge_items
    from assay_serving.generative.profiles.recognition import UnreadReplies, example
    from assay_serving.model_loader import open_judge

    model = ModelConfig(
        reference,
        served_as=config.server_model if is_url(reference) else None,
        device=config.device,
        dtype=config.dtype,
        max_length=config.max_length,
        allow_failed_parity=config.allow_failed_parity,
        judge_profile=config.judge_profile,
        tools=config.tools,
    )
    judge = open_judge(model, api_key=api_key, seed=config.seed, workspace=root)
    with progress_bar(f"asking {judge.info.name}", 2 * len(items), unit="games") as advance:

        def ask(part: Sequence[BenchmarkItem]) -> Scored:
            outcomes, read = judge_items(judge, part, advance=advance)
            return outcomes, asdict(read)

        scored_as = _scored_with(config, reference, judge.info) | {"form": judge.form.hash}
        outcomes, counted = journals.complete(
            items, scored_as, ask, part=JUDGED_PART, unit=lambda item: 2, advance=advance
        )
    parts = [UnreadReplies(**counts) for counts in counted]
    replies = UnreadReplies(
        sum(part.replies for part in parts),
        sum(part.unread for part in parts),
        [text for part in parts for text in part.texts],
    )
    line = replies.line(judge.info.name, judge.form.name, 2) if replies.unread else ""
    if replies.unread == replies.replies > 0:
        raise BadInputError(line)
    contender = _contender(outcomes, reference, judge.info, judge.spec)
    unread = {"replies": replies.replies, "unread": replies.unread, "example": example(replies.texts), "line": line}
    return replace(contender, details=contender.details | {"judge_profile": judge.form.name, "unread_replies": unread})


def _scored_with(config: BenchmarkConfig, reference: str, info: ModelInfo) -> dict[str, Any]:
    """All that a score depends on beside the items."""
    elsewhere = ("bench", "paths", "models", "judges", "scores", "ties", "limit", "token_budget", "device")
    settings = {name: value for name, value in asdict(config).items() if name not in elsewhere}
    return {"reference": reference, "settings": settings, "model": info.to_dict()}


def _unread(one: Contender) -> str:
    """What is wrong with a judge of whose replies most could not be read; "" for any other contender."""
    counted = one.details.get("unread_replies", {"replies": 0, "unread": 0, "line": ""})
    return str(counted["line"]) if 2 * counted["unread"] > counted["replies"] else ""


def _contender(outcomes: Sequence[Outcome], reference: str, info: ModelInfo, spec: Any) -> Contender:
    return Contender(
        info.name,
        tuple(outcomes),
        reference,
        info,
        snapshot=getattr(spec, "snapshot", None),
        trained_by=getattr(spec, "run_id", None),
        details={"model_info": info.to_dict()},
    )


def _report(
    bench: Benchmark,
    dataset: BenchmarkItems,
    one: Contender,
    config: BenchmarkConfig,
    contamination: Sequence[tuple[BenchmarkState, int]],
) -> BenchmarkReport:
    return report(
        bench,
        dataset.items,
        one.outcomes,
        model=one.name,
        ties=config.ties,
        seed=config.seed,
        knows_truncation=one.info is not None or any(outcome.truncated for outcome in one.outcomes),
        extra_counts={"rows_skipped": dataset.skipped, "rows_repeated": dataset.repeated},
        details={
            **one.details,
            "data": [source.to_dict() for source in dataset.sources],
            "limit": config.limit,
            "contamination": [state.to_dict() | {"evaluated": n} for state, n in contamination],
            "contamination_lineage": [asdict(use) for use in one.lineage],
        },
    )


def _contamination(
    workspace: Workspace | None, items: Sequence[BenchmarkItem], one: Contender
) -> list[tuple[BenchmarkState, int]]:
    if workspace is None:
        return []
    pairs = [PreferencePair(item.prompt, "", "") for item in items]
    return evaluated_contamination(workspace, pairs, snapshot_id=one.snapshot, run_id=one.trained_by)


def _lineage(
    workspace: Workspace | None, one: Contender, contamination: Sequence[tuple[BenchmarkState, int]]
) -> tuple[BenchmarkUse, ...]:
    if one.info is None:
        return ()
    here = () if is_url(one.reference) else uses_of_model(workspace, locate_model(workspace, one.reference)[0])
    carried = union(here, one.info.contamination)
    return relevant(carried, contamination if workspace is not None else None)


def _inputs(workspace: Workspace, config: BenchmarkConfig) -> dict[str, str]:
    """Inputs of the run, for lineage, by kind."""
    inputs = {str(Path(path).expanduser().resolve()): "file" for path in (*config.paths, *config.scores)}
    for reference in (*config.models, *config.judges):
        source, artifact = (reference, None) if is_url(reference) else locate_model(workspace, reference)
        inputs[artifact or source] = "artifact" if artifact else "model"
    return inputs


def _write(
    folders: Sequence[Path],
    run: Run | None,
    bench: Benchmark,
    items: Sequence[BenchmarkItem],
    contenders: Sequence[Contender],
    result: BenchmarkRun,
    config: BenchmarkConfig,
) -> None:
    if not folders:
        return
    tables = [item_table(bench, one.name, items, one.outcomes, config.ties) for one in contenders]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / REPORT) as temporary:
            temporary.write_text(json.dumps(result.to_dict(), indent=2, default=str) + "\n", encoding="utf-8")
        for number, table in enumerate(tables, start=1):
            write_parquet(folder / (ITEMS if len(tables) == 1 else f"items-{number}.parquet"), table)
    if run is not None:
        for one, report, table in zip(contenders, result.reports, tables, strict=True):
            store_results(run, report, table, version=one.info.version if one.info else None)


def _scores_file(workspace: Workspace | None, name: str) -> str:
    """The file, or the items of the run of that id."""
    folder = workspace.runs / name if workspace is not None else None
    if folder is None or Path(name).expanduser().exists() or not folder.is_dir():
        return name
    files = sorted(folder.glob("items*.parquet"))
    if len(files) != 1:
        fault = (
            f"is of {len(files)} models: name one of its files items-N.parquet" if files else "holds no items.parquet"
        )
        raise BadInputError(fault, file=folder)
    return str(files[0])


def _stem(path: str) -> str:
    """A file's name without suffixes; for a file of results, with its folder's."""
    name = Path(path).name.split(".")[0]
    folder = Path(path).expanduser().resolve().parent.name
    return f"{folder}/{name}" if name.startswith("items") else name
