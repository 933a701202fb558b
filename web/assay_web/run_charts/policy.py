"""The charts of a policy training: reward and its parts, the held-out watch, distance, optimiser, sampler, time."""

import re
from collections.abc import Iterable, Iterator

from assay_web.run_charts.chart import CurveChart, MetricCurve, MetricExtents, Row, with_available_curves

_STAGES = ("publish", "sample", "reward", "score", "advantage", "update", "critic", "wait", "gather")
_LENGTHS = {"mean": "length_mean", "90 %": "length_p90", "99 %": "length_p99", "longest": "length_max"}
WATCH = "Over-optimisation"
LOOP = "Online loop"
#: Figure of an evaluation -> title, whether a share.
_EVALUATED = {"reward_mean": ("Reward", False), "pass_rate": ("Pass rate", True), "kl_k3": ("KL a token", False)}
#: (title, unit, whether a share, {name of the curve: key of the row}), by section.
_CHARTS: dict[str, tuple[tuple[str, str, bool, dict[str, str]], ...]] = {
    "Distance and spread": (
        ("KL to the starting policy", "nats a token", False, {"k1": "kl_k1", "k3": "kl_k3"}),
        ("Entropy", "nats a token", False, {"policy": "entropy"}),
        ("Response length", "tokens", False, _LENGTHS),
        ("Cut at the limit", "", True, {"rollouts": "truncated_share"}),
    ),
    "Optimiser": (
        ("Loss", "", False, {"policy": "loss", "critic": "value_loss"}),
        ("Gradient norm", "", False, {"policy": "grad_norm", "critic": "value_grad_norm"}),
        ("Clipped tokens", "", True, {"ratio": "clip_fraction", "dual": "dual_clip_fraction"}),
        ("Learning rate", "", False, {"policy": "lr"}),
        ("Explained variance of the critic", "", False, {"critic": "explained_variance"}),
    ),
    "Sampler and trainer": (
        ("Effective sample size", "", True, {"tokens, under old / sampler": "mismatch_ess"}),
        ("KL from the sampler's policy", "nats a token", False, {"k3": "mismatch_k3", "old to new": "approx_kl_old"}),
        ("Largest gap in a log-prob", "nats", False, {"sampler to trainer": "sampler_gap_max"}),
        ("Staleness", "updates", False, {"mean": "staleness_mean", "oldest": "staleness_max"}),
    ),
    "Time": (
        ("Time a step", "seconds", False, {stage: f"seconds_{stage}" for stage in _STAGES}),
        ("Speed", "tokens a second", False, {"whole steps": "tokens_per_second"}),
    ),
}


def policy_charts(measured: MetricExtents) -> list[CurveChart]:
    """The charts that have data."""
    charts = [*_rewards(measured), *_watched(measured), *_evaluated(measured), *_labelled(measured)]
    charts += [
        CurveChart(section, title, tuple(MetricCurve(name, key) for name, key in curves.items()), unit, share)
        for section, rows in _CHARTS.items()
        for title, unit, share, curves in rows
    ]
    return [available for chart in charts if (available := with_available_curves(chart, measured)) is not None]


def overoptimised_from(rows: Iterable[Row]) -> int | None:
    """The first step at which over-optimisation was detected."""
    return next((row["step"] for row in rows if row.get("overoptimised")), None)


def _rewards(measured: MetricExtents) -> Iterator[CurveChart]:
    extents = measured.step
    yield CurveChart(
        "Reward",
        "Reward",
        (MetricCurve("mean", "reward_mean", spread="reward_std"),),
        note="The band is one deviation of the step's rollouts.",
    )
    parts = [key for key in extents if key.startswith("reward_") and key.endswith("_mean") and key != "reward_mean"]
    if len(parts) > 1:
        curves = tuple(MetricCurve(key.removeprefix("reward_").removesuffix("_mean"), key) for key in parts)
        yield CurveChart("Reward", "Parts of the reward", curves)
    passed = MetricCurve("every constraint met, before filtering", "verifier_pass_rate")
    yield CurveChart("Reward", "Verifier pass rate", (passed,), share=True)
    if "rewards_missing" in extents and extents["rewards_missing"].high > 0:
        yield CurveChart("Reward", "Rollouts without a reward", (MetricCurve("rollouts", "rewards_missing"),))


def _evaluated(measured: MetricExtents) -> Iterator[CurveChart]:
    """Evaluations on held-out prompts during training, a curve for each set."""
    for name, (title, share) in _EVALUATED.items():
        keys = [key for key in measured.step if re.fullmatch(rf"eval_(.+_)?{name}", key)]
        curves = tuple(MetricCurve(key[len("eval_") : -len(name) - 1] or "held-out prompts", key) for key in keys)
        yield CurveChart("Evaluation during training", title, curves, share=share)
    passes = [key for key in measured.step if re.fullmatch(r"eval_(.+_)?pass_at_\d+", key)]
    labels = tuple(
        MetricCurve(key.removeprefix("eval_").replace("_pass_at_", ", k = ").replace("pass_at_", "k = "), key)
        for key in passes
    )
    yield CurveChart("Evaluation during training", "One of k samples passes (pass@k)", labels, share=True)


def _watched(measured: MetricExtents) -> Iterator[CurveChart]:
    """The trained reward beside a held-out one, by step and by KL."""
    if "held_out_reward_mean" not in measured.step:
        return
    both = (MetricCurve("trained on", "reward_mean"), MetricCurve("held out", "held_out_reward_mean"))
    yield CurveChart(WATCH, "Reward, trained on and held out", both)
    if "kl_k3" in measured.step:
        far = "KL to the starting policy, nats a token"
        yield CurveChart(WATCH, "The same by distance", both, x="kl_k3", x_label=far)
    yield CurveChart(WATCH, "Rank agreement of the two", (MetricCurve("Spearman", "held_out_agreement"),))


def _labelled(measured: MetricExtents) -> Iterator[CurveChart]:
    """What an online loop buys, and what it does to the rewards."""
    if "labels_spent" not in measured.step:
        return
    trained = (MetricCurve("mean", "reward_mean", spread="reward_std"),)
    gold = (MetricCurve("mean", "held_out_reward_mean", spread="held_out_reward_std"),)
    labels = (MetricCurve("answered", "labels_spent"), MetricCurve("waiting for an answer", "labels_waiting"))
    note = "By the reward model of the step; each has its own scale. The band is one deviation of the step's rollouts."
    yield CurveChart(LOOP, "Policy reward", trained, note=note)
    yield CurveChart(LOOP, "Gold reward", gold, note="Watched, never trained on. The band is one deviation.")
    yield CurveChart(LOOP, "Labels", labels)
    agreement = (MetricCurve("members on the side of most", "ensemble_agreement"),)
    note = "Share of the reward's members that prefer the same response; mean over the step's pairs."
    yield CurveChart(LOOP, "Agreement of the ensemble", agreement, share=True, note=note)
    spread = (MetricCurve("deviation of the members' margins", "ensemble_spread"),)
    yield CurveChart(LOOP, "Spread of the ensemble", spread, "reward", note="Mean over the step's pairs.")
    yield CurveChart(LOOP, "KL to the starting policy", (MetricCurve("k3", "kl_k3"),), "nats a token")
