"""What the page of a policy training shows: the run in short, rewards, distance, optimiser, time, rollouts to read.

Covers: sections made from the rows of `metrics.jsonl` and from `rollouts.jsonl`, of a run that has ended or still goes
on. A curve whose number no step has is not drawn. Leaves out: reading the files, settings (`run_pages`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from assay.wording import counted
from assay_web.report import Block, Figure, Figures, LineChart, Sample, Samples, Section, Series, Table, Text

Row = Mapping[str, Any]
SHOWN = 12  #: rollouts of the last step
_STAGES = ("publish", "sample", "reward", "score", "advantage", "update", "critic", "wait", "gather")
#: (title, unit, whether a share, {name of the curve: key of the row}), by section.
_CHARTS: dict[str, tuple[tuple[str, str, bool, dict[str, str]], ...]] = {
    "Distance and spread": (
        ("KL to the starting policy", "nats a token", False, {"k1": "kl_k1", "k3": "kl_k3"}),
        ("Entropy", "nats a token", False, {"policy": "entropy"}),
        ("Response length", "tokens", False, {"mean": "length_mean", "longest": "length_max"}),
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
}


def policy_sections(rows: Sequence[Row], rollouts: Iterable[Row]) -> list[Section]:
    """`rollouts`: of the last step at least."""
    sections = [Section("In short", [Figures(_in_short(rows))]), Section("Reward", _rewards(rows), _counted(rows))]
    if watched := _watched(rows):
        sections.append(watched)
    for title, charts in _CHARTS.items():
        drawn: list[Block] = [chart for each in charts if (chart := _chart(rows, *each)) is not None]
        if drawn:
            sections.append(Section(title, drawn))
    sections.append(Section("Time", _time(rows)))
    if rows:
        sections.append(_samples(rows[-1]["step"], rollouts))
    return sections


def _counted(rows: Sequence[Row]) -> str:
    return f"{counted(len(rows), 'step')} of metrics.jsonl."


def _in_short(rows: Sequence[Row]) -> list[Figure]:
    if not rows:
        return [Figure("steps", 0, "nothing was measured yet")]
    first, last = rows[0], rows[-1]
    seconds = sum(row.get("seconds", 0.0) for row in rows)
    figures = [Figure("steps", last["step"], f"{seconds:.0f} s, {fmean(r['seconds'] for r in rows):.1f} s a step")]
    for label, key in (("reward", "reward_mean"), ("verifier pass rate", "verifier_pass_rate")):
        if key in last and key in first:
            figures.append(Figure(f"{label}, last step", last[key], f"first step {first[key]:.3f}"))
    rollouts = sum(row["rollouts"] for row in rows)
    missing = sum(row["rewards_missing"] for row in rows)
    figures.append(Figure("rollouts", rollouts, f"{missing} without a reward, never counted as 0"))
    trained = sum(row["rollouts_trained"] for row in rows)
    figures.append(
        Figure("trained on", f"{100 * trained / max(1, rollouts):.0f} %", "of rollouts; the filters left out the rest")
    )
    if "kl_k3" in last:
        figures.append(Figure("KL, last step", last["kl_k3"], "nats a token, to the starting policy"))
    figures.append(Figure("tokens a second", fmean(row["tokens_per_second"] for row in rows), "whole steps"))
    return figures


def _rewards(rows: Sequence[Row]) -> list[Block]:
    parts = {
        key.removeprefix("reward_").removesuffix("_mean"): key
        for row in rows
        for key in row
        if key.startswith("reward_") and key.endswith("_mean") and key != "reward_mean"
    }
    charts: list[Block] = []
    low, high = (_moved(rows, sign) for sign in (-1, 1))
    charts.append(
        LineChart(
            "Reward",
            [Series("mean", *_points(rows, "reward_mean"), low=low, high=high)],
            "step",
            note="The band is one deviation of the step's rollouts.",
        )
    )
    if len(parts) > 1:
        series = [Series(name, *_points(rows, key)) for name, key in parts.items()]
        charts.append(LineChart("Parts of the reward", series, "step"))
    more: tuple[tuple[str, str, bool, dict[str, str]], ...] = (
        ("Verifier pass rate", "", True, {"every constraint met, before filtering": "verifier_pass_rate"}),
        ("Rollouts without a reward", "", False, {"rollouts": "rewards_missing"}),
    )
    if not any(row["rewards_missing"] for row in rows):
        more = more[:1]
    return charts + [chart for each in more if (chart := _chart(rows, *each)) is not None]


def _moved(rows: Sequence[Row], sign: int) -> list[float]:
    return [row["reward_mean"] + sign * row.get("reward_std", 0.0) for row in rows if "reward_mean" in row]


def _watched(rows: Sequence[Row]) -> Section | None:
    """The reward that is trained on beside one that is not, by step and by distance."""
    seen = [row for row in rows if "held_out_reward_mean" in row]
    if not seen:
        return None
    both = {"trained on": "reward_mean", "held out": "held_out_reward_mean"}
    blocks: list[Block] = [LineChart("Reward, trained on and held out", _series(seen, both), "step")]
    far = sorted((row for row in seen if "kl_k3" in row), key=lambda row: float(row["kl_k3"]))
    if far:
        x = [float(row["kl_k3"]) for row in far]
        series = [Series(name, [row.get(key) for row in far], x) for name, key in both.items()]
        blocks.append(LineChart("The same by distance", series, "KL to the starting policy, nats a token"))
    agreement = _chart(seen, "Rank agreement of the two", "", False, {"Spearman": "held_out_agreement"})
    blocks += [agreement] if agreement is not None else []
    begun = next((row["step"] for row in seen if row.get("overoptimised")), None)
    verdict = (
        "The held-out reward has not fallen behind."
        if begun is None
        else f"Over-optimisation was seen from step {begun} on: the held-out reward fell while the other rose."
    )
    return Section("Over-optimisation", [Text(verdict), *blocks])


def _time(rows: Sequence[Row]) -> list[Block]:
    stages = {stage: f"seconds_{stage}" for stage in _STAGES if any(f"seconds_{stage}" in row for row in rows)}
    charts: list[Block] = [LineChart("Time a step", _series(rows, stages), "step", "seconds")]
    speed = _chart(rows, "Speed", "tokens a second", False, {"whole steps": "tokens_per_second"})
    return charts + ([speed] if speed is not None else [])


def _samples(step: int, rollouts: Iterable[Row]) -> Section:
    """Rollouts of the last step: the best and the worst, and a table of all that are shown."""
    last = [row for row in rollouts if row["step"] == step]
    scored = sorted((r for r in last if r["reward"] is not None), key=lambda r: float(r["reward"]), reverse=True)
    missing = [row for row in last if row["reward"] is None]
    shown = [*scored[: SHOWN // 2], *scored[max(SHOWN // 2, len(scored) - SHOWN // 2) :], *missing[:2]]
    names = list(dict.fromkeys(name for row in shown for name in row["parts"]))
    table = Table(
        ("group", "reward", *names, "advantage", "tokens", "ended"),
        [
            (
                row["uid"],
                row["reward"],
                *(row["parts"].get(name) for name in names),
                row["advantage"],
                row["tokens"],
                "cut" if row["truncated"] else "itself",
            )
            for row in shown
        ],
    )
    samples = [
        Sample(
            f"{row['uid']}: " + ("no reward" if row["reward"] is None else f"reward {row['reward']:.3f}"),
            [*((turn["role"], turn["content"]) for turn in row["prompt"]), ("response", row["response"])],
            [*([] if row["trained"] else ["not trained on"]), *(failure["code"] for failure in row["failures"])],
        )
        for row in shown
    ]
    return Section("Rollouts", [table, Samples(samples)], f"Best and worst of {len(last)} in step {step}.")


def _chart(rows: Sequence[Row], title: str, unit: str, share: bool, curves: Mapping[str, str]) -> LineChart | None:
    series = _series(rows, curves)
    return LineChart(title, series, "step", unit, percent=share) if series else None


def _series(rows: Sequence[Row], curves: Mapping[str, str]) -> list[Series]:
    found = {name: _points(rows, key) for name, key in curves.items()}
    return [Series(name, y, x) for name, (y, x) in found.items() if y]


def _points(rows: Sequence[Row], key: str) -> tuple[list[float], list[float]]:
    having = [row for row in rows if row.get(key) is not None]
    return [float(row[key]) for row in having], [float(row["step"]) for row in having]
