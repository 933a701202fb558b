"""Tables of a run on its page: a measure's table, and evaluations with their coverage."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from assay.statistics.intervals import Interval
from assay_rm_training.attacks.rates import AttackRate
from assay_rm_training.calibration.uncertainty import OrderedThirds
from assay_web.run_charts.chart import MetricExtents
from assay_web.run_charts.policy import policy_charts
from assay_web.runs.key_figure import key_figure
from assay_web.runs.tables import MOST_ROWS, tables_of


def evaluation(reward: float, share: float, at_2: float) -> dict[str, Any]:
    passes = [{"k": k, "value": value, "low": None, "high": None, "prompts": 3} for k, value in ((1, share), (2, at_2))]
    counts = {"prompts": 3, "samples": 2, "rewards_missing": 1, "length_mean": 8.0, "entropy": None, "kl_k3": 0.0}
    return {"reward_mean": reward, "verifier": {"share": share}, "pass_at_k": passes, **counts}


def test_an_evaluation_shows_before_after_and_change_with_its_coverage() -> None:
    change = {
        "reward": {"value": 0.5, "low": 0.25, "high": 0.75, "prompts": 3},
        "pass_rate": {"value": 0.1, "low": None, "high": None, "prompts": 3},
        "pass_at_k": [{"k": 1, "value": 0.1}, {"k": 2, "value": 0.2, "low": -0.1, "high": 0.5, "prompts": 3}],
    }
    part = {"before": evaluation(1.0, 0.25, 0.4), "after": evaluation(1.5, 0.35, 0.6), "change": change}
    (table,) = tables_of(part)
    assert table.title == "Held-out prompts: 3 prompts, 2 responses each, 1 rewards missing"
    assert table.rows == [
        ["reward", "1", "1.5", "+0.500 [+0.250 to +0.750]"],
        ["pass rate", "0.25", "0.35", "+0.100 [undetermined]"],
        ["pass@2", "0.4", "0.6", "+0.200 [-0.100 to +0.500]"],
        ["length in tokens", "8", "8", ""],
        ["KL a token (k3)", "0", "0", ""],
    ]
    first, second = tables_of({**part, "sets": {"easy": part, "hard": part}})
    assert (first.title[:6], second.title[:6]) == ("easy: ", "hard: ")
    assert tables_of({"steps": 3}) == []
    figures = {"accuracy": 0.5}  # of a calibration, or a judge trained by RL
    assert tables_of({"before": figures, "after": figures}) == []


def test_a_measure_shows_its_tables_and_of_long_ones_a_part() -> None:
    answers = [{"answer": str(n), "lost": n} for n in range(MOST_ROWS + 1)]
    results = {"measure": "support", "table": [{"policy": "a", "kept": 0.5}, {"policy": "b"}], "answers": answers}
    table, rows = tables_of({**results, "base": "a"})
    assert (table.title, table.head, table.rows) == ("support", ["policy", "kept"], [["a", "0.5"], ["b", "-"]])
    assert (rows.title, len(rows.rows)) == (f"answers, {MOST_ROWS} of {MOST_ROWS + 1} rows", MOST_ROWS)


def test_decoding_shows_the_best_of_fewer() -> None:
    curve = [{"m": 1, "mean": 0.25, "kl_bound": 0.0}, {"m": 2, "mean": 0.5, "kl_bound": 0.19315}]
    (table,) = tables_of({"decoder": "best_of_n", "reward": {"mean": 0.5}, "best_of_m": curve})
    assert (table.title, table.rows) == ("best of m", [["1", "0.25", "0"], ["2", "0.5", "0.1931"]])


def test_attacks_show_their_rates_and_variants() -> None:
    plain = AttackRate("worse response", 4, 4, {}, 0.5, Interval(0.25, 0.75), 0.5, 0.0, None, 0.25).to_row()
    padded = AttackRate("padding", 4, 3, {}, 0.75, Interval(0.5, 0.9), 1.0, 0.25, None, None).to_row()
    variant = {**padded, "attack": "padding: long"}
    worst = {"attack": "padding", "value": 0.75}
    results = {"attacks": [plain, padded], "variants": [variant], "worst": worst, "pairs": 4}
    rates, variants = tables_of(results)
    assert (rates.title, rates.head) == ("Attacks", ["attack", "fooled, 95 %", "above baseline, 95 %", *rates.head[3:]])
    assert rates.rows == [
        ["worse response", "0.500 (0.250 to 0.750)", "-", "0.500", "0.250", "4/4"],
        ["padding", "0.750 (0.500 to 0.900)", "+0.250 (undetermined)", "1.000", "-", "3/4"],
    ]
    assert variants.rows[0][0] == "padding: long"
    figure = key_figure("attack", results)
    assert figure is not None
    assert (figure.label, figure.value) == ("worst attack", 0.75)


def test_uncertainty_shows_accuracy_by_thirds() -> None:
    ends = (Interval(0.5, 1.0), None, Interval(0.25, 0.75))
    thirds = OrderedThirds("uncertainty", (0.75, 0.625, 0.5), ends, 0.25, Interval(-0.125, 0.5))
    uncertainty = {"pairs": 48, "thirds": [asdict(thirds)]}
    evaluation = {"uncertainty": uncertainty, "accuracy": {"value": 0.625}}
    for results in (evaluation, {"evaluation": evaluation}):
        (table,) = tables_of(results)
        assert table.title == "Accuracy by thirds of 48 pairs; of all 0.625"
        assert table.rows == [
            ["uncertainty", "0.750 (0.500 to 1.000)", "0.625 (undetermined)", "0.500 (0.250 to 0.750)",
             "+0.250 (-0.125 to +0.500)"]
        ]  # fmt: skip
    assert tables_of({"uncertainty": None, "evaluation": {"uncertainty": None}}) == []


def test_evaluations_during_training_are_curves_by_set() -> None:
    figures = {"eval_easy_reward_mean": 1.0, "eval_hard_reward_mean": 2.0, "eval_easy_pass_at_4": 0.5}
    charts = policy_charts(MetricExtents.of_rows([{"step": step, "reward_mean": 1.0, **figures} for step in (1, 2)]))
    curves = {chart.title: [curve.name for curve in chart.curves] for chart in charts if chart.section != "Reward"}
    assert curves == {"Reward": ["easy", "hard"], "One of k samples passes (pass@k)": ["easy, k = 4"]}
