"""Benchmark rows in the publishers' fields become items, recorded scores find them, complaints name the row."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.errors import AssayError, BadInputError, NotFoundError
from assay_rm_training.benchmarks.catalogue import BENCHMARKS, benchmark
from assay_rm_training.benchmarks.item import Record
from assay_rm_training.benchmarks.recorded import read_recorded
from assay_rm_training.benchmarks.report import BenchmarkItems, read_items, report

RB1 = {"id": 7, "prompt": "p", "chosen": "c", "rejected": "r", "subset": "hep-go", "chosen_model": "a"}
RB2 = {"id": "3", "prompt": "p", "chosen": ["c"], "rejected": ["r", "s", "t"], "num_correct": 1, "subset": "Focus"}
RM = {"id": 8, "prompt": "p", "chosen": ["a", "b", "c"], "rejected": ["d", "e", "f"], "domain": "chat"}
JB = {
    "pair_id": "u-1", "source": "livebench-math", "question": "q", "response_model": "m",
    "response_A": "a", "response_B": "b", "label": "B>A",
}  # fmt: skip
RMB_PAIR = {
    "pair_uid": "1", "conversation_input": [{"role": "user", "content": "p", "language": "English"}],
    "chosen": {"llm_name": "x", "answer": "c"}, "reject": {"llm_name": "y", "answer": "r"},
    "category_path": "Pairwise_set/Helpfulness/Chat/Discussion",
}  # fmt: skip
RMB_LIST = {
    "bon_uid": "1", "conversation_input": [{"role": "user", "content": "p", "language": "English"}],
    "bon_best": {"llm_name": "x", "answer": "w"}, "loser_list": [{"answer": "l"}, {"answer": "m"}],
    "category_path": "BoN_set/Harmlessness/S1",
}  # fmt: skip
VOTE = {
    "question_id": "v", "prompt": "p", "response_1": "a", "response_2": "b", "model_a": "x", "model_b": "y",
    "winner": "model_b", "language": "English",
}  # fmt: skip
LIST = {
    "question_id": "k", "prompt": "p", "response_1": "a", "response_2": "b", "response_10": "c", "domain": "gpqa",
    "scores": [True, False, True], "sampled_conflict_pairs": [[1, 0]], "model_name": "m",
}  # fmt: skip
PAIR = {"id": "z", "prompt": "p", "chosen": "c", "rejected": "r", "source": "s", "category": "k"}


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(tmp_path: Path, name: str, *rows: Any, file: str = "items.jsonl") -> BenchmarkItems:
    return read_items(benchmark(name), [written(tmp_path / file, *rows)])


@pytest.mark.parametrize(
    ("name", "row", "id_", "responses", "gold", "part"),
    [
        ("rewardbench", RB1, "7", ("c", "r"), (1, 0), "hep-go"),
        ("rewardbench2", RB2, "3", ("c", "r", "s", "t"), (1, 0, 0, 0), "Focus"),
        ("rm-bench", RM, "8", ("a", "b", "c", "d", "e", "f"), (1, 1, 1, 0, 0, 0), "chat"),
        ("judgebench", JB, "u-1", ("a", "b"), (0, 1), "math"),
        ("rmb", RMB_PAIR, "1", ("c", "r"), (1, 0), "pairwise_helpfulness"),
        ("rmb", RMB_LIST, "1", ("w", "l", "m"), (1, 0, 0), "bon_harmlessness"),
        ("ppe", VOTE, "v", ("a", "b"), (0, 1), "preference"),
        ("ppe", LIST, "k", ("a", "b", "c"), (1, 0, 1), "gpqa"),
        ("pairs", PAIR, "z", ("c", "r"), (1, 0), "s"),
    ],
)
def test_a_row_of_each(
    tmp_path: Path,
    name: str,
    row: dict[str, Any],
    id_: str,
    responses: tuple[str, ...],
    gold: tuple[int, ...],
    part: str,
) -> None:
    (item,) = read(tmp_path, name, row).items
    assert (item.id, item.responses, item.gold, item.part) == (id_, responses, gold, part)
    assert item.prompt[-1].content in ("p", "q")
    for field in ("prompt", "question", "conversation_input", "response_A", "chosen", "bon_best"):
        if field in row:
            fields = f"({field}|rejected)" if name == "pairs" else field
            with pytest.raises(BadInputError, match=rf"items.jsonl, row 2, field '{fields}'"):
                read(tmp_path, name, row, {**row, field: 3})


def test_names_of_benchmarks_are_forgiving() -> None:
    assert benchmark("RM_Bench") is benchmark("rm-bench")
    with pytest.raises(BadInputError, match=r"no benchmark is named 'rmbench9'; did you mean"):
        benchmark("rmbench9")
    for name in BENCHMARKS.members:
        assert benchmark(name).name == name
        assert {"unit", "tie", "aggregation", "failures"} <= benchmark(name).statement("official").keys()


def test_one_content_in_every_kind_of_file(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{**JB, "pair_id": f"u-{n}"} for n in range(3)]
    (tmp_path / "array.json").write_text(json.dumps(rows))
    (tmp_path / "wrapped.json").write_text(json.dumps({"rows": [{"row_idx": 0, "row": row} for row in rows]}))
    (tmp_path / "lines.json").write_text("\n".join(map(json.dumps, rows)))
    with gzip.open(tmp_path / "packed.jsonl.gz", "wt") as stream:
        stream.write("\n\n".join(map(json.dumps, rows)))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "columns.parquet")
    wanted = [f"u-{n}" for n in range(3)]
    for file in sorted(tmp_path.iterdir()):
        assert [item.id for item in read_items(benchmark("judgebench"), [file]).items] == wanted, file.name
    whole = read_items(benchmark("judgebench"), [tmp_path])
    assert [item.id for item in whole.items] == wanted, "the same row in another file is not another item"
    assert whole.repeated == 4 * 3
    assert len(whole.sources) == 5


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "row 1: broken JSON"),
        ("[1]", "row 1: not a JSON object"),
        ("[", "broken JSON"),
        ("7", "neither an array"),
        ('{"id": NaN}', "row 1: broken JSON"),
        ("", "broken JSON"),
    ],
)
def test_broken_files(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(BadInputError, match=said):
        read_items(benchmark("judgebench"), [file])


def test_missing_and_empty(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file or folder"):
        read_items(benchmark("judgebench"), [tmp_path / "gone"])
    with pytest.raises(BadInputError, match="holds no data file"):
        read_items(benchmark("judgebench"), [tmp_path])
    with pytest.raises(BadInputError, match="no item of Pair file"):
        read(tmp_path, "pairs", {"prompt": "p", "chosen": None, "rejected": None})
    with pytest.raises(BadInputError, match="RMB is not on the hub; name the folder"):
        read_items(benchmark("rmb"), [])


def test_rm_bench_domains_from_row_file_name_and_subset(tmp_path: Path) -> None:
    bare = {key: value for key, value in RM.items() if key != "domain"}
    for file, part in (("safety-refuse_filtered.json", "safety-refuse"), ("rm_bench_math_x.json", "math")):
        (item,) = read(tmp_path, "rm-bench", bare, file=file).items
        assert item.part == part
    (item,) = read(tmp_path, "rm-bench", {**bare, "subset": "xstest-should-respond"}, file="all.jsonl").items
    assert item.part == "safety-response"
    with pytest.raises(BadInputError, match=r"field 'domain': missing, and neither"):
        read(tmp_path, "rm-bench", bare, file="all.jsonl")
    with pytest.raises(BadInputError, match=r"field 'domain': 'art' is not one of"):
        read(tmp_path, "rm-bench", {**RM, "domain": "art"})
    with pytest.raises(BadInputError, match=r"field 'rejected': 2 responses instead of 3"):
        read(tmp_path, "rm-bench", {**RM, "rejected": ["d", "e"]})


def test_rows_that_contradict_themselves(tmp_path: Path) -> None:
    for name, row, said in (
        ("judgebench", {**JB, "label": "A"}, "'A' is neither"),
        ("judgebench", {**JB, "source": "x"}, "begins with none"),
        ("rewardbench2", {**RB2, "num_correct": 2}, "2, but there are 1 chosen"),
        ("rewardbench2", {**RB2, "subset": "Ties"}, "neither ref:N nor tied:N"),
        ("rewardbench", {**RB1, "chosen": ["a", "b"]}, "is this RewardBench 2"),
        ("ppe", {**VOTE, "winner": "x"}, "neither model_a nor model_b nor a tie"),
        ("ppe", {**LIST, "scores": [1]}, "1 gold scores for 3 responses"),
        ("rmb", {**RMB_PAIR, "category_path": "x"}, "names Helpfulness or Harmlessness"),
    ):
        with pytest.raises(BadInputError, match=said):
            read(tmp_path, name, row)


# Recorded scores.


def recorded(tmp_path: Path, items: BenchmarkItems, name: str, *rows: Any) -> Any:
    return read_recorded(written(tmp_path / "scores.jsonl", *rows), benchmark(name), items.items)


def pairs_of(tmp_path: Path, count: int) -> BenchmarkItems:
    return read(tmp_path, "judgebench", *({**JB, "pair_id": f"u-{n}"} for n in range(count)))


def test_scores_find_their_items_whatever_the_order(tmp_path: Path) -> None:
    items = pairs_of(tmp_path, 3)
    found = recorded(
        tmp_path, items, "judgebench",
        {"id": "u-2", "scores": [1, 2]}, {"id": "u-0", "scores": [3.5, 4]}, {"pair_id": "u-1", "scores": [[5], [6]]},
    )  # fmt: skip
    assert [outcome.scores for outcome in found.outcomes] == [(3.5, 4.0), (5.0, 6.0), (1.0, 2.0)]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"scores": [None, 1]}, "null"),
        ({"scores": None}, "null"),
        ({"scores": [float("nan"), 1]}, "non_finite"),
        ({"scores": [float("inf"), 1]}, "non_finite"),
        ({"scores": [10**400, 1]}, "non_finite"),
        ({"error": {"code": "too_long", "message": "x"}}, "too_long"),
        ({"scores": [{"error": {"code": "timeout", "message": "x"}}, {"reward": 1.0}]}, "timeout"),
        ({"decisions": None}, "null"),
    ],
)
def test_what_is_no_score_is_a_failure_and_no_number(tmp_path: Path, row: dict[str, Any], code: str) -> None:
    items = pairs_of(tmp_path, 3)
    good = [{"id": f"u-{n}", "scores": [0.0, 1.0]} for n in (0, 1)]
    found = recorded(tmp_path, items, "judgebench", *good, {"id": "u-2", **row})
    told = report(benchmark("judgebench"), items.items, found.outcomes, model="m")
    assert told.failures == {code: 1}
    assert told.failed_items == [{"id": "u-2", "failure": code}]
    assert told.aggregates["overall"] == 1.0
    assert told.failed_as_wrong["overall"] == pytest.approx(2 / 3)
    assert (told.counts["items"], told.counts["scored"], told.counts["failed"]) == (3, 2, 1)


def test_an_item_without_a_row_is_missing(tmp_path: Path) -> None:
    items = pairs_of(tmp_path, 3)
    found = recorded(tmp_path, items, "judgebench", {"id": "u-1", "scores": [0, 1]})
    assert [outcome.failure for outcome in found.outcomes] == ["missing", None, "missing"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"id": "x", "scores": [1, 2]}], "row 1, field 'id': 'x' is the id of no item"),
        ([{"scores": [1, 2]}], "row 1, field 'id': missing"),
        ([{"id": True, "scores": [1, 2]}], "row 1, field 'id': missing, or neither"),
        ([{"id": "u-0", "scores": [1, 2]}] * 2, "row 2, field 'id': 'u-0' has scores already, in row 1"),
        ([{"id": "u-0", "scores": [1]}], "row 1, field 'scores': 1 scores for the 2 responses"),
        ([{"id": "u-0", "scores": [1, 2, 3]}], "3 scores for the 2 responses"),
        ([{"id": "u-0", "scores": ["1", 2]}], "not a number: '1'"),
        ([{"id": "u-0", "scores": [True, 2]}], "not a number: True"),
        ([{"id": "u-0", "scores": 1}], "not a list of scores"),
        ([{"id": "u-0"}], "field 'scores': missing"),
        ([{"id": "u-0", "decisions": ["A", "B"]}], "'A' is none of A>B, B>A, A=B and null"),
        ([{"id": "u-0", "decisions": ["A>B"] * 3}], "not a list of one or two games"),
        (
            [{"id": "u-0", "decisions": ["A>B"]}, {"id": "u-1", "decisions": ["A>B", None]}],
            "other numbers of games than others",
        ),
        ([{"id": "u-0", "scores": [1, 2]}, {"id": "u-1", "decisions": ["A>B"]}], "scores beside decisions"),
        ([], "no row for any of the 2 items"),
    ],
)
def test_files_that_are_not_of_these_items_are_refused(tmp_path: Path, rows: list[Any], said: str) -> None:
    items = pairs_of(tmp_path, 2)
    with pytest.raises(AssayError) as raised:
        recorded(tmp_path, items, "judgebench", *rows)
    assert said in str(raised.value)


def test_all_failed_is_an_error_not_a_zero(tmp_path: Path) -> None:
    items = pairs_of(tmp_path, 2)
    found = recorded(tmp_path, items, "judgebench", {"id": "u-0", "scores": [None, 1]})
    with pytest.raises(BadInputError, match=r"not one of the 2 items of JudgeBench has scores: 1 null, 1 missing"):
        report(benchmark("judgebench"), items.items, found.outcomes, model="m")


def test_ids_that_several_items_share(tmp_path: Path) -> None:
    """RM-Bench's parts number their prompts each on their own."""
    items = read(tmp_path, "rm-bench", RM, {**RM, "domain": "code"}, {**RM, "id": 9})
    assert [item.key for item in items.items] == ["chat/8", "code/8", "9"]
    one, two, three = [0] * 6, [1] * 6, [2] * 6
    by_key = recorded(
        tmp_path, items, "rm-bench",
        {"id": "code/8", "scores": two}, {"id": 9, "scores": three}, {"id": "chat/8", "scores": one},
    )  # fmt: skip
    by_domain = recorded(
        tmp_path, items, "rm-bench",
        {"id": 8, "domain": "code", "scores": two},
        {"id": 8, "domain": "chat", "scores": one},
        {"id": 9, "scores": three},
    )  # fmt: skip
    in_order = recorded(
        tmp_path, items, "rm-bench", {"id": 8, "scores": one}, {"id": 9, "scores": three}, {"id": 8, "scores": two}
    )
    all_named = recorded(
        tmp_path, items, "rm-bench",
        {"id": "code/8", "scores": two}, {"id": "chat/9", "scores": three}, {"id": "chat/8", "scores": one},
    )  # fmt: skip
    assert by_key.outcomes == by_domain.outcomes == in_order.outcomes == all_named.outcomes
    assert (by_key.in_order, by_domain.in_order, in_order.in_order) == (0, 0, 2)
    with pytest.raises(BadInputError, match=r"'8' is the id of 2 items, and 1 rows have it: .*chat/8, code/8"):
        recorded(tmp_path, items, "rm-bench", {"id": 8, "scores": one})


def test_decisions_and_the_official_result_files(tmp_path: Path) -> None:
    """`decisions` are in the item's own A and B; `judgments` are as the judge saw the pair, the second exchanged."""
    items = pairs_of(tmp_path, 2)  # both are labelled B>A
    ours = recorded(
        tmp_path,
        items,
        "judgebench",
        {"id": "u-0", "decisions": ["B>A", "B>A"]},
        {"id": "u-1", "decisions": ["A>B", None]},
    )
    theirs = recorded(
        tmp_path, items, "judgebench",
        {"pair_id": "u-0", "judgments": [{"decision": "B>A"}, {"decision": "A>B"}]},
        {"pair_id": "u-1", "judgments": [{"decision": "A>B"}, None]},
    )  # fmt: skip
    assert ours.outcomes == theirs.outcomes
    told = report(benchmark("judgebench"), items.items, ours.outcomes, model="judge")
    assert (told.aggregates["overall"], told.aggregates["game_1"], told.aggregates["consistent"]) == (0.5, 0.5, 0.5)
    assert told.counts["null_decisions"] == 1


def test_scores_by_side_follow_what_is_right_in_the_item(tmp_path: Path) -> None:
    """JudgeBench's A and B are in no order of merit: a perfect model is perfect whichever is right."""
    items = read(tmp_path, "judgebench", {**JB, "pair_id": "a", "label": "A>B"}, {**JB, "pair_id": "b"})
    rows = [{"id": id_, "score_chosen": 1, "score_rejected": 0} for id_ in "ab"]
    assert [o.scores for o in recorded(tmp_path, items, "judgebench", *rows).outcomes] == [(1.0, 0.0), (0.0, 1.0)]


def test_scores_by_side_as_rm_bench_writes_them(tmp_path: Path) -> None:
    items = read(tmp_path, "rm-bench", RM)
    found = recorded(tmp_path, items, "rm-bench", {"id": 8, "score_chosen": [1, 2, 3], "score_rejected": [4, 5, 6]})
    assert found.outcomes[0].scores == (1, 2, 3, 4, 5, 6)


def test_votes_of_people_against_a_reward_model(tmp_path: Path) -> None:
    """Four models with a clear order; a perfect reward model agrees in everything, its negative in nothing."""
    votes = []
    for n, (better, worse) in enumerate([("a", "b"), ("b", "c"), ("c", "d"), ("a", "c"), ("b", "d"), ("a", "d")] * 20):
        upset = n % 10 == 9
        side = n % 2
        models = (better, worse) if side == 0 else (worse, better)
        winner = "model_a" if (side == 0) != upset else "model_b"
        votes.append(
            {
                **VOTE,
                "question_id": f"v{n}",
                "prompt": f"p{n}",
                "model_a": models[0],
                "model_b": models[1],
                "winner": winner,
            }
        )
    votes.append({**VOTE, "question_id": "t", "prompt": "t", "model_a": "a", "model_b": "b", "winner": "tie (bothbad)"})
    items = read(tmp_path, "ppe", *votes)
    good = [{"id": i.id, "scores": list(i.gold)} for i in items.items]
    told = report(benchmark("ppe"), items.items, recorded(tmp_path, items, "ppe", *good).outcomes, model="m").aggregates
    bad = [{"id": i.id, "scores": [-g for g in i.gold]} for i in items.items]
    other = report(benchmark("ppe"), items.items, recorded(tmp_path, items, "ppe", *bad).outcomes, model="m").aggregates
    assert told["preference/accuracy"] == 1.0
    assert told["preference/row_pearson"] == told["preference/kendall_tau"] == pytest.approx(1.0)
    assert told["preference/spearman"] == pytest.approx(1.0)
    assert told["preference/confidence_agreement"] == told["preference/separability"]
    assert (told["preference/separability"] or 0) > 0
    assert (told["preference/brier"] or 0) < 0.05
    assert other["preference/accuracy"] == 0.0
    assert other["preference/kendall_tau"] == pytest.approx(-1.0)
    assert (other["preference/confidence_agreement"] or 0) < 0
    assert (other["preference/brier"] or 0) > 0.9


def test_lists_with_verified_answers(tmp_path: Path) -> None:
    items = read(tmp_path, "ppe", LIST)
    found = recorded(tmp_path, items, "ppe", {"id": "k", "scores": [0.1, 0.9, 0.5]})
    told = report(benchmark("ppe"), items.items, found.outcomes, model="m")
    a = told.aggregates
    assert (a["correctness/auc"], a["correctness/end_score"], a["correctness/regret"]) == (0.0, 0.0, 1.0)
    assert a["correctness/pair_accuracy"] == 0.0, "only the pair that the file names: response 1 over 2"
    assert a["correctness/max_score"] == pytest.approx(2 / 3)
    assert [p.gold for p in told.curves["correctness/gpqa"]] == pytest.approx([2 / 3, 1 / 3, 0.0])
    possible, picked = [2 / 3, 1.0, 1.0], [2 / 3, 1 / 3, 0.0]
    assert a["correctness/loss"] == pytest.approx(sum((x - y) ** 2 for x, y in zip(possible, picked, strict=True)) / 3)


def test_parts_that_have_no_value_do_not_take_the_others_with_them(tmp_path: Path) -> None:
    """Ties needs both rows of a prompt; a list that is all right has no pairs."""
    items = read(tmp_path, "rewardbench2", RB2, {**RB2, "id": "ref:1", "subset": "Ties"})
    rows = [{"id": item.id, "scores": [3, 1, 2, 0]} for item in items.items]
    found = recorded(tmp_path, items, "rewardbench2", *rows)
    told = report(benchmark("rewardbench2"), items.items, found.outcomes, model="m")
    assert (told.aggregates["overall"], told.aggregates["Focus"], told.aggregates["Ties"]) == (1.0, 1.0, None)
    assert told.aggregates["Ties/ref_accuracy"] == 1.0
    assert "Ties" in told.missing
    json.loads(json.dumps(told.to_dict()), parse_constant=lambda name: pytest.fail(name))

    items = read(tmp_path, "ppe", LIST, {**LIST, "question_id": "all", "domain": "math", "scores": [1, 1, 1]})
    rows = [{"id": item.id, "scores": [0.9, 0.1, 0.5]} for item in items.items]
    told = report(benchmark("ppe"), items.items, recorded(tmp_path, items, "ppe", *rows).outcomes, model="m")
    assert told.aggregates["correctness/math/pair_accuracy"] is None
    assert told.aggregates["correctness/pair_accuracy"] == told.aggregates["correctness/auc"] == 1.0
    json.loads(json.dumps(told.to_dict()), parse_constant=lambda name: pytest.fail(name))


# Whatever stands in a file: an item, an outcome, or one clear error.

ROWS: dict[str, dict[str, Any]] = {
    "rewardbench": RB1,
    "rewardbench2": RB2,
    "rm-bench": RM,
    "judgebench": JB,
    "rmb": RMB_LIST,
    "ppe": LIST,
    "pairs": PAIR,
}
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(ROWS)), data=st.data())
def test_any_value_in_any_field_is_an_item_or_a_clear_error(name: str, data: st.DataObject) -> None:
    row = dict(ROWS[name])
    field = data.draw(st.sampled_from(sorted(row)))
    row[field] = data.draw(anything)
    complaint, item = "", None
    try:
        item = benchmark(name).read(Record("f.jsonl", 3, row))
    except AssayError as error:
        complaint = str(error)
    assert item is None or len(item.gold) == len(item.responses) > 0
    assert not complaint or complaint.startswith("f.jsonl, row 3")


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    row=st.dictionaries(
        st.sampled_from(["id", "pair_id", "scores", "decisions", "judgments", "error", "score_chosen", "truncated"]),
        anything | st.just("u-0") | st.lists(st.floats(), min_size=2, max_size=2),
    )
)
def test_any_recorded_row_is_an_outcome_or_a_clear_error(tmp_path: Path, row: dict[str, Any]) -> None:
    items = pairs_of(tmp_path, 1)
    complaint, found = "", None
    try:
        found = recorded(tmp_path, items, "judgebench", row)
    except AssayError as error:
        complaint = str(error)
    assert not complaint or str(tmp_path / "scores.jsonl") in complaint
    if found is not None:
        (outcome,) = found.outcomes
        assert (outcome.failure is None) == (outcome.scores is not None or outcome.decisions is not None)
        assert all(math.isfinite(score) for score in outcome.scores or ())
