"""Contamination: n-grams against a plain count, planted overlaps all found, near misses not, the ledger and waivers."""

from __future__ import annotations

import gzip
import json
import re
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from empty_workspaces import new_workspace
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay.compute.local import LocalExecutor
from assay.compute.stage import FOLDER
from assay.data.snapshots import POOLS, Selection, create_snapshot
from assay.domain import Message, PreferencePair
from assay.errors import BadInputError, NotFoundError
from assay.runs.contamination_gate import (
    BenchmarkState,
    benchmarks_in,
    contamination_of,
    record_waivers,
    require_clean,
)
from assay.store.intake import pair_schema, store_pairs
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.hygiene.contamination.benchmarks import (
    add_benchmark,
    first_prompt,
    list_benchmarks,
    responses_of,
)
from assay_pipelines.hygiene.contamination.candidates import EvidenceCandidates
from assay_pipelines.hygiene.contamination.check import CheckConfig, CheckReport, check_benchmarks, discard_overlaps
from assay_pipelines.hygiene.contamination.jobs import Matching
from assay_pipelines.hygiene.contamination.ledger import evidence, ledger
from assay_pipelines.hygiene.tokens import Unit, ngrams, normalised, tokenise, whole_texts, words_of

EVERYTHING = Selection(POOLS)


def put(workspace: Workspace, *prompts: Any, run_id: str | None = None) -> None:
    rows = [
        {
            "row": number,
            "messages": prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}],
            "first": f"good {number}",
            "second": f"bad {number}",
            "label": "first",
            "source": "test",
            "record_id": str(number),
        }
        for number, prompt in enumerate(prompts)
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), run_id)


def register(workspace: Workspace, tmp_path: Path, name: str, *prompts: str) -> None:
    path = tmp_path / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    add_benchmark(workspace, name, path, None)


def check(workspace: Workspace, run_id: str = "run-1", **options: Any) -> list[CheckReport]:
    return check_benchmarks(workspace, CheckConfig(**options), run_id, page=7)


def hits(workspace: Workspace) -> list[tuple[Any, ...]]:
    with workspace.store.unit() as db:
        return db.execute(
            """SELECT m.messages[1].content, h.turn, h."position", h.overlap, h.ngrams
               FROM contamination_hits h JOIN prompts m USING (prompt_id) ORDER BY ALL"""
        ).fetchall()


def words(low: int, high: int) -> str:
    return " ".join(f"word{n}" for n in range(low, high))


def plain_words(text: str) -> list[str]:
    """The rule of the module once more, by Python's own means."""
    visible = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    lowered = unicodedata.normalize("NFKC", visible.replace("І", "i")).lower()
    kept = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in lowered)
    return kept.split()


# Without letters whose lower case differs between Unicode libraries' ages; those with several parts are in.
texts = st.text(
    st.one_of(
        st.characters(codec="ascii"),
        st.sampled_from("éÉüßñçІйمن你好世界かな한글ｅ\u0301\u200b\u00a0\u3000¼²🙂—"),
    ),
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(texts, max_size=6))
@example(["A\u200b\u0301"])  # an invisible character between a letter and its accent
def test_words_are_those_of_the_rule(some: list[str]) -> None:
    found = words_of(normalised(pa.array(some, pa.string()))).to_list()
    assert found == [plain_words(text) for text in some]
    assert tokenise(pa.array(some, pa.string())).counts.tolist() == [len(w) for w in found]
    by_character = tokenise(pa.array(some, pa.string()), "character")
    assert by_character.counts.tolist() == [len("".join(w)) for w in found]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=7).map(" ".join), max_size=8),
    st.integers(1, 4),
    st.sampled_from(["word", "character"]),
)
def test_ngrams_are_equal_exactly_where_the_words_are(some: list[str], n: int, unit: Unit) -> None:
    tokens = tokenise(pa.array(some, pa.string()), unit)
    for short in (False, True):
        grams = ngrams(tokens, n, short=short)
        plain: list[tuple[str, ...]] = []
        for text in some:
            parts = text.split()
            runs = [tuple(parts[i : i + n]) for i in range(len(parts) - n + 1)]
            plain += runs or ([tuple(parts)] if short and parts else [])
        assert len(grams.hashes) == len(plain)
        pairs = set(zip(grams.hashes.tolist(), plain, strict=True))
        assert len(pairs) == len(set(grams.hashes.tolist())) == len(set(plain))
    whole = set(zip(whole_texts(tokens).tolist(), (tuple(text.split()) for text in some), strict=True))
    assert len(whole) == len({h for h, _ in whole}) == len({w for _, w in whole})


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=12).map(" ".join), min_size=1, max_size=12))
def test_what_overlaps_is_what_a_plain_search_finds(tmp_path_factory: pytest.TempPathFactory, some: list[str]) -> None:
    folder = tmp_path_factory.mktemp("overlap")
    workspace = new_workspace(folder / "ws")
    benchmark, training = some[::2], some[1::2]
    register(workspace, folder, "b", *benchmark)
    put(workspace, *training)
    check(workspace, ngram=4, containment=0)

    def plain(text: str) -> bool:
        mine = f" {text} "
        for other in benchmark:
            parts = other.split()
            runs = [" ".join(parts[i : i + 4]) for i in range(len(parts) - 3)]
            if any(f" {run} " in mine for run in runs) or (not runs and other == text):
                return True
        return False

    assert {row[0] for row in hits(workspace)} == {text for text in training if plain(text)}


def test_planted_overlaps_are_found_and_near_misses_are_not(workspace: Workspace, tmp_path: Path) -> None:
    register(workspace, tmp_path, "b", words(0, 40), words(100, 113), "Say hello, please!")
    planted = [f"Before {n}: {words(n, n + 13).upper().replace(' ', ' -- ')}?! after" for n in range(28)]
    planted += [f"x {words(100, 113)}", "say  HELLO please"]
    near = [f"before {words(n, n + 12)} and {words(n + 13, n + 25)}" for n in range(15)]
    near += [words(100, 112), "say hello please now", "say hello"]
    put(workspace, *planted, *near)
    (report,) = check(workspace, containment=0)
    assert (report.hits, report.comparisons, report.prompts) == (len(planted), len(planted), len(planted) + len(near))
    found = {text: (turn, position, overlap, n) for text, turn, position, overlap, n in hits(workspace)}
    assert set(found) == set(planted)
    assert found[planted[3]] == (1, 3, words(3, 16), 1)
    assert found["say  HELLO please"] == (1, 1, "say hello please", 0)
    assert discard_overlaps(workspace, [report], CheckConfig(), EVERYTHING, "run-1") == {"b": len(planted)}
    with workspace.store.unit() as db:
        reasons = [row[0] for row in db.execute("SELECT reason FROM pools WHERE pool = 'discarded'").fetchall()]
    assert len(reasons) == len(planted)
    assert all(
        re.match(r'turn 1(, from word \d+ on, shares 13 words with| is) prompt p-\w+ of b: ".+"$', r) for r in reasons
    )


def test_every_turn_counts_and_characters_serve_other_scripts(workspace: Workspace, tmp_path: Path) -> None:
    register(workspace, tmp_path, "zh", "今天天气很好我们去公园散步吧朋友们")
    chat = [
        {"role": "user", "content": "你好"},
        {"role": "assistant", "content": "请说"},
        {"role": "user", "content": "他说，今天天气很好，我们去公园散步。"},
    ]
    put(workspace, chat, "今天天气不好")
    (report,) = check(workspace, ngram=10, unit="character")
    assert report.hits == 1
    assert hits(workspace) == [("你好", 3, 3, "今天天气很好我们去公", 4)]
    assert check(workspace, "run-2", ngram=14, unit="character", containment=0)[0].hits == 0


@pytest.mark.slow
def test_pools_limit_what_is_discarded_and_what_is_put_back_stays(workspace: Workspace, tmp_path: Path) -> None:
    register(workspace, tmp_path, "b", words(0, 20))
    put(workspace, words(0, 20), words(5, 20))
    with workspace.store.unit() as db:
        first = db.execute("SELECT comparison_id FROM comparisons ORDER BY 1").fetchall()[0][0]
        insert_decisions(db, [Decision(first, "gold", "A", "vote", "unanimous")], None)
    reports = check(workspace)
    assert discard_overlaps(workspace, reports, CheckConfig(), Selection(), "run-1") == {"b": 2}, "gold leaks too"
    assert discard_overlaps(workspace, reports, CheckConfig(), Selection(), "run-1") == {"b": 0}
    with workspace.store.unit() as db:
        insert_decisions(db, [Decision(first, "silver", "A", "review", "not the same question")], None)
    assert discard_overlaps(workspace, check(workspace, "run-2"), CheckConfig(), Selection(), "run-2") == {"b": 0}


@pytest.mark.slow
def test_the_ledger_knows_what_was_imported_since(workspace: Workspace, tmp_path: Path) -> None:
    put(workspace, words(0, 20), words(50, 70), run_id="import-1")
    train = create_snapshot(workspace, "train", Selection(), None)
    assert contamination_of(workspace, train.id) == [], "nothing is registered: nothing to ask for"
    register(workspace, tmp_path, "clean", words(200, 220))
    register(workspace, tmp_path, "leaks", words(0, 20))
    assert [s.state for s in contamination_of(workspace, train.id)] == ["not_checked"] * 2
    check(workspace, benchmarks=("clean",))
    clean, leaks = contamination_of(workspace, train.id)
    assert (clean.state, clean.ngram, clean.unit, clean.run_id) == ("clean", 13, "word", "run-1")
    assert leaks.state == "not_checked"
    reports = check(workspace, "run-2")
    clean, leaks = contamination_of(workspace, train.id)
    assert (clean.run_id, leaks.state, leaks.overlaps) == ("run-2", "overlaps", 1)
    discard_overlaps(workspace, reports, CheckConfig(), EVERYTHING, "run-2")
    again = create_snapshot(workspace, "again", Selection(), None)
    assert [s.state for s in contamination_of(workspace, again.id)] == ["clean", "clean"]
    put(workspace, words(70, 90), run_id="import-2")
    assert [s.state for s in contamination_of(workspace, again.id)] == ["clean", "clean"], "not of this snapshot"
    wider = create_snapshot(workspace, "wider", Selection(), None)
    assert [s.state for s in contamination_of(workspace, wider.id)] == ["not_checked"] * 2
    put(workspace, words(30, 50), run_id="import-1")
    assert [s.state for s in contamination_of(workspace, again.id)] == ["not_checked"] * 2, "its import went on"
    check(workspace, "run-3")
    assert [s.state for s in contamination_of(workspace, wider.id)] == ["clean", "clean"]


@pytest.mark.slow
def test_waivers_are_asked_for_and_recorded(workspace: Workspace, tmp_path: Path) -> None:
    put(workspace, words(0, 20))
    register(workspace, tmp_path, "b", words(0, 20))
    train = create_snapshot(workspace, "train", Selection(), None)
    states = contamination_of(workspace, train.id)
    with pytest.raises(BadInputError, match="'train' is not checked against benchmark 'b'; run: assay data decontam"):
        require_clean(states, {}, data="snapshot 'train'", snapshot=True)
    check(workspace)
    states = contamination_of(workspace, train.id)
    with pytest.raises(BadInputError, match=r"has 1 overlaps with benchmark 'b'.*--waive-contamination b=REASON"):
        require_clean(states, {}, data="snapshot 'train'", snapshot=True)
    with pytest.raises(BadInputError, match="needs a reason"):
        require_clean(states, {"b": " "}, data="train", snapshot=True)
    with pytest.raises(BadInputError, match=r"cannot waive 'c': not a registered benchmark \(b\)"):
        require_clean(states, {"c": "why"}, data="train", snapshot=True)
    with pytest.raises(BadInputError, match=r"only snapshots are: assay data import FILE, .* and then --data NAME"):
        require_clean(contamination_of(workspace, None), {}, data="file", snapshot=False)
    waived = require_clean(states, {"b": " an old run "}, data="train", snapshot=True)
    record_waivers(workspace, "run-9", train.id, waived)
    (state,) = contamination_of(workspace, train.id, run_id="run-9")
    assert str(state) == "b: 1 overlaps (13 words, run-1), waived: an old run"
    clean = [BenchmarkState("b", "h", "clean", 0, 13, "word", "run-1")]
    assert require_clean(clean, {"b": "not needed"}, data="train", snapshot=True) == clean


def test_what_is_evaluated_is_known_by_its_prompts(workspace: Workspace, tmp_path: Path) -> None:
    register(workspace, tmp_path, "b", "one?", "two?")
    system, answer, second = Message("system", "s"), Message("assistant", "x"), Message("user", "y")
    pairs = [
        PreferencePair((system, Message("user", text), answer, second), "a", "b") for text in ("one?", "one?", "three?")
    ]
    assert benchmarks_in(workspace, pairs) == {"b": 1}
    assert benchmarks_in(workspace, []) == {}


@pytest.mark.parametrize(
    ("record", "prompt"),
    [
        ({"prompt": "p", "chosen": "c"}, "p"),
        ({"question": "q", "response_A": "a"}, "q"),
        ({"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}, "u"),
        ({"conversations": [{"from": "human", "value": "h"}]}, "h"),
        ({"turns": ["first", "second"]}, "first"),
        ({"chosen": "\n\nHuman: hello\nthere\n\nAssistant: hi\n\nHuman: no"}, "hello\nthere"),
        ({"chosen": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]}, "u"),
    ],
)
def test_the_first_turn_of_the_publishers_shapes(record: dict[str, Any], prompt: str) -> None:
    assert first_prompt(record) == prompt


def test_registering_is_idempotent_and_names_what_is_wrong(workspace: Workspace, tmp_path: Path) -> None:
    array = tmp_path / "array.json.gz"
    array.write_bytes(gzip.compress(json.dumps([{"prompt": "one"}, {"prompt": "two"}, {"prompt": "one"}]).encode()))
    made = add_benchmark(workspace, "b", array, None)
    assert (made.prompts, made.rows, made.created) == (2, 3, True)
    lines = tmp_path / "same.txt"
    lines.write_text("two\none\n")
    assert not add_benchmark(workspace, "b", lines, None).created, "the same prompts, in another file and order"
    assert [b.name for b in list_benchmarks(workspace)] == ["b"]

    def fails(content: str, message: str, name: str = "c", field: str | None = None) -> None:
        path = tmp_path / "bad.jsonl"
        path.write_text(content)
        with pytest.raises(BadInputError, match=message):
            add_benchmark(workspace, name, path, None, field=field)

    fails('{"prompt": "other"}\n', "exists with other prompts", name="b")
    fails('{"prompt": "other"}\n', "is not a benchmark name", name="../x")
    fails('{"prompt": "x"}\n{"foo": 1}\n', r"row 2: no prompt among the fields foo; name one with --field")
    fails('{"prompt": "x"}\n', "row 1, field 'q': no such field; there are prompt", field="q")
    fails('{"prompt": " "}\n', "row 1: the prompt has no text")
    fails('{"prompt": {"a": 1}}\n', "field 'prompt': neither a text nor a list of messages")
    fails("{broken\n", "row 1")
    fails("", "holds no prompt")
    with pytest.raises(BadInputError, match="no such file"):
        add_benchmark(workspace, "c", tmp_path / "none", None)
    with pytest.raises(NotFoundError, match="no benchmark 'x'; there are: b"):
        check(workspace, benchmarks=("x",))
    with pytest.raises(BadInputError, match="unknown unit"):
        CheckConfig(unit="token")  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="at least 1"):
        CheckConfig(ngram=0)


def test_nothing_to_check_against(workspace: Workspace) -> None:
    with pytest.raises(NotFoundError, match="no benchmark is registered"):
        check(workspace)


def test_an_empty_store_is_checked_too(workspace: Workspace, tmp_path: Path) -> None:
    register(workspace, tmp_path, "b", "one")
    (report,) = check(workspace)
    assert (report.prompts, report.hits) == (0, 0)


@pytest.mark.slow
def test_a_laxer_check_does_not_clear_what_a_strict_one_found(workspace: Workspace, tmp_path: Path) -> None:
    put(workspace, words(0, 20), run_id="import-1")
    train = create_snapshot(workspace, "train", Selection(), None)
    register(workspace, tmp_path, "leaks", words(0, 20))
    check_benchmarks(workspace, CheckConfig(ngram=60), "run-lax")
    (lax,) = contamination_of(workspace, train.id)
    assert (lax.run_id, lax.ngram) == ("run-lax", 60), "the only one there is"
    check(workspace, "run-strict")
    check_benchmarks(workspace, CheckConfig(ngram=60), "run-lax-again")
    (state,) = contamination_of(workspace, train.id)
    assert (state.state, state.overlaps, state.run_id) == ("overlaps", 1, "run-strict")


CARRIER = "my neighbour told me about his garden yesterday and asked what he should plant there in spring"
LEAK = "Natalia sold clips to 48 of her friends in April. How many clips did her sister Yasmin borrow?"
SHORT = "How do tardigrades survive in space?"
ANSWER = "Tardigrades enter cryptobiosis, replace their water by trehalose and repair their chromosomes afterwards."
LEAKED = {
    "embedded": f"{CARRIER}. {LEAK} {CARRIER}",
    "prefix in another language": f"Пожалуйста, ответьте подробно: {LEAK}",
    "changed name": LEAK.replace("Yasmin", "Oswin"),
    "changed number": LEAK.replace("48", "63"),
    "Markdown": "## Task\n> - **Natalia** sold [clips](https://a.example/b?c=d) to `48` of _her_ friends in April.\n"
    "- How many clips did her *sister* Yasmin borrow?",
    "zero-width characters": "\u200b".join(LEAK),
    "soft hyphens": LEAK.replace("fri", "f\u00adri").replace("cl", "c\u2060l"),
    "look-alikes": LEAK.replace("a", "а").replace("o", "о").replace("e", "е").replace("i", "і"),
    "full-width letters": "".join(chr(ord(c) + 0xFEE0) if c.isalpha() else c for c in LEAK),
    "short, embedded": f"{CARRIER}? {SHORT} {CARRIER}",
    "short, look-alikes": SHORT.replace("a", "а").replace("s", "ѕ"),
    "short, more words": f"Tell me please: {SHORT}",
}


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in ("changed name", "look-alikes") else pytest.param(kind, marks=pytest.mark.slow)
        for kind in LEAKED
    ],
)
def test_a_disguised_leak_is_found(kind: str, workspace: Workspace, tmp_path: Path) -> None:
    register(workspace, tmp_path, "b", LEAK, SHORT)
    put(workspace, LEAKED[kind], CARRIER, "How do whales sleep at night?", "Natalia has many friends.")
    (report,) = check(workspace)
    assert [row[0] for row in hits(workspace)] == [LEAKED[kind]]
    assert report.hits == 1


@pytest.mark.slow
def test_responses_are_checked_against_prompts_and_responses_of_a_benchmark(
    workspace: Workspace, tmp_path: Path
) -> None:
    path = tmp_path / "b.jsonl"
    path.write_text(json.dumps({"prompt": SHORT, "chosen": ANSWER, "rejected": "No."}) + "\n")
    assert add_benchmark(workspace, "b", path, None).responses == 2
    rows = {"leaked": (f"Well. {ANSWER}", "No."), "quoted": (f"You ask: {LEAK}", "no"), "clean": (CARRIER, "No.")}
    records = [
        {"row": n, "messages": [{"role": "user", "content": f"{name} one"}], "first": first, "second": second}
        | {"label": "first", "source": "test", "record_id": name}
        for n, (name, (first, second)) in enumerate(rows.items())
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(records, schema=pair_schema()), "import-1")
    register(workspace, tmp_path, "q", LEAK)
    reports = {report.benchmark: report for report in check(workspace)}
    assert {name: (r.hits, r.response_hits, r.comparisons, r.responses) for name, r in reports.items()} == {
        "b": (0, 1, 1, 6),
        "q": (0, 1, 1, 6),
    }
    assert discard_overlaps(workspace, list(reports.values()), CheckConfig(), EVERYTHING, "run-1") == {"b": 1, "q": 1}
    with workspace.store.unit() as db:
        reasons = db.execute(
            """SELECT o.record_id, d.reason FROM decisions d JOIN origins o USING (comparison_id) ORDER BY 1"""
        ).fetchall()
        (shown,), total = evidence(db, reports["b"].check_id, limit=5)
    assert [record for record, _ in reasons] == ["leaked", "quoted"]
    assert re.match(
        r'response r-\w+, from word 2 on, holds 100 % of a response to prompt p-\w+ of b: "t', reasons[0][1]
    )
    assert (total, shown.role, shown.part, shown.tier, shown.benchmark_text) == (
        1,
        "response",
        "response",
        "containment",
        ANSWER,
    )
    assert [one.pool for one in shown.comparisons] == ["discarded"]
    train = create_snapshot(workspace, "train", EVERYTHING, None)
    assert {s.benchmark: s.overlaps for s in contamination_of(workspace, train.id)} == {"b": 0, "q": 0}
    check(workspace, "run-2", responses=False, benchmarks=("b",))
    with workspace.store.unit() as db:
        (without,) = [c for b in ledger(db) if b.benchmark == "b" for c in b.checks if c.run_id == "run-2"]
    assert (without.hits, without.responses) == (0, None)


@pytest.mark.slow
def test_common_openings_are_no_evidence_but_prompts_held_in_full_are(workspace: Workspace, tmp_path: Path) -> None:
    opening = "I like to host guests at my home from time to time and I am gathering recipes. How do I cook"
    register(workspace, tmp_path, "b", f"{opening} bouillabaisse with saffron?", LEAK)
    dishes = [f"{opening} dish{n} with sauce{n}?" for n in range(12)]
    leaks = [f"{opening} bouillabaisse with saffron?", *(f"{CARRIER} {n} {LEAK}" for n in range(12))]
    put(workspace, *dishes, *leaks)
    check(workspace)
    assert {row[0] for row in hits(workspace)} == set(leaks)
    check(workspace, "run-plain", containment=0)
    assert {row[0] for row in hits(workspace)} == {*leaks, *dishes}, "the plain rule of shared runs"


def test_a_check_of_prompts_alone_says_nothing_about_later_responses(workspace: Workspace, tmp_path: Path) -> None:
    put(workspace, words(50, 70), run_id="import-1")
    train = create_snapshot(workspace, "train", Selection(), None)
    register(workspace, tmp_path, "b", words(0, 20))
    check(workspace)
    assert [s.state for s in contamination_of(workspace, train.id)] == ["clean"]
    with workspace.store.unit() as db:
        db.execute(
            """INSERT INTO responses (response_id, prompt_id, content, run_id)
               SELECT 'r-later', prompt_id, 'later', 'import-1' FROM prompts"""
        )
    assert [s.state for s in contamination_of(workspace, train.id)] == ["not_checked"], "its import went on"


@pytest.mark.slow
def test_similar_prompts_are_found_by_an_encoder_on_demand(workspace: Workspace, tmp_path: Path) -> None:
    register(workspace, tmp_path, "b", LEAK)
    reworded = "In April her friends bought clips from Natalia, 48 sold. Yasmin, sister: how many did she borrow?"
    put(workspace, reworded, CARRIER)
    assert check(workspace)[0].hits == 0
    (report,) = check(workspace, "run-2", encoder="hashing", similarity=0.5)
    assert (report.hits, report.tiers) == (1, {"embedding": 1})
    assert discard_overlaps(workspace, [report], CheckConfig(), EVERYTHING, "run-2") == {"b": 1}
    with workspace.store.unit() as db:
        (reason,) = db.execute("SELECT reason FROM decisions").fetchone() or ("",)
    assert re.match(r"turn 1 has an embedding of similarity 0\.\d+ to prompt p-\w+ of b", reason)


@pytest.mark.slow
def test_processes_find_what_this_process_finds_and_a_resumed_check_matches_nothing_twice(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(workspace, tmp_path, "b", LEAK, SHORT, words(0, 30))
    reworded = "In April her friends bought clips from Natalia, 48 sold. Yasmin, sister: how many did she borrow?"
    put(workspace, reworded, *(f"{CARRIER} {n} {LEAK}" for n in range(9)), *(words(n, n + 14) for n in range(20)))
    config = CheckConfig(encoder="hashing", similarity=0.5)

    def stored(run_id: str) -> list[tuple[Any, ...]]:
        with workspace.store.unit() as db:
            return db.execute(
                """SELECT h.* EXCLUDE (check_id), x.* EXCLUDE (check_id) FROM contamination_hits h
                   JOIN contamination_checks c USING (check_id) JOIN contamination_coverage x USING (check_id)
                   WHERE c.run_id = ? ORDER BY ALL""",
                [run_id],
            ).fetchall()

    (here,) = check_benchmarks(workspace, config, "run-1", page=7)
    assert here.tiers["embedding"]
    assert here.hits > 9
    assert len(stored("run-1")) == here.hits + here.response_hits
    (apart,) = check_benchmarks(workspace, config, "run-2", page=7, executor=LocalExecutor(2))
    assert replace(apart, check_id=here.check_id) == here
    assert stored("run-2") == stored("run-1")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EvidenceCandidates, "store", interrupt)
        with pytest.raises(KeyboardInterrupt):
            check_benchmarks(workspace, config, "run-3", page=7)
    assert stored("run-3") == []
    with monkeypatch.context() as patch:
        patch.setattr(Matching, "map", interrupt)
        check_benchmarks(workspace, config, "run-3", page=7)
    assert stored("run-3") == stored("run-1")
    assert not any((workspace.root / FOLDER).iterdir())


def test_responses_of_a_benchmark_registered_without_them_are_added(workspace: Workspace, tmp_path: Path) -> None:
    register(workspace, tmp_path, "b", SHORT)
    put(workspace, CARRIER)
    check(workspace)
    path = tmp_path / "again.jsonl"
    path.write_text(json.dumps({"prompt": SHORT, "response_A": ANSWER, "response_B": ANSWER}) + "\n")
    assert add_benchmark(workspace, "b", path, None).created
    assert [(b.prompts, b.responses) for b in list_benchmarks(workspace)] == [(1, 1)]
    train = create_snapshot(workspace, "train", Selection(), None)
    assert [s.state for s in contamination_of(workspace, train.id)] == ["not_checked"]


@pytest.mark.parametrize(
    ("record", "responses"),
    [
        ({"prompt": "p", "chosen": ["c", "d"], "rejected": "r"}, ["c", "d", "r"]),
        ({"chosen": "\n\nHuman: hello\n\nAssistant: hi\n\nHuman: x\n\nAssistant: yes"}, ["yes"]),
        ({"prompt": "p", "chosen": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]}, ["a"]),
        ({"question": "q", "response_A": "a", "response_B": None, "score": 3}, ["a"]),
    ],
)
def test_the_responses_of_the_publishers_shapes(record: dict[str, Any], responses: list[str]) -> None:
    assert responses_of(record) == responses
