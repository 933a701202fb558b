"""Report sections of a policy training: summary, rewards, KL, optimiser, time, sample rollouts.

Covers: sections made from the rows of `metrics.jsonl` and from `rollouts.jsonl`, of a finished or
running run. Leaves out: which charts there are (`run_charts`), reading the files, settings (`runs`).
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from assay.system.plurals import counted
from assay_web.report.content import Block, Figures, Headline, Sample, Samples, Section, Table, Text
from assay_web.report.pages.curves import line_chart
from assay_web.run_charts import MetricExtents, overoptimised_from, policy_charts
from assay_web.run_charts.policy import WATCH

Row = Mapping[str, Any]
SHOWN = 12  #: rollouts of the last step


def policy_sections(rows: Sequence[Row], rollouts: Iterable[Row]) -> list[Section]:
    """`rollouts`: of the last step at least."""
    charts: dict[str, list[Block]] = {}
    watched = [row for row in rows if "held_out_reward_mean" in row]
    for chart in policy_charts(MetricExtents.of_rows(rows)):
        line = line_chart(chart, watched if chart.section == WATCH else rows)
        charts.setdefault(chart.section, [_verdict(rows)] if chart.section == WATCH else []).append(line)
    sections = [Section("In short", [Figures(_in_short(rows))])]
    sections += [
        Section(title, blocks, _counted(rows) if title == "Reward" else "") for title, blocks in charts.items()
    ]
    if rows:
        sections.append(_samples(rows[-1]["step"], rollouts))
    return sections


def _counted(rows: Sequence[Row]) -> str:
    return f"{counted(len(rows), 'step')} of metrics.jsonl."


def _in_short(rows: Sequence[Row]) -> list[Headline]:
    if not rows:
        return [Headline("steps", 0, "nothing was measured yet")]
    first, last = rows[0], rows[-1]
    seconds = sum(row.get("seconds", 0.0) for row in rows)
    figures = [Headline("steps", last["step"], f"{seconds:.0f} s, {fmean(r['seconds'] for r in rows):.1f} s a step")]
    for label, key in (("reward", "reward_mean"), ("verifier pass rate", "verifier_pass_rate")):
        if key in last and key in first:
            figures.append(Headline(f"{label}, last step", last[key], f"first step {first[key]:.3f}"))
    rollouts = sum(row["rollouts"] for row in rows)
    missing = sum(row["rewards_missing"] for row in rows)
    figures.append(Headline("rollouts", rollouts, f"{missing} without a reward, never counted as 0"))
    trained = sum(row["rollouts_trained"] for row in rows)
    figures.append(
        Headline(
            "trained on", f"{100 * trained / max(1, rollouts):.0f} %", "of rollouts; the filters left out the rest"
        )
    )
    if "kl_k3" in last:
        figures.append(Headline("KL, last step", last["kl_k3"], "nats a token, to the starting policy"))
    else:
        figures.append(Headline("KL", "not measured", "nothing needed the starting policy: report_kl"))
    figures.append(Headline("tokens a second", fmean(row["tokens_per_second"] for row in rows), "whole steps"))
    return figures


def _verdict(rows: Sequence[Row]) -> Text:
    begun = overoptimised_from(rows)
    if begun is None:
        return Text("The held-out reward has not fallen behind.")
    return Text(f"Over-optimisation was seen from step {begun} on: the held-out reward fell while the other rose.")


def _samples(step: int, rollouts: Iterable[Row]) -> Section:
    """Rollouts of the last step: the best and the worst, and a table of all that are shown."""
    last = [row for row in rollouts if row["step"] == step]
    scored = sorted((r for r in last if r["reward"] is not None), key=lambda r: float(r["reward"]), reverse=True)
    missing = [row for row in last if row["reward"] is None]
    selected = [*scored[: SHOWN // 2], *scored[max(SHOWN // 2, len(scored) - SHOWN // 2) :], *missing[:2]]
    names = list(dict.fromkeys(name for row in selected for name in row["parts"]))
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
            for row in selected
        ],
    )
    samples = [
        Sample(
            f"{row['uid']}: " + ("no reward" if row["reward"] is None else f"reward {row['reward']:.3f}"),
            [*((turn["role"], turn["content"]) for turn in row["prompt"]), ("response", row["response"])],
            [*([] if row["trained"] else ["not trained on"]), *(failure["code"] for failure in row["failures"])],
        )
        for row in selected
    ]
    return Section("Rollouts", [table, Samples(samples)], f"Best and worst of {len(last)} in step {step}.")
