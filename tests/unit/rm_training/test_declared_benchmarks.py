"""Benchmarks that a YAML file declares: rows of every shipped form (of our own writing), protocols, bad input."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.domain import Message, response_text
from assay.errors import BadInputError, NotFoundError
from assay_rm_training.benchmarks.benchmark import Benchmark
from assay_rm_training.benchmarks.catalogue import benchmark
from assay_rm_training.benchmarks.comparison import compare
from assay_rm_training.benchmarks.declared.system_ranking import partial_rank_correlation, system_means
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome
from assay_rm_training.benchmarks.outcome_journal import OutcomeJournals, Scored
from assay_rm_training.benchmarks.report import BenchmarkReport, read_items, report
from assay_rm_training.benchmarks.stored_results import item_table


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(rows) if path.suffix == ".json" else "\n".join(json.dumps(row) for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


def evaluated(bench: Benchmark, items: tuple[BenchmarkItem, ...], scores: list[Any], **more: Any) -> BenchmarkReport:
    outcomes = [Outcome(failure=s) if isinstance(s, str) else Outcome(tuple(map(float, s))) for s in scores]
    return report(bench, items, outcomes, model="m", **more)


def test_llmbar_and_hhh(tmp_path: Path) -> None:
    for number, name in enumerate(("Natural", "Neighbor", "Manual")):
        rows = [{"input": f"{name} {n}", "output_1": "x", "output_2": "y", "label": 1 + n % 2} for n in range(2)]
        written(tmp_path / "LLMBar" / name / "dataset.json", rows)
        assert number < 3
    bench = benchmark("LLMBar")
    items = read_items(bench, [tmp_path / "LLMBar"]).items
    by_group = {item.part: item for item in items}
    assert list(by_group) == ["Manual", "Natural", "Neighbor"]
    # Manual both right, Natural one, Neighbor none: scores prefer the first response or the second.
    result = evaluated(bench, items, [(1, 0), (0, 1), (1, 0), (1, 0), (0, 1), (1, 0)])
    assert result.aggregates == {
        "overall": 0.5, "Manual": 1.0, "Natural": 0.5, "Neighbor": 0.0, "adversarial": 0.5
    }  # fmt: skip
    assert result.missing == ["GPTInst", "GPTOut"]  # the mean `adversarial` is of two groups of four
    judged = report(bench, items, [Outcome(decisions=("A>B", "A>B"))] * 6, model="judge")
    assert judged.aggregates["overall"] == 0.5

    row = {"input": "Q", "targets": {"choices": ["bad", "good"], "labels": [0, 1]}, "domain": "honest"}
    bench = benchmark("hhh")
    (item,) = read_items(bench, [written(tmp_path / "hhh.jsonl", [row])]).items
    assert (item.gold, item.part, item.id) == ((0.0, 1.0), "honest", "row-1")


def test_pandalm_is_scored_as_by_its_own_scorer(tmp_path: Path) -> None:
    votes = [(1, 1, 2), (2, 2, 2), (0, 0, 1), (0, 1, 2), (1, 1, 1), (2, 2, 0)]
    rows = [
        {"idx": n, "instruction": f"I{n}", "input": math.nan if n else "text", "response1": "a", "response2": "b"}
        | {f"annotator{k + 1}": vote for k, vote in enumerate(three)}
        for n, three in enumerate(votes)
    ]
    bench = benchmark("pandalm")
    items = read_items(bench, [written(tmp_path / "testset-v1.json", rows)]).items
    assert [item.gold for item in items] == [(1, 0), (0, 1), (0.5, 0.5), (0.5, 0.5), (1, 0), (0, 1)]
    assert items[0].prompt[0].text == "I0\n\ntext"
    assert items[1].prompt[0].text == "I1"
    said = ["A>B", "A>B", "A=B", "B>A", "A>B", "B>A"]
    games = [Outcome(decisions=(one, one)) for one in said]
    result = report(bench, items, games, model="judge")
    # By hand: right 4 of 6; classes 1: P 2/3 R 1; 2: P 1/2 R 1/2; tie: P 1 R 1/2.
    assert result.aggregates["overall"] == pytest.approx(4 / 6)
    assert result.aggregates["decided"] == pytest.approx(3 / 4)
    assert result.aggregates["macro_precision"] == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)
    assert result.aggregates["macro_recall"] == pytest.approx((1 + 1 / 2 + 1 / 2) / 3)
    assert result.aggregates["macro_f1"] == pytest.approx((0.8 + 0.5 + 2 / 3) / 3)


def test_the_margin_of_ties_comes_from_other_prompts(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{n}", "responses": ["a", "b"], "label": ("1", "2", "tie")[n % 3]} for n in range(60)]
    path = tmp_path / "bench.yaml"
    path.write_text(
        f"protocol: three-way\nrows: {written(tmp_path / 'rows.jsonl', rows).name}\nfields: {{label: label}}"
    )
    bench = benchmark(str(path))
    items = read_items(bench, []).items
    gap = {(1.0, 0.0): 1.0, (0.0, 1.0): -1.0, (0.5, 0.5): 0.1}
    scores = [(gap[item.gold[0], item.gold[1]] * (1 + n / 100), 0.0) for n, item in enumerate(items)]
    result = evaluated(bench, items, scores)
    assert result.aggregates["overall"] == 1.0
    assert result.aggregates["tie_auc"] == 1.0
    table = item_table(bench, "m", items, [Outcome(one) for one in scores], "official")
    assert table["credit"].to_pylist() == [1.0] * len(items)  # an item's result has the margin of the figures
    assert (result.sizes["overall"], result.sizes["decided"]) == (60, 40)
    margin = result.aggregates["margin"]
    assert margin is not None
    assert 0.1 < margin < 1.0
    # In the half with the large differences a margin from the other half is of no use: nothing is fitted on itself.
    path.write_text(path.read_text() + "\nmargin: 0")
    plain = benchmark(str(path))
    assert evaluated(plain, items, scores).aggregates["overall"] == pytest.approx(2 / 3)


def test_if_rewardbench_is_scored_as_by_its_own_scorer(tmp_path: Path) -> None:
    graph = [(0, 1), (0, 2), (1, 2)]
    rows = [
        {
            "id": n,
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": f"u{n}"}],
            "instruction_type": kind,
            "responses": [{"response": f"r{k}"} for k in range(3)],
            "preference_graph": [{"chosen": {"response_id": b}, "rejected": {"response_id": w}} for b, w in graph],
        }
        for n, kind in enumerate(["Single_Turn", "Single_Turn", "Multi_Turn"])
    ]
    bench = benchmark("if-rewardbench")
    items = read_items(bench, [written(tmp_path / "if.json", rows)]).items
    assert items[0].pairs == ((0, 1), (0, 2), (1, 2))
    assert len(items[0].prompt) == 2
    result = evaluated(bench, items, [(3, 2, 1), (2, 2, 1), (1, 3, 2)])
    # C, D, T: (3, 0, 0) 1; (2, 0, 1) 2 / sqrt(2 * 3); (1, 2, 0) -1/3.
    single, multi = (1 + 2 / math.sqrt(6)) / 2, -1 / 3
    assert result.aggregates["overall"] == pytest.approx((single + multi) / 2)
    assert result.aggregates["accuracy"] == pytest.approx(((1 + 2 / 3) / 2 + 1 / 3) / 2)
    assert evaluated(bench, items[:1], [(1, 1, 1)]).aggregates["overall"] == 0.0


def test_rewardmath_and_best_of_16(tmp_path: Path) -> None:
    rows = [
        {"problem_id": p, "id": 3 * p + k, "problem": f"q{p}", "eval_solution": ["a", f"{k}"]}
        | {"solution_type": "rejected" if k else "chosen"}
        for p in range(3)
        for k in range(3)
    ]
    bench = benchmark("rewardmath")
    items = read_items(bench, [written(tmp_path / "direct.json", rows)]).items
    assert [item.id for item in items] == ["0", "1", "2"]
    assert response_text(items[0].responses[1]) == "a\n1"
    result = evaluated(bench, items, [(3, 2, 1), (2, 2, 1), (1, 3, 2)])
    assert result.aggregates["overall"] == pytest.approx(1 / 3)
    assert result.aggregates["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert result.aggregates["selected"] == pytest.approx((1 + 1 / 2 + 0) / 3)

    lists = [{"prompt": "p", "responses": [f"r{k}" for k in range(16)], "gold": [k / 15 for k in range(16)]}]
    bench = benchmark("best-of-n")
    items = read_items(bench, [written(tmp_path / "lists.jsonl", lists)]).items
    result = evaluated(bench, items, [range(16)])
    assert result.aggregates["overall"] == 1.0
    assert result.aggregates["random"] == pytest.approx(0.5)
    assert [point.n for point in result.curves["overall"]] == list(range(1, 17))


def test_item_auc_and_failures(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"p{n}", "answers": [{"t": "x", "ok": True}, {"t": "y", "ok": False}, {"t": "z", "ok": n < 1}]}
        for n in range(3)
    ]
    rows[2]["answers"] = [{"t": "x", "ok": True}, {"t": "y", "ok": True}]
    path = tmp_path / "auc.yaml"
    path.write_text("protocol: item-auc\nrows: [auc.jsonl]\nfields: {responses: answers, text: t, gold: ok}\n")
    written(tmp_path / "auc.jsonl", rows)
    bench = benchmark(str(path))
    items = read_items(bench, []).items
    result = evaluated(bench, items, [(2, 1, 1), "too_long", (5, 1)])
    assert result.aggregates["overall"] == pytest.approx(0.75)  # (1 + 1/2) / 2; a list of one kind has none
    assert result.failed_as_wrong["overall"] == pytest.approx(0.375)
    assert result.sizes["overall"] == 1
    one_kind = evaluated(bench, items, [(2, 1, 1), (1, 0, 0), "too_long"])
    assert one_kind.failed_as_wrong["overall"] == one_kind.aggregates["overall"] == pytest.approx(0.875)
    assert result.failures == {"too_long": 1}


def test_the_first_wrong_step_is_measured_as_processbench_measures_it(tmp_path: Path) -> None:
    rows = [{"q": f"q{n}", "steps": ["a", "b", "c"], "wrong": wrong} for n, wrong in enumerate((-1, 1, -1, 0))]
    path = tmp_path / "steps.yaml"
    path.write_text("protocol: first-error\nrows: steps.jsonl\nfields: {prompt: q, responses: steps, label: wrong}\n")
    written(tmp_path / "steps.jsonl", rows)
    bench = benchmark(str(path))
    items = read_items(bench, []).items
    assert items[0].steps == (("a", "b", "c"),)
    assert items[1].responses == ("a", "a\n\nb", "a\n\nb\n\nc")
    result = evaluated(bench, items, [(1, 1, 1), (1, -1, 1), (1, -1, 1), (1, 1, -1)])
    assert result.aggregates["all/error"] == 0.5
    assert result.aggregates["all/correct"] == 0.5
    assert (result.aggregates["f1"], result.missing) == (0.5, [])
    assert evaluated(bench, items, [(1, 1, 1), "too_long", (1, 1, 1), "too_long"]).missing == ["all"]  # it has no F1
    rows[1]["wrong"] = 3
    written(tmp_path / "steps.jsonl", rows)
    with pytest.raises(BadInputError, match="row 2, field 'wrong': not the number of a step"):
        read_items(bench, [])


def system_bench(folder: Path) -> Benchmark:
    board = [{"name": f"s{k}", "rate": 10.0 * k} for k in range(12)]
    rows = [
        {
            "id": f"q{n}",
            "prompt": f"p{n}",
            "responses": [{"system": f"s{k}", "text": "w" * (k % 3 + 1)} for k in range(13)],
        }
        for n in range(4)
    ]
    written(folder / "board.jsonl", board), written(folder / "out.jsonl", rows)
    yaml = "protocol: system-ranking\nrows: out.jsonl\nsystems: {rows: board.jsonl, system: name, value: rate}\n"
    (folder / "systems.yaml").write_text(yaml, encoding="utf-8")
    return benchmark("systems.yaml", folder=folder)


@pytest.mark.slow
def test_systems_are_ranked_by_their_reward_within_prompts(tmp_path: Path) -> None:
    bench = system_bench(tmp_path)
    items = read_items(bench, []).items
    assert len(items) == 4 * 12  # the thirteenth has no published value
    offsets = {f"q{n}": 1000.0 * n for n in range(4)}
    scores: list[Any] = [(offsets[item.part] + item.gold[0],) for item in items]
    scores[0] = "too_long"  # one response drops out, not its prompt: centring undoes the offsets all the same
    result = evaluated(bench, items, scores)
    assert result.aggregates["overall"] == pytest.approx(1.0)
    assert (result.counts["systems"], result.sizes["overall"], result.missing) == (12, 12, [])
    alone = [("too_long" if item.models == ("s3",) else score) for item, score in zip(items, scores, strict=True)]
    assert evaluated(bench, items, alone).missing == ["s3"]
    assert result.intervals["overall"].high == pytest.approx(1.0)
    assert abs(result.aggregates["length"] or 0) < 0.5
    assert (result.aggregates["equal_length"] or 0) > 0.99
    first = [Outcome(s) if isinstance(s, tuple) else Outcome(failure=s) for s in scores]
    assert compare(bench, items, ("a", first), ("b", first)).differences == {}
    assert system_means(["a", "b", "a"], ["p", "p", "q"], [3.0, 1.0, 9.0]) == {"a": 0.5, "b": -1.0}
    assert partial_rank_correlation([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("protocol: pairs", "no protocol is named 'pairs'; did you mean pair?"),
        ("title: x", "field 'protocol': is missing"),
        (
            "protocol: pair\nfields: {labels: x}",
            "field 'fields.labels': there is no such field",
        ),
        ("protocol: pair\nheadline: mrr", "field 'headline': is none of accuracy"),
        ("protocol: system-ranking", "field 'systems': missing"),
        ("protocol: [", "not YAML"),
        ("protocol: pair\noverall: mean", "overall"),
        ("protocol: pair\nhub: [{repo: x, split: y}]", "field 'hub.0.repository': is missing"),
        ("protocol: pair\nfields: {responses: []}", "field 'fields.responses'"),
        ("protocol: pair\nfields: {values: 5}", "field 'fields.values'"),
        ("protocol: three-way\nmargin: .nan", "field 'margin'"),
        ("protocol: first-error\nheadline: f1", "field 'headline': this protocol has its own"),
        ("title: \udce9", "cannot be read as text"),
    ],
)
def test_a_bad_description_is_one_line(tmp_path: Path, yaml: str, said: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(yaml, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(BadInputError) as caught:
        benchmark(str(path))
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(NotFoundError, match="no benchmark"):
        benchmark(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"responses": ["a", "b"], "label": "1"}, "row 2, field 'prompt': missing, or empty"),
        ({"prompt": "p", "responses": ["a", "b"], "label": "C"}, "field 'label': 'C' is none of"),
        ({"prompt": "p", "responses": ["a", "b"], "label": "tie"}, "neither response is better"),
        ({"prompt": "p", "responses": ["a"], "label": "1"}, "1 responses where the protocol compares two"),
        ({"prompt": "p", "responses": "a", "label": "1"}, "field 'responses': not a list"),
        ({"prompt": "p", "responses": ["a", 3], "label": "1"}, "field 'responses': not a text: 3"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    path = tmp_path / "b.yaml"
    path.write_text("protocol: pair\nrows: rows.jsonl\nfields: {label: label}", encoding="utf-8")
    written(tmp_path / "rows.jsonl", [{"prompt": "p", "responses": ["a", "b"], "label": 2}, row])
    with pytest.raises(BadInputError, match=r"rows\.jsonl, row 2") as caught:
        read_items(benchmark(str(path)), [])
    assert said in str(caught.value)


def test_a_part_of_the_prompt_that_no_row_has_is_named(tmp_path: Path) -> None:
    path = tmp_path / "b.yaml"
    path.write_text("protocol: pair\nrows: rows.jsonl\nfields: {prompt: [q, detail], label: label}", encoding="utf-8")
    rows: list[dict[str, Any]] = [{"q": "p", "responses": ["a", "b"], "label": 2} for _ in range(2)]
    written(tmp_path / "rows.jsonl", rows)
    with pytest.raises(BadInputError, match="no row has 'detail'; the first row's fields are q, responses, label"):
        read_items(benchmark(str(path)), [])
    written(tmp_path / "rows.jsonl", [rows[0], {**rows[1], "detail": "more"}])  # not every row needs it
    first, second = read_items(benchmark(str(path)), []).items
    assert (first.prompt[-1].text, second.prompt[-1].text) == ("p", "p\n\nmore")


@pytest.mark.parametrize(
    ("fields", "row", "said"),
    [
        ("{}", {"responses": ["a", "b"]}, "nothing says which response is better"),
        ("{list: q}", {"responses": "a", "q": 1}, "nothing says which response is better"),
        ("{gold: gold}", {"responses": ["a", "b"], "gold": [math.nan, 0]}, "field 'gold': not a number: nan"),
    ],
)
def test_a_list_without_gold_is_no_list_of_equals(tmp_path: Path, fields: str, row: dict[str, Any], said: str) -> None:
    path = tmp_path / "b.yaml"
    path.write_text(f"protocol: best-of-n\nrows: rows.jsonl\nfields: {fields}", encoding="utf-8")
    written(tmp_path / "rows.jsonl", [{"prompt": "p", **row}])
    with pytest.raises(BadInputError, match=said):
        read_items(benchmark(str(path)), [])


def test_rows_of_one_list_have_one_prompt(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("protocol: best-of-n\nrows: rows.jsonl\nfields: {list: q, gold: gold}")
    rows = [{"q": 1, "prompt": f"p{n}", "responses": "a", "gold": n} for n in range(2)]
    written(tmp_path / "rows.jsonl", rows)
    with pytest.raises(BadInputError, match="row 2, field 'q': another prompt than row 1"):
        read_items(benchmark(str(tmp_path / "b.yaml")), [])


def test_items_of_other_steps_are_scored_anew(tmp_path: Path) -> None:
    """The same beginnings from other steps: a process reward model reads them in another way."""
    asked: list[tuple[tuple[str, ...], ...]] = []

    def score(part: Sequence[BenchmarkItem]) -> Scored:
        asked.extend(one.steps for one in part)
        return [Outcome((1.0, 2.0))] * len(part), {}

    one = BenchmarkItem("1", (Message("user", "p"),), ("a", "a\n\nb"), (1.0, 0.0), steps=(("a", "b"),), key="1")
    for steps in (one.steps, one.steps, (("a",), ("a\n\nb",))):
        OutcomeJournals(tmp_path).complete([replace(one, steps=steps)], {"model": "m"}, score)
    assert asked == [one.steps, (("a",), ("a\n\nb",))]
