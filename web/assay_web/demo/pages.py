"""The demo's report: its results as sections. Leaves out: measuring (`pipeline`), rendering (`assay_web.report`)."""

import os
import platform as machine
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from assay.runs.record import code_version
from assay.score import ScoreFailure
from assay.statistics.intervals import Interval, bounds, interval_text
from assay.workspace import Workspace
from assay_pipelines.curation.loop.relabelling import RelabelReport
from assay_pipelines.curation.reliability.estimates import SourceReliability
from assay_policy_training.training.evaluation import Change, PolicyEvaluation
from assay_policy_training.training.run import TrainedPolicy
from assay_web.demo.pipeline import DemoResults
from assay_web.demo.policy import Optimised, PolicyAnswer
from assay_web.demo.reward_models import RewardModel
from assay_web.demo.source import SimulatedSource
from assay_web.report.content import (
    BarChart,
    Block,
    Commands,
    DiagramBin,
    Figures,
    FunnelChart,
    FunnelStage,
    Headline,
    LineChart,
    Reliability,
    Report,
    Sample,
    Samples,
    Section,
    Series,
    Table,
    Text,
)


def compose(results: DemoResults, workspace: Workspace) -> Report:
    """The whole report. Every figure is from `results`, that is, from this run."""
    config = results.config
    warning = " (quick: a tiny random model, so the figures mean nothing)" if config.base == "tiny" else ""
    return Report(
        title="From noisy preferences to a trained policy",
        subtitle=f"assay demo on {config.base}{warning}, run {results.run_id}, seed {config.seed}",
        sections=[
            _headline(results),
            _sources(results),
            _curation(results),
            _accuracy(results),
            _calibration(results),
            *([_policy(results.optimised), _samples(results.optimised)] if results.optimised else []),
            _provenance(results, workspace),
        ],
    )


def _headline(results: DemoResults) -> Section:
    raw, curated, errors = results.model("raw"), results.model("curated"), results.curated.errors
    figures = [
        Headline("Wrong labels", _percent(errors.noise_after), f"{_percent(errors.noise_before)} in the raw data"),
        Headline(
            "Reward-model accuracy",
            _percent(curated.evaluation.accuracy.value),
            f"{_percent(raw.evaluation.accuracy.value)} on raw labels",
        ),
    ]
    if results.optimised is not None:
        before, after = results.optimised.trained.before, results.optimised.trained.after
        figures += [
            Headline("Verifier pass rate of the policy", _pass_rate(after), f"{_pass_rate(before)} before training"),
            Headline("Its mean reward", _signed(_reward(after)), f"{_signed(_reward(before))} before training"),
        ]
    return Section("In short", [Figures(figures), _changes(results), *(Text(text) for text in _verdicts(results))])


def _changes(results: DemoResults) -> BarChart:
    """What each step changed, in points, with its interval."""
    changes: list[tuple[str, float, Interval | None]] = []
    if results.headroom is not None:
        changes.append(("accuracy: all labels right instead of raw", results.headroom.value, results.headroom.interval))
    if results.gain is not None:
        changes.append(("accuracy: curated instead of raw", results.gain.value, results.gain.interval))
    change = results.optimised.trained.change if results.optimised else None
    if change is not None and change.pass_rate is not None:
        changes.append(("pass rate: policy after instead of before", change.pass_rate.value, change.pass_rate.interval))
    return BarChart(
        "What it changed",
        [label for label, _, _ in changes],
        [
            Series(
                "change",
                [value for _, value, _ in changes],
                low=[bounds(interval)[0] for _, _, interval in changes],
                high=[bounds(interval)[1] for _, _, interval in changes],
            )
        ],
        percent=True,
        reference=0.0,
        note="Held-out prompts, on topics that no training prompt has. 95 % intervals over prompts, each compared with "
        "itself: a change whose interval holds 0 is no change.",
    )


def _verdicts(results: DemoResults) -> list[str]:
    """The conclusions that the intervals support."""
    verdicts = []
    if results.gain is not None:
        gain, headroom = results.gain, results.headroom
        share = ""
        if headroom is not None and _is_above_zero(gain.interval) and _is_above_zero(headroom.interval):
            part = gain.value / headroom.value
            share = f": {part:.0%} of what right labels would gain" if part < 1 else ": as much as right labels would"
        verdicts.append(
            _verdict("Curation", "reward model's held-out accuracy", gain.value, gain.interval) + share + "."
        )
        verdicts.append(_against_length(results))
    change = results.optimised.trained.change if results.optimised else None
    if change is not None and change.pass_rate is not None:
        passed = change.pass_rate
        verdicts.append(_verdict("Policy training", "verifier's pass rate", passed.value, passed.interval) + ".")
    verdicts.append("One seed of a small problem: this shows the machinery at work, not a benchmark.")
    return verdicts


def _is_above_zero(interval: Interval | None) -> bool:
    return interval is not None and interval.low > 0


def _against_length(results: DemoResults) -> str:
    longer, shorter = results.models[0].evaluation.length_baseline, results.shorter_baseline
    side, share = ("longer", longer) if longer >= shorter else ("shorter", shorter)
    curated, oracle = (results.model(label).evaluation.accuracy.value for label in ("curated", "oracle"))
    return (
        f"Without any model, choosing the {side} response is right in {_percent(share)} of the held-out pairs; the "
        f"curated model in {_percent(curated)}, the oracle in {_percent(oracle)}."
    )


def _verdict(who: str, what: str, value: float, interval: Interval | None) -> str:
    change = f"by {100 * value:+.1f} points [{interval_text(interval, '+.1f', scale=100)}]"
    if _is_above_zero(interval):
        return f"{who} raised the {what} {change}"
    if interval is not None and interval.high < 0:
        return f"{who} lowered the {what} {change}"
    return f"{who} changed the {what} {change}, which is within the noise of this run"


def _sources(results: DemoResults) -> Section:
    curated, config = results.curated, results.config
    measured = curated.reliability
    truth = {source.name: results.truth.wrong_of(source.name) for source in config.sources}
    chart = BarChart(
        "How often a source is right",
        [r.name for r in measured],
        [
            Series(
                "measured on gold",
                [r.mean for r in measured],
                low=[r.interval.low for r in measured],
                high=[r.interval.high for r in measured],
            ),
            Series(
                "in truth, which only the demo knows", [1 - wrong / n for wrong, n in (truth[r.name] for r in measured)]
            ),
        ],
        percent=True,
        reference=0.5,
        note=f"On the {curated.verified.gold} pairs that the verifier decided; 95 % intervals. At 50 % a label tells "
        "nothing.",
    )
    table = Table(
        ("source", "labels", "what it does", "right on gold", "so its labels are"),
        [_source_row(results, source) for source in config.sources],
        title="Three sources of different worth",
    )
    return Section(
        "Who labelled",
        [chart, table],
        "Every pair is labelled by one source. A program that checks the constraints decides a few pairs: gold. "
        "On them each source is measured.",
    )


def _source_row(results: DemoResults, source: SimulatedSource) -> tuple[str | int, ...]:
    measured = next((r for r in results.curated.reliability if r.name == source.name), None)
    habits = f"takes the longer response in {source.longer:.0%} of the cases" if source.longer else ""
    errs = f"errs in {source.wrong:.0%}{' of the others' if source.longer else ''}"
    return (
        source.name,
        results.truth.wrong_of(source.name)[1],
        ", ".join(filter(None, (habits, errs))),
        measured.text if measured else "never measured",
        _treatment(results, measured) if measured else "left alone",
    )


def _treatment(results: DemoResults, measured: SourceReliability) -> str:
    least = results.config.source_pass.least
    if measured.mean >= least:
        return "kept"
    return f"set aside, being right in under {least:.0%}; a model of gold and the good sources labels the pairs anew"


def _curation(results: DemoResults) -> Section:
    curated = results.curated
    imported, hygiene, verified, passed = curated.imported, curated.hygiene, curated.verified, curated.passed
    relabelled, errors = curated.relabelled, curated.errors
    anew = relabelled.relabelled if isinstance(relabelled, RelabelReport) else 0
    against = relabelled.against if isinstance(relabelled, RelabelReport) else 0
    repeats = imported.pairs - imported.new.comparisons
    cleaned = sum(hygiene.cleaned.values())
    doubled = hygiene.duplicates.duplicates + hygiene.duplicates.contradictions
    removed = [*_nonzero(hygiene.cleaned), ("duplicate or contradiction", doubled)]
    raw = results.snapshots["raw"]
    stages = [
        FunnelStage("rows in the file", imported.rows, [*imported.rejected.items(), ("the same pair again", repeats)]),
        FunnelStage("raw pairs", raw, [(why, n) for why, n in removed if n]),
        FunnelStage(
            "clean pairs",
            raw - cleaned - doubled,
            _nonzero(
                {"source not worth it": passed.discarded - anew, "unmeasured": passed.unmeasured, "tie": verified.ties}
            ),
        ),
        FunnelStage("curated pairs", results.snapshots["curated"]),
    ]
    steps = Table(
        ("step", "pairs", "what was found"),
        (
            ("cleaning", cleaned, ", ".join(f"{n} {rule}" for rule, n in _nonzero(hygiene.cleaned)) or "nothing"),
            (
                "de-duplication",
                doubled,
                f"{hygiene.duplicates.exact_repeats} exact repeats at import, "
                f"{hygiene.duplicates.duplicates} near-identical, {hygiene.duplicates.contradictions} contradictions",
            ),
            ("verifier: gold", verified.gold, f"{verified.confirmed} labels confirmed, {verified.corrected} corrected"),
            (
                "source reliability: silver",
                passed.kept,
                f"{passed.kept} kept, {passed.discarded} set aside",
            ),
            (
                "relabelling: silver",
                anew,
                relabelled if isinstance(relabelled, str) else f"{against} of them against their source",
            ),
        ),
        title="What each step decided",
    )
    wrong = BarChart(
        "Wrong labels",
        ["before curation", "after"],
        [Series("share of the labels", [errors.noise_before, errors.noise_after])],
        percent=True,
        note=f"{errors.errors} of {errors.pairs} before, {errors.wrong_after} of {errors.kept} after; {errors.caught} "
        f"were corrected, labelled anew or set aside, and {errors.false_alarms} right labels with them. "
        "Only the demo knows; the pipeline does not.",
    )
    return Section(
        "Curation",
        [FunnelChart("From file to training data", stages), wrong, steps],
        "Nothing is deleted: every pair that was dropped or changed keeps its reason in the store.",
    )


_LABELS = {
    "raw": "raw labels",
    "gold": "gold alone",
    "curated": "curated labels",
    "oracle": "oracle: every label right",
}


def _accuracy(results: DemoResults) -> Section:
    models = results.models
    accuracies = [m.evaluation.accuracy for m in models]
    first = models[0].evaluation
    chart = BarChart(
        "Accuracy on held-out gold pairs",
        [
            *(f"{_LABELS[m.label]} ({m.pairs} pairs)" for m in models),
            "no model: the longer response",
            "no model: the shorter one",
        ],
        [
            Series(
                "accuracy",
                [*(a.value for a in accuracies), first.length_baseline, results.shorter_baseline],
                low=[*(bounds(a.interval)[0] for a in accuracies), None, None],
                high=[*(bounds(a.interval)[1] for a in accuracies), None, None],
            )
        ],
        percent=True,
        reference=0.5,
        note=f"{first.scored} pairs on topics no training prompt has; 95 % intervals over prompts. Differences of two "
        "models on the same pairs are more certain than these: see above.",
    )
    table = Table(
        ("trained on", "pairs", "accuracy", "95 % interval", "mean margin", "ECE", "ECE calibrated", "Brier"),
        [_accuracy_row(m) for m in models],
        title="Reward models",
        note="Linear probes on the frozen language model: the same features and settings, other labels.",
    )
    return Section(
        "What curation bought",
        [chart, table],
        "The oracle has the right label of every raw pair: curation does no better, but by luck.",
    )


def _accuracy_row(model: RewardModel) -> tuple[str | float | None, ...]:
    evaluation = model.evaluation
    calibrated = evaluation.calibrated
    return (
        _LABELS[model.label],
        model.pairs,
        _percent(evaluation.accuracy.value),
        _interval(evaluation.accuracy.interval),
        evaluation.margin_mean,
        evaluation.calibration.ece,
        calibrated.ece if calibrated else None,
        (calibrated or evaluation.calibration).brier,
    )


def _calibration(results: DemoResults) -> Section:
    curated = results.model("curated").evaluation
    charts: list[Block] = [
        Reliability(title, [DiagramBin(b.predicted, b.observed, b.pairs) for b in report.bins])
        for title, report in (
            ("As trained", curated.calibration),
            ("With the temperature fitted on the dev pairs", curated.calibrated),
        )
        if report is not None
    ]
    return Section("Calibration", charts, "When the curated model says 70 %, is it right in 70 % of the pairs?")


def _policy(optimised: Optimised) -> Section:
    rows = optimised.trained.steps
    steps = [float(row["step"]) for row in rows]

    def curve(title: str, name: str, key: str, unit: str, *, percent: bool = False) -> LineChart:
        return LineChart(title, [Series(name, [row.get(key) for row in rows], steps)], "step", unit, percent=percent)

    charts: list[Block] = [
        curve("Verifier pass rate of the rollouts", "all constraints", "verifier_pass_rate", "", percent=True),
        curve("Reward of the rollouts", "mean reward", "reward_mean", "reward"),
        curve("Response length", "tokens", "length_mean", "tokens"),
    ]
    return Section(
        "Policy training",
        [*_before_and_after(optimised.trained), *charts],
        f"{len(rows)} steps of {optimised.recipe} against the served reward model, over HTTP. Each step has other "
        "prompts, so the curves are rough; the bars are of the same held-out prompts.",
    )


def _before_and_after(trained: TrainedPolicy) -> list[Block]:
    before, after, change = trained.before, trained.after, trained.change
    if before is None or after is None or change is None:
        return []
    shares = [share for share in (before.verifier, after.verifier) if share is not None]
    bars = BarChart(
        "Verifier pass rate on held-out prompts",
        ["before", "after"],
        [
            Series(
                "all constraints met",
                [share.share for share in shares],
                low=[share.low for share in shares],
                high=[share.high for share in shares],
            )
        ],
        percent=True,
        note=f"{before.prompts} prompts, {before.samples} responses each, the same random numbers; 95 % intervals over "
        "prompts. Policy training never saw the verifier.",
    )
    measures: list[tuple[str, str | float | None, str | float | None, str]] = [
        ("verifier pass rate", _pass_rate(before), _pass_rate(after), _change_text(change.pass_rate, 100)),
        ("mean reward", _signed(_reward(before)), _signed(_reward(after)), _change_text(change.reward)),
        ("mean length, tokens", before.length_mean, after.length_mean, ""),
        ("cut at the length limit", _percent(before.truncated_share), _percent(after.truncated_share), ""),
        ("rewards missing", before.rewards_missing, after.rewards_missing, ""),
    ]
    table = Table(
        ("on held-out prompts", "before", "after", "change, 95 %"),
        measures,
        note="The interval is over prompts, each compared with itself.",
    )
    return [bars, table]


def _change_text(change: Change | None, scale: float = 1.0) -> str:
    if change is None:
        return "not measured"
    return f"{scale * change.value:+.2f} [{interval_text(change.interval, '+.2f', scale=scale)}]"


def _samples(optimised: Optimised) -> Section:
    samples = [
        Sample(
            example.prompt.prompt[-1].text,
            [("before", example.before.text), ("after", example.after.text)],
            tags=[f"before: {_score_text(example.before)}", f"after: {_score_text(example.after)}"],
        )
        for example in optimised.examples
    ]
    return Section("Samples", [Samples(samples)], "The first held-out prompts, not chosen by hand; one seed for both.")


def _score_text(answer: PolicyAnswer) -> str:
    met = "meets the constraints" if answer.passed else "misses a constraint"
    if isinstance(answer.score, ScoreFailure):
        return f"no score ({answer.score.code}), {met}"
    return f"reward {answer.score.reward:+.2f}, {met}"


def _provenance(results: DemoResults, workspace: Workspace) -> Section:
    packages = ("torch", "transformers", "duckdb", "polars")
    rows: list[tuple[str, str]] = [
        (
            "machine",
            f"{machine.machine()}, {os.cpu_count()} CPU threads, {machine.system()}, Python {machine.python_version()}",
        ),
        ("assay", code_version()),
        *((name, version(name)) for name in packages),
        ("workspace", str(workspace.root)),
        *(
            (f"seconds: {part}", f"{step.wall:.0f}, of processor time {step.processor:.0f}")
            for part, step in results.steps.items()
        ),
    ]
    curated = results.model("curated").trained
    assert curated is not None
    where = Path(workspace.root)
    commands = Commands(
        [
            f"cd {where}",
            "assay curate status",
            "assay eval --model rm-curated --data heldout-test",
            "assay serve rm-curated",
            f"assay lineage {curated.artifact_id}",
        ],
        title="Look further",
    )
    return Section("Provenance", [Table(("what", "value"), rows), commands])


def _nonzero(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(name, n) for name, n in counts.items() if n]


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def _signed(value: float | None) -> str | None:
    return None if value is None else f"{value:+.2f}"


def _interval(interval: Interval | None) -> str:
    return interval_text(interval, ".1f", scale=100) + (" %" if interval is not None else "")


def _reward(evaluation: PolicyEvaluation | None) -> float | None:
    return evaluation.reward_mean if evaluation else None


def _pass_rate(evaluation: PolicyEvaluation | None) -> str | None:
    return _percent(evaluation.verifier.share) if evaluation and evaluation.verifier else None
