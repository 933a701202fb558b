"""Rows of the scalar family: votes and ties, ranked lists and how comparisons become them, ratings, labelled steps."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.snapshots import Selection, create_snapshot
from assay.data.voted_pairs import Outcome, VotedPair, Votes, load_voted_pairs, read_voted_pairs
from assay.domain import Message
from assay.errors import BadInputError, NotFoundError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.store.intake import pair_schema, store_pairs
from assay.workspace import Workspace
from assay_rm_training.data.pair_dataset import labelled_pairs
from assay_rm_training.data.ranked_lists import RankedList, lists_of, load_ranked_lists, read_ranked_lists
from assay_rm_training.data.response_labels import load_ratings, load_steps
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.methods.multi_objective import MultiObjective
from assay_rm_training.methods.principle import Principle
from assay_rm_training.methods.ranked_lists import RankedLists
from assay_rm_training.objectives.objective import Objective
from assay_rm_training.preference.critique import Cloud, CritiqueSft
from assay_rm_training.preference.pairs import Dpo
from assay_rm_training.preference.unpaired import Sft

PROMPT = (Message("user", "q"),)


def rows(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_votes_of_every_form(tmp_path: Path) -> None:
    said = [{"annotator": f"p{n}", "value": v} for n, v in enumerate(("A", "A", "B", "tie", "skip"))]
    found = read_voted_pairs(
        rows(
            tmp_path / "votes.jsonl",
            {"prompt": "q", "chosen": "a", "rejected": "b", "votes": {"chosen": 3, "tie": 1}, "margin": 2},
            {"prompt": "q", "chosen": "b", "rejected": "a", "responses": ["a", "b"], "ratings": {"votes": said}},
            {"prompt": "q", "chosen": None, "rejected": None, "responses": ["c", "d"], "ratings": {"votes": said}},
            {"prompt": "q", "responses": ["c", "e"], "label": "tie"},
            {"prompt": "q", "responses": ["c", "f"], "ratings": {"scores": [1, 2]}},
            {"prompt": "q", "responses": ["c", "g"], "ratings": {"gold": "A"}},
            {"prompt": "q", "responses": ["one only"]},
        )
    )
    assert [(p.first, p.label, p.votes) for p in found] == [
        ("a", "first", Votes(3, 0, 1)),
        ("b", "first", Votes(1, 2, 1)),  # their A is the rejected side
        ("c", None, Votes(2, 1, 1)),
        ("c", "tie", Votes(0, 0, 1)),
        ("c", "second", Votes(0, 1, 0)),
        ("c", "first", Votes(1, 0, 0)),
    ]
    assert found[0].margin == 2


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"prompt": "q", "chosen": "a", "rejected": "b", "votes": {"up": 1}}, "votes"),
        ({"prompt": "q", "chosen": "a", "rejected": "b", "votes": {"chosen": -1}}, "votes"),
        ({"prompt": "q", "chosen": "a", "rejected": "b", "votes": {"chosen": "many"}}, "votes"),
        ({"prompt": "q", "responses": ["a", "b"], "label": "C"}, "label"),
        ({"prompt": "q", "responses": ["a", "b"], "ratings": {"votes": [{"value": "Z"}]}}, "ratings.votes"),
    ],
)
def test_bad_votes_name_row_and_field(record: dict[str, Any], field: str, tmp_path: Path) -> None:
    good = {"prompt": "q", "chosen": "a", "rejected": "b"}
    with pytest.raises(BadInputError) as caught:
        read_voted_pairs(rows(tmp_path / "bad.jsonl", good, record))
    assert (caught.value.row, caught.value.field) == (2, field)


def test_labels_of_pairs() -> None:
    voted = [
        VotedPair(PROMPT, "a", "b", "second", Votes(1, 4, 0)),
        VotedPair(PROMPT, "a", "c", "tie", Votes(2, 1, 1)),
        VotedPair(PROMPT, "a", "d", None, Votes(0, 2, 0)),
        VotedPair(PROMPT, "a", "e", "first", Votes(1, 3, 0)),  # the votes speak against the label
    ]
    plain = labelled_pairs(voted, soft=False)
    assert [(p.chosen, p.rejected, p.preference, p.tie) for p in plain] == [
        ("b", "a", 1.0, False),
        ("a", "c", 1.0, True),
        ("a", "e", 1.0, False),
    ]
    soft = labelled_pairs(voted, soft=True, prior=0.5)
    described: list[Any] = [(p.chosen, p.preference, p.tie) for p in soft]
    assert described == [
        ("b", pytest.approx(4.5 / 6), False),
        ("a", pytest.approx(3 / 5), True),
        ("a", pytest.approx(0.5 / 3), True),
        ("a", pytest.approx(1.5 / 5), False),
    ]


def vote(kind: str, voter: str, label: str) -> dict[str, Any]:
    return {"kind": kind, "voter": voter, "label": label, "strength": None, "rationale": None}


def test_a_snapshot_gives_standing_votes_and_ties(workspace: Workspace) -> None:
    import pyarrow as pa

    from assay.runs.record import start_run

    people = [vote("human", "p1", "second"), vote("human", "p2", "second"), vote("llm", "m", "tie")]
    base = {"source": "s", "category": None, "license": None, "language": None, "meta": None}
    records = [
        {"row": 1, "first": "x", "second": "y", "label": "first", "votes": people},
        {"row": 2, "first": "x", "second": "z", "label": "tie", "votes": []},
    ]
    schema = pair_schema()
    full = [
        {name: ({**base, "messages": [{"role": "user", "content": "q"}], **record}).get(name) for name in schema.names}
        for record in records
    ]
    for number, row in enumerate(full):
        row["record_id"] = str(number)
    with start_run(workspace, "import", {}) as run, workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(full, schema=schema), run.id)
    create_snapshot(workspace, "all", Selection(), None)
    found = {frozenset((p.first, p.second)): p for p in load_voted_pairs(workspace, "all")}
    decided, tied = found[frozenset("xy")], found[frozenset("xz")]
    preferred = decided.first if decided.label == "first" else decided.second
    assert preferred == "x"  # the label is the source's
    for_y = decided.votes.first if decided.first == "y" else decided.votes.second
    assert (for_y, decided.votes.ties, decided.votes.total) == (2, 1, 3)  # the source's label is no further vote
    assert (tied.label, tied.votes) == ("tie", Votes(0, 0, 1))
    assert sorted(len(found.responses) for found in load_ranked_lists(workspace, "all")) == [2, 2]


def pair(first: str, second: str, label: Outcome | None, prompt: str = "q") -> VotedPair:
    return VotedPair((Message("user", prompt),), first, second, label, Votes(1))


def test_comparisons_become_lists() -> None:
    tournament = [pair("a", "b", "first"), pair("b", "c", "first"), pair("a", "c", "first")]
    (found,) = lists_of(tournament)
    assert dict(zip(found.responses, found.ranks, strict=True)) == {"a": 1, "b": 2, "c": 3}
    (tied,) = lists_of([pair("a", "b", "tie"), pair("c", "b", "first"), pair("a", "c", "second")])
    assert dict(zip(tied.responses, tied.ranks, strict=True)) == {"c": 1, "a": 2, "b": 2}
    circle = lists_of([pair("a", "b", "first"), pair("b", "c", "first"), pair("c", "a", "first")])
    assert sorted(len(part.responses) for part in circle) == [2, 2, 2]
    chain = lists_of([pair("a", "b", "first"), pair("b", "c", "first")])  # a and c were not compared
    assert sorted(len(part.responses) for part in chain) == [2, 2]
    assert len(lists_of([pair("a", "b", "first"), pair("a", "b", "first", prompt="other"), pair("a", "c", None)])) == 2


@given(st.dictionaries(st.tuples(st.integers(0, 6), st.integers(0, 6)), st.sampled_from(["first", "second", "tie"])))
def test_lists_say_what_the_comparisons_say_and_no_more(outcomes: dict[tuple[int, int], Outcome]) -> None:
    compared = {(i, j): label for (i, j), label in outcomes.items() if i < j}
    said = []
    for found in lists_of([pair(str(i), str(j), label) for (i, j), label in compared.items()]):
        numbered = [(int(str(text)), rank) for text, rank in zip(found.responses, found.ranks, strict=True)]
        for i, rank in numbered:
            for j, other in numbered:
                if i < j:
                    said.append(((i, j), "first" if rank < other else ("second" if rank > other else "tie")))
    assert len(said) == len(compared)
    assert dict(said) == compared


def test_lists_of_a_file(tmp_path: Path) -> None:
    found = read_ranked_lists(
        rows(
            tmp_path / "lists.jsonl",
            {"prompt": "q", "responses": ["a", "b", "c"], "ranks": [3, 1, 3]},
            {"prompt": "q", "responses": ["a", "b", "d"], "scores": [0.5, 2, -1]},
            {"prompt": "q", "responses": ["a", "b", "e"], "ratings": {"scores": [{"overall": 1}, {"overall": 3}, 2]}},
        )
    )
    assert [row.ranks for row in found] == [(2, 1, 2), (2, 1, 3), (3, 1, 2)]
    grouped = read_ranked_lists(
        rows(tmp_path / "pairs.jsonl", *({"prompt": "q", "chosen": c, "rejected": r} for c, r in ("ab", "bc", "ac")))
    )
    assert [row.responses for row in grouped] == [("a", "b", "c")]
    for bad, field in (
        ({"prompt": "q", "responses": ["a", "b"], "ranks": [1, 2, 3]}, "responses"),
        ({"prompt": "q", "responses": ["a", "b", "a"], "ranks": [1, 2, 3]}, None),
        ({"prompt": "q", "responses": ["a", "b", "c"], "ranks": [1, 2, "x"]}, "ranks"),
    ):
        first = {"prompt": "q", "responses": ["a", "b", "c"], "ranks": [1, 2, 3]}
        with pytest.raises(BadInputError) as caught:
            read_ranked_lists(rows(tmp_path / "bad.jsonl", first, bad))
        assert caught.value.row == 2
        assert field is None or caught.value.field == field
    with pytest.raises(BadInputError, match="at most 16"):
        RankedList(PROMPT, tuple(map(str, range(17))), tuple(range(17)))


@pytest.mark.parametrize("field", ["ranks", "scores"])
def test_a_first_list_of_two_hides_no_longer_one(field: str, tmp_path: Path) -> None:
    """A row of two responses that states an order is a list like any other: nothing behind it is skipped."""
    two = {"prompt": "q", "responses": ["a", "b"], field: [2, 1]}
    three = {"prompt": "q", "responses": ["c", "d", "e"], field: [1, 2, 3]}
    found = read_ranked_lists(rows(tmp_path / "lists.jsonl", two, three))
    assert [len(one.responses) for one in found] == [2, 3]
    best = [one.responses[one.ranks.index(1)] for one in found]
    assert best == (["b", "c"] if field == "ranks" else ["a", "e"])


def test_soft_labels_without_votes_say_so(caplog: pytest.LogCaptureFixture) -> None:
    voted = [VotedPair(PROMPT, "a", "b", "first", Votes(1, 0, 0))]
    assert labelled_pairs(voted, soft=True)[0].preference == 0.75
    assert "no comparison has more than one vote" in caplog.text
    caplog.clear()
    labelled_pairs([*voted, VotedPair(PROMPT, "a", "c", "first", Votes(2, 1, 0))], soft=True)
    assert not caplog.text


def test_ratings_of_a_file(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    found = load_ratings(
        rows(
            tmp_path / "r.jsonl",
            {"prompt": "q", "response": "a", "ratings": {"depth": 3, "tone": 0, "none": None}},
            {"prompt": "q", "responses": ["a"], "ratings": {"aspects": {"depth": 4.5}}},
            {"prompt": "q", "responses": ["a", "b"], "ratings": {"scores": [{"depth": 1}, {"depth": 2}]}},
            {"prompt": talk, "ratings": {"scores": {"depth": 5}}},
            {"prompt": "q", "responses": ["a"], "ratings": {}},
        ),
        missing=0,
    )
    assert [(row.response, dict(row.ratings)) for row in found] == [
        ("a", {"depth": 3}),
        ("a", {"depth": 4.5}),
        ("a", {"depth": 1}),
        ("b", {"depth": 2}),
        ("hello", {"depth": 5}),
    ]
    assert list(found)[-1].prompt == (Message("user", "hi"),)
    with pytest.raises(BadInputError, match=r"row 1, field 'ratings.depth': not a number"):
        load_ratings(rows(tmp_path / "bad.jsonl", {"prompt": "q", "response": "a", "ratings": {"depth": "high"}}))
    with pytest.raises(NotFoundError, match="ratings are read from files"):
        load_ratings("gold")


def test_steps_of_a_file(tmp_path: Path) -> None:
    found = load_steps(
        rows(
            tmp_path / "s.jsonl",
            {"prompt": "q", "steps": ["one", "two"], "labels": [True, 0.25]},
            {"prompt": "q", "completions": ["one", "two"], "labels": [None, False]},
            {"prompt": "q", "steps": ["one"], "labels": [None]},
            {"prompt": "q", "steps": [], "labels": []},
            {
                "prompt": "q",
                "steps": ["one", "two"],
                "labels": [{"correct": n, "tried": 8} for n in (3, 0)],
            },
        )
    )
    assert {row.steps for row in found} == {("one", "two")}
    assert [row.labels for row in found] == [(1.0, 0.25), (None, 0.0), (0.375, 0.0)]  # 3 of 8
    for bad, field in (
        ({"prompt": "q", "steps": "a", "labels": []}, "steps"),
        ({"prompt": "q", "steps": ["a"], "labels": [True, False]}, "labels"),
        ({"prompt": "q", "steps": ["a"], "labels": [2]}, "labels"),
        ({"prompt": "q", "steps": [" "], "labels": [1]}, "steps"),
        ({"prompt": "q", "steps": ["a"], "labels": [{"correct": 9, "tried": 8}]}, "labels"),
        ({"prompt": "q", "steps": ["a"], "labels": [{"correct": 0, "tried": 0}]}, "labels"),
    ):
        with pytest.raises(BadInputError) as caught:
            load_steps(rows(tmp_path / "bad.jsonl", bad))
        assert (caught.value.row, caught.value.field) == (1, field)


READERS: dict[str, tuple[str, Callable[[Path], Any], int]] = {
    "votes of UKP": ("ukpconvarg1_pairs", read_voted_pairs, 12_656),
    "ties of WebGPT": ("webgpt_comparisons_test", read_voted_pairs, 901),
    "lists of fine-grained QA": ("fgrlhf_qa_dev_pairs", read_ranked_lists, 457),
    "aspects": ("justeval_gpt4_aspect_ratings", load_ratings, 3759),
    "rubric": ("llm_rubric_real", load_ratings, 223),
}


@pytest.mark.parametrize("name", READERS)
def test_published_sets(name: str, shared_data: Path) -> None:
    stem, read, expected = READERS[name]
    path = shared_data / f"{stem}.jsonl.gz"
    with gzip.open(path) as stream:
        assert stream.readline()
    assert len(read(path)) == expected


def test_demonstrations_are_first_and_equal_samples_count_once(tmp_path: Path) -> None:
    path = rows(tmp_path / "shown.jsonl", SHOWN, {**SHOWN, "samples": ["a", "a"]})
    [only] = read_ranked_lists(path)
    assert (only.responses, only.ranks) == (("a", "b", "c"), (1, 2, 2))
    for fault in ({"demonstration": ["a"]}, {"samples": [["b"]]}, {"samples": "b"}):
        with pytest.raises(BadInputError, match=f"row 1, field '{next(iter(fault))}'"):
            read_ranked_lists(rows(path, SHOWN | fault))


PAIR = {"prompt": "q", "chosen": "good", "rejected": "bad"}
RATED = {"prompt": "q", "response": "good", "ratings": {"depth": 1}}
ASKED = {"prompt": "q", "response": "good", "principle": "p", "fulfilment": "yes"}
CRITICISED = {"prompt": "q", "response": "good", "critique": "fine"}
SHOWN = {"prompt": "q", "demonstration": "a", "samples": ["b", "c", "b"]}
LIST = {"prompt": "q", "responses": ["a", "b", "c"], "ranks": [1, 2, 3]}
TURNS = [{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}]


@pytest.mark.parametrize(
    ("method", "good", "empty", "reason"),
    [
        (BradleyTerry(), PAIR, {**PAIR, "chosen": ""}, "chosen is empty"),
        (BradleyTerry(), PAIR, {**PAIR, "rejected": " \n"}, "rejected is empty"),
        (BradleyTerry(), PAIR, {**PAIR, "chosen": "", "rejected": ""}, "chosen is empty"),
        (BradleyTerry(), PAIR, {"chosen": [TURNS[0], {**TURNS[1], "content": "x"}], "rejected": TURNS},
         "rejected is empty"),
        (BradleyTerry(), PAIR, {"chosen": "\n\nAssistant: x", "rejected": "\n\nAssistant:"}, "rejected is empty"),
        (BradleyTerry(Objective(soft_labels=True)), PAIR, {**PAIR, "rejected": ""}, "rejected is empty"),
        (RankedLists(), LIST, {**LIST, "responses": ["a", "", "c"]}, "a response is empty"),
        (RankedLists(), SHOWN, {**SHOWN, "demonstration": ""}, "a response is empty"),
        (MultiObjective(("depth",)), RATED, {**RATED, "response": ""}, "a response is empty"),
        (Principle(), ASKED, {**ASKED, "response": ""}, "the response is empty"),
        (Sft(), {"prompt": "q", "completion": "a"}, {"prompt": "q", "completion": ""}, "a response is empty"),
        (Dpo(), PAIR, {**PAIR, "chosen": ""}, "chosen is empty"),
        (Cloud(max_new_tokens=8), PAIR, {**PAIR, "rejected": " "}, "rejected is empty"),
        (CritiqueSft(), CRITICISED, {**CRITICISED, "response": ""}, "a response is empty"),
    ],
)  # fmt: skip
def test_an_empty_response_costs_its_row_and_is_counted(
    method: Any, good: dict[str, Any], empty: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    data = method.read(None, str(rows(tmp_path / "rows.jsonl", good, empty)))
    base = "smollm2" if isinstance(method, Principle) else "tiny"  # whose tokenizer has Yes and No
    encoded = method.encode(data, Renderer(load_tokenizer(base), max_length=512))
    assert (len(encoded), encoded.left_out) == (1, {reason: 1})
