"""The demo's report: its results as sections. Leaves out: measuring (`pipeline`), rendering (`assay_web.report`)."""

from __future__ import annotations

import os
import platform as machine
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from assay.runs.record import code_version
from assay.score import ScoreFailure
from assay.statistics.intervals import Z95, Interval, bounds, interval_text
from assay.workspace import Workspace
from assay_policy_training.training.evaluation import PolicyEvaluation
from assay_web.demo.pipeline import DemoResults, RewardModel
from assay_web.demo.policy import PolicyAnswer
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


def compose(findings: DemoResults, workspace: Workspace) -> Report:
    """The whole report. Every figure is from `findings`, that is, from this run."""
    config = findings.config
    warning = " (quick: a tiny random model, so the figures mean nothing)" if config.base == "tiny" else ""
    return Report(
        title="From noisy preferences to a trained policy",
        subtitle=f"assay demo on {config.base}{warning}, run {findings.run_id}, seed {config.seed}",
        sections=[
            _headline(findings),
            _curation(findings),
            _accuracy(findings),
            _calibration(findings),
            _policy(findings),
            _samples(findings),
            _provenance(findings, workspace),
        ],
    )


def _headline(findings: DemoResults) -> Section:
    raw, curated = _model(findings, "raw"), _model(findings, "curated")
    errors, optimised = findings.errors, findings.optimised
    before, after = optimised.trained.before, optimised.trained.after
    return Section(
        "In short",
        [
            Figures(
                [
                    Headline(
                        "Wrong labels",
                        _percent(errors.noise_after),
                        f"{_percent(errors.noise_before)} in the raw data",
                    ),
                    Headline(
                        "Injected errors caught", _percent(errors.recall), f"precision {_percent(errors.precision)}"
                    ),
                    Headline(
                        "Reward-model accuracy",
                        _percent(curated.evaluation.accuracy.value),
                        f"{_percent(raw.evaluation.accuracy.value)} on raw data",
                    ),
                    Headline("Mean reward", _signed(_reward(after)), f"{_signed(_reward(before))} before training"),
                    Headline("Verifier pass rate", _pass_rate(after), f"{_pass_rate(before)} before training"),
                ]
            ),
            Text(_verdict(findings)),
        ],
    )


def _verdict(findings: DemoResults) -> str:
    """The conclusion that the intervals support."""
    gain = _model(findings, "curated").evaluation.accuracy.value - _model(findings, "raw").evaluation.accuracy.value
    difference = findings.difference
    change = f"{100 * gain:+.1f} points [{interval_text(difference, '+.1f', scale=100)}]"
    if difference is not None and difference.low > 0:
        verdict = f"Curation raised held-out accuracy by {change}."
    elif difference is not None and difference.high < 0:
        verdict = f"Curation lowered held-out accuracy by {change}."
    else:
        verdict = f"The change in held-out accuracy, {change}, is within the noise of a run this small."
    return (
        f"{verdict} The brackets are 95 % intervals, by prompt, of the two models on the same pairs. "
        "One seed and a few hundred pairs: this shows the machinery, not a benchmark."
    )


def _curation(findings: DemoResults) -> Section:
    imported, hygiene = findings.imported, findings.hygiene
    verified, passed, errors = findings.verified, findings.consistency, findings.errors
    repeats = imported.pairs - imported.new.comparisons
    cleaned = sum(hygiene.cleaned.values())
    doubled = hygiene.duplicates.duplicates + hygiene.duplicates.contradictions
    removed = [*_nonzero(hygiene.cleaned), ("duplicate or contradiction", doubled)]
    undecided = findings.snapshots["raw"] - cleaned - doubled
    stages = [
        FunnelStage("rows in the file", imported.rows, [*imported.rejected.items(), ("the same pair again", repeats)]),
        FunnelStage("raw pairs", findings.snapshots["raw"], [(why, n) for why, n in removed if n]),
        FunnelStage(
            "clean pairs",
            undecided,
            _nonzero({"reward model disagrees": passed.discarded, "tie": verified.ties, "no score": passed.unscored}),
        ),
        FunnelStage("trusted pairs", findings.snapshots["curated"] - verified.ties),
    ]
    table = Table(
        ("step", "pairs", "what was found"),
        (
            ("cleaning", cleaned, ", ".join(f"{n} {rule}" for rule, n in _nonzero(hygiene.cleaned)) or "nothing"),
            (
                "de-duplication",
                doubled,
                f"{hygiene.duplicates.exact_repeats} exact repeats at import, "
                f"{hygiene.duplicates.duplicates} near-identical, {hygiene.duplicates.contradictions} contradictions",
            ),
            (
                "verifier, gold",
                verified.gold,
                f"{verified.confirmed} labels confirmed, {verified.corrected} corrected",
            ),
            (
                "reward model, silver",
                passed.kept,
                f"{passed.flipped} flipped, {passed.discarded} discarded, {passed.unscored} not scorable",
            ),
        ),
        title="What each step decided",
    )
    caught = Table(
        ("", "pairs"),
        (
            ("injected label errors", errors.errors),
            ("of them caught (corrected, flipped or discarded)", errors.caught),
            ("right labels lost to the same steps", errors.false_alarms),
            ("labels kept for training", errors.kept),
            ("of them wrong", errors.wrong_after),
        ),
        title="The injected errors",
        note="Only the demo knows which labels it flipped; the pipeline does not.",
    )
    return Section(
        "Curation",
        [FunnelChart("From file to training data", stages), table, caught],
        "Nothing is deleted: every pair that was dropped or changed keeps its reason in the store.",
    )


def _accuracy(findings: DemoResults) -> Section:
    models = findings.models
    accuracies = [m.evaluation.accuracy for m in models]
    labels = [f"{m.label} ({findings.snapshots[m.label]} pairs)" for m in models] + ["longer response", "majority"]
    first = models[0].evaluation
    chart = BarChart(
        "Accuracy on held-out gold pairs",
        labels,
        [
            Series(
                "accuracy",
                [*(a.value for a in accuracies), first.length_baseline, first.majority_baseline],
                low=[*(bounds(a.interval)[0] for a in accuracies), None, None],
                high=[*(bounds(a.interval)[1] for a in accuracies), None, None],
            )
        ],
        percent=True,
        reference=0.5,
        note=f"{first.scored} pairs on topics no training prompt has; 95 % intervals over prompts.",
    )
    table = Table(
        ("trained on", "accuracy", "95 % interval", "mean margin", "ECE", "ECE calibrated", "Brier"),
        [_accuracy_row(m) for m in models],
        title="Reward models",
    )
    return Section(
        "What curation bought",
        [chart, table],
        "The same model and settings, trained on the verifier's gold slice, on the raw and on the curated labels.",
    )


def _accuracy_row(model: RewardModel) -> tuple[str | float | None, ...]:
    evaluation = model.evaluation
    calibrated = evaluation.calibrated
    return (
        model.label,
        _percent(evaluation.accuracy.value),
        _interval(evaluation.accuracy.interval),
        evaluation.margin_mean,
        evaluation.calibration.ece,
        calibrated.ece if calibrated else None,
        (calibrated or evaluation.calibration).brier,
    )


def _calibration(findings: DemoResults) -> Section:
    curated = _model(findings, "curated").evaluation
    charts: list[Block] = [
        Reliability(title, [DiagramBin(b.predicted, b.observed, b.pairs) for b in report.bins])
        for title, report in (
            ("As trained", curated.calibration),
            ("With the temperature fitted on the dev pairs", curated.calibrated),
        )
        if report is not None
    ]
    return Section("Calibration", charts, "When the curated model says 70 %, is it right in 70 % of the pairs?")


def _policy(findings: DemoResults) -> Section:
    optimised = findings.optimised
    rows = optimised.trained.steps
    steps = [float(row["step"]) for row in rows]

    def curve(title: str, name: str, key: str, unit: str, *, percent: bool = False) -> LineChart:
        return LineChart(title, [Series(name, [row.get(key) for row in rows], steps)], "step", unit, percent=percent)

    charts: list[Block] = [
        curve("Reward of the rollouts", "mean reward", "reward_mean", "reward"),
        curve("KL to the starting policy", "k3", "kl_k3", "nats a token"),
        curve("Response length", "tokens", "length_mean", "tokens"),
        curve("Verifier pass rate of the rollouts", "all constraints", "verifier_pass_rate", "", percent=True),
    ]
    return Section(
        "Policy training",
        [*_before_and_after(findings), *charts],
        f"{len(rows)} steps of {optimised.recipe} against the served reward model, over HTTP.",
    )


def _before_and_after(findings: DemoResults) -> list[Block]:
    before, after = findings.optimised.trained.before, findings.optimised.trained.after
    if before is None or after is None:
        return []
    measures: list[tuple[str, str | float | None, str | float | None]] = [
        ("mean reward", _reward_with_error(before), _reward_with_error(after)),
        ("verifier pass rate", _pass_rate_with_interval(before), _pass_rate_with_interval(after)),
        ("mean length, tokens", before.length_mean, after.length_mean),
        ("cut at the length limit", _percent(before.truncated_share), _percent(after.truncated_share)),
        ("KL to the starting policy, nats a token", before.kl_k3, after.kl_k3),
        ("rewards missing", before.rewards_missing, after.rewards_missing),
    ]
    return [
        Table(
            ("on held-out prompts", "before", "after"),
            measures,
            title=f"{before.prompts} prompts, {before.samples} responses each",
            note="Reward: 95 % interval over prompts. Pass rate: Wilson interval; it is the verifier's, which policy "
            "training never saw. With this few steps a change within the intervals is no change.",
        )
    ]


def _samples(findings: DemoResults) -> Section:
    samples = [
        Sample(
            example.prompt.prompt[-1].content,
            [("before", example.before.text), ("after", example.after.text)],
            tags=[f"before: {_score_text(example.before)}", f"after: {_score_text(example.after)}"],
        )
        for example in findings.optimised.examples
    ]
    return Section("Samples", [Samples(samples)], "The first held-out prompts, not chosen by hand; one seed for both.")


def _score_text(answer: PolicyAnswer) -> str:
    met = "meets the constraints" if answer.passed else "misses a constraint"
    if isinstance(answer.score, ScoreFailure):
        return f"no score ({answer.score.code}), {met}"
    return f"reward {answer.score.reward:+.2f}, {met}"


def _provenance(findings: DemoResults, workspace: Workspace) -> Section:
    packages = ("torch", "transformers", "duckdb", "polars")
    rows: list[tuple[str, str]] = [
        (
            "machine",
            f"{machine.machine()}, {os.cpu_count()} CPU threads, {machine.system()}, Python {machine.python_version()}",
        ),
        ("assay", code_version()),
        *((name, version(name)) for name in packages),
        ("workspace", str(workspace.root)),
        *((f"seconds: {part}", f"{seconds:.0f}") for part, seconds in findings.seconds.items()),
    ]
    curated = _model(findings, "curated")
    where = Path(workspace.root)
    commands = Commands(
        [
            f"cd {where}",
            "assay curate status",
            "assay eval --model rm-curated --data heldout-test",
            "assay serve rm-curated",
            f"assay lineage {curated.trained.artifact_id}",
        ],
        title="Look further",
    )
    return Section("Provenance", [Table(("what", "value"), rows), commands])


def _model(findings: DemoResults, label: str) -> RewardModel:
    return next(m for m in findings.models if m.label == label)


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


def _reward_with_error(evaluation: PolicyEvaluation) -> str | None:
    if evaluation.reward_mean is None or evaluation.reward_standard_error is None:
        return None
    return f"{evaluation.reward_mean:+.3f} ± {Z95 * evaluation.reward_standard_error:.3f}"


def _pass_rate(evaluation: PolicyEvaluation | None) -> str | None:
    return _percent(evaluation.verifier.share) if evaluation and evaluation.verifier else None


def _pass_rate_with_interval(evaluation: PolicyEvaluation) -> str | None:
    share = evaluation.verifier
    if share is None or share.low is None or share.high is None:
        return _percent(share.share) if share else None
    return f"{100 * share.share:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}]"
