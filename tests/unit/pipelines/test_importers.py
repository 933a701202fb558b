"""Importers: every format of the field becomes the same comparisons, and bad rows become reasons."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from empty_workspaces import new_workspace

from assay.data.prefetch import prefetch
from assay.domain import Comparison, Message
from assay.errors import BackendError, BadInputError, NotFoundError
from assay.workspace import Workspace
from assay_pipelines.importers.adapters.loading import PUBLISHED
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig

PROMPT = "Why is the sky blue?"
GOOD, BAD = "Rayleigh scattering.", "It is painted."
USER = [{"role": "user", "content": PROMPT}]
EXPECTED = Comparison.of((Message("user", PROMPT),), GOOD, BAD)


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def write(path: Path, *records: dict[str, Any] | str | bytes) -> Path:
    lines = [r if isinstance(r, bytes) else (r if isinstance(r, str) else json.dumps(r)).encode() for r in records]
    data = b"\n".join(lines) + b"\n"
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def take(workspace: Workspace, path: Path | str, **options: Any) -> ImportReport:
    return run_import(workspace, open_import(workspace, ImportConfig(str(path), **options)))


def labels(workspace: Workspace) -> list[tuple[str, str]]:
    with workspace.store.unit() as db:
        return db.execute("SELECT comparison_id, label FROM pools ORDER BY 1").fetchall()


def rejects(workspace: Workspace) -> list[tuple[int, str | None, str]]:
    with workspace.store.unit() as db:
        return db.execute('SELECT "row", field, reason FROM rejects ORDER BY 1, 3').fetchall()


@pytest.mark.parametrize(
    ("record", "recognised"),
    [
        ({"prompt": PROMPT, "chosen": GOOD, "rejected": BAD}, "TRL pairs with an explicit prompt"),
        ({"prompt": USER, "chosen": said(GOOD), "rejected": said(BAD)}, "TRL pairs with an explicit prompt"),
        ({"chosen": USER + said(GOOD), "rejected": USER + said(BAD)}, "TRL pairs with an implicit prompt"),
        (
            {"prompt": PROMPT, "chosen": USER + said(GOOD), "rejected": USER + said(BAD)},
            "TRL pairs with an explicit prompt",
        ),
        (
            {"prompt": PROMPT, "response_a": BAD, "response_b": GOOD, "label": "B"},
            "labelled pairs (response_a, response_b, label)",
        ),
        (
            {
                "chosen": f"\n\nHuman: {PROMPT}\n\nAssistant: {GOOD}",
                "rejected": f"\n\nHuman: {PROMPT}\n\nAssistant: {BAD}",
            },
            "HH-RLHF text",
        ),
        (
            {
                "prompt": USER,
                "chosen": GOOD,
                "rejected": BAD,
                "responses": [BAD, GOOD],
                "label_type": "human",
                "source": "s",
            },
            "the normalised form",
        ),
    ],
    ids=["explicit", "conversational", "implicit", "prompt repeated", "labelled", "hh", "normalised"],
)
def test_every_form_is_the_same_comparison(workspace: Workspace, tmp_path: Path, record: Any, recognised: str) -> None:
    report = take(workspace, write(tmp_path / "pairs.jsonl", record))
    comparison, swapped = EXPECTED
    assert report.recognised == f"{recognised} in JSON Lines"
    assert labels(workspace) == [(comparison.id, "B" if swapped else "A")]


def test_implicit_prompt_of_plain_text_is_the_common_beginning(workspace: Workspace, tmp_path: Path) -> None:
    marked = {"chosen": "Q: it is so", "rejected": "Q: it was\n\nAssistant: so"}
    path = write(tmp_path / "x.jsonl", {"chosen": "The sky is blue.", "rejected": "The sky is green."}, marked)
    take(workspace, path)
    with workspace.store.unit() as db:
        prompts = db.execute("SELECT messages[1].content FROM prompts ORDER BY 1").fetchall()
        responses = db.execute("SELECT content FROM responses ORDER BY 1").fetchall()
    assert prompts == [("Q: it",), ("The sky is",)]
    assert responses == [(" blue.",), (" green.",), (" is so",), (" was\n\nAssistant: so",)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("USER: Hi ASSISTANT:", " "),
        ("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", ""),
        ("[INST] Hi [/INST]", " "),
        ("<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n", ""),
        ("\n\nHuman: A\n\nAssistant: B\n\nHuman: Hi\n\nAssistant:", " "),
    ],
)
def test_implicit_prompt_of_marked_text_ends_where_the_assistant_speaks(
    workspace: Workspace, tmp_path: Path, before: str, after: str
) -> None:
    sides = {"chosen": f"{before}{after}Sure, here is one.", "rejected": f"{before}{after}Sure, here are none."}
    other = {"chosen": f"{before} a {before} b", "rejected": f"{before} c {before} b"}
    take(workspace, write(tmp_path / "x.jsonl", sides, other), format="trl-implicit")
    with workspace.store.unit() as db:
        assert db.execute("SELECT messages[1].content FROM prompts").fetchall() == [(before,)]
        found = {content for (content,) in db.execute("SELECT content FROM responses").fetchall()}
    assert found == {f"{after}Sure, here is one.", f"{after}Sure, here are none."}
    assert rejects(workspace) == [(2, "rejected", "the sides diverge before the last turn")]


@pytest.mark.slow
def test_csv_parquet_and_mapping(workspace: Workspace, tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {
        "question": [PROMPT],
        "good": [GOOD],
        "worse": [BAD],
        "topic": ["physics"],
        "how_much": [2],
    }
    pq.write_table(pa.table(columns), tmp_path / "pairs.parquet")
    with (tmp_path / "pairs.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerow({name: values[0] for name, values in columns.items()})
    mapping = {"prompt": "question", "chosen": "good", "rejected": "worse", "category": "topic", "strength": "how_much"}
    one = take(workspace, tmp_path / "pairs.csv", mapping=mapping)
    two = take(workspace, tmp_path / "pairs.parquet", mapping=mapping, source="pairs")
    assert (one.new.comparisons, two.new.comparisons, two.pairs) == (1, 0, 1)
    with workspace.store.unit() as db:
        assert db.execute("SELECT DISTINCT source, category FROM origins").fetchall() == [("pairs", "physics")]
        assert db.execute("SELECT strength FROM judgments").fetchall() == [(2,)]


@pytest.mark.slow
def test_hf_reads_local_data_sets(workspace: Workspace, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list([{"prompt": PROMPT, "chosen": GOOD, "rejected": BAD}] * 2)
    data.save_to_disk(str(tmp_path / "saved"))
    datasets.DatasetDict({"train": data}).save_to_disk(str(tmp_path / "splits"))
    (tmp_path / "files").mkdir()
    data.to_parquet(str(tmp_path / "files" / "train.parquet"))
    for folder in ("saved", "splits", "files"):
        report = take(workspace, f"hf:{tmp_path / folder}", source="local")
        assert (report.rows, report.pairs) == (2, 2)
    assert [c for c, _ in labels(workspace)] == [EXPECTED[0].id]
    with pytest.raises(NotFoundError, match="has no split 'test'"):
        take(workspace, f"hf:{tmp_path / 'splits'}", split="test")


def test_hf_without_network_or_folder_says_so(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(BackendError, match=r"cannot load hf:nobody/nothing-here: .*needs the network"):
        take(workspace, "hf:nobody/nothing-here")


def test_unpaired_rows_are_joined_by_prompt(workspace: Workspace, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": PROMPT, "completion": GOOD, "label": True},
        {"prompt": "SingleProcess?", "completion": "Yes.", "label": True},
        {"prompt": USER, "completion": said(BAD), "label": False},
        {"prompt": PROMPT, "completion": "No idea.", "label": False},
        {"prompt": PROMPT, "completion": "Hm.", "label": "maybe"},
    ]
    report = take(workspace, write(tmp_path / "kto.jsonl", *rows))
    assert (report.rows, report.pairs, report.new.comparisons) == (5, 2, 2)
    assert rejects(workspace) == [
        (5, "label", "none of true, yes, 1, false, no, 0"),
    ]
    comparison, swapped = EXPECTED
    assert (comparison.id, "B" if swapped else "A") in labels(workspace)
    with workspace.store.unit() as db:
        singles = db.execute(
            "SELECT aspect, low, high, value, count(*) FROM response_judgments GROUP BY ALL ORDER BY 4"
        )
        assert singles.fetchall() == [("acceptable", 0, 1, 0, 2), ("acceptable", 0, 1, 1, 2)]


@pytest.mark.slow
def test_bad_rows_are_recorded_and_the_rest_is_imported(workspace: Workspace, tmp_path: Path) -> None:
    def row(**changes: Any) -> dict[str, Any]:
        return {"prompt": PROMPT, "chosen": GOOD, "rejected": BAD, **changes}

    path = write(
        tmp_path / "mixed.jsonl",
        row(),
        "{broken",
        row(chosen=None),
        row(rejected=""),
        row(chosen=7),
        row(rejected=GOOD),
        json.dumps(row()).replace("painted", "\\ud800"),
        b'{"prompt": "\xff"}',
        "[1]",
        "",
        row(prompt=[{"role": "robot", "content": "x"}], chosen=said(GOOD), rejected=said(BAD)),
        row(chosen=USER + said(GOOD), rejected=[{"role": "user", "content": "Else?"}, *said(BAD)]),
        row(chosen="Another good one."),
        '{"prompt": NaN}',
    )
    report = take(workspace, path)
    assert (report.rows, report.pairs) == (13, 2)
    assert sum(report.rejected.values()) == 11
    found = rejects(workspace)
    assert found == [
        (2, None, "broken JSON (Expecting property name enclosed in double quotes)"),
        (3, "chosen", "missing"),
        (4, "rejected", "empty"),
        (5, "chosen", "neither a text nor messages"),
        (6, None, "the two sides are identical"),
        (7, "rejected", "a lone surrogate: not valid Unicode"),
        (8, None, "invalid UTF-8"),
        (9, None, "not a JSON object"),
        (11, "prompt", "a message of an unknown role (known: system, developer, user, assistant, tool)"),
        (12, "rejected", "the sides diverge in a turn that is not the assistant's"),
        (14, "chosen", "missing"),
    ]
    take(workspace, path)
    assert rejects(workspace) == found, "the same rejects of a second run are not repeated"


def test_hh_rows_that_are_no_pairs(workspace: Workspace, tmp_path: Path) -> None:
    start = f"\n\nHuman: {PROMPT}\n\nAssistant:"
    path = write(
        tmp_path / "hh.jsonl.gz",
        {"chosen": f"{start} {GOOD}", "rejected": f"{start} {BAD}"},
        {"chosen": f"{start} {GOOD}", "rejected": f"{start} {GOOD}"},
        {"chosen": f"{start} {GOOD}", "rejected": f"\n\nHuman: Else?\n\nAssistant: {BAD}"},
        {"chosen": f"{start} {GOOD}", "rejected": f"{start} "},
        {"chosen": f"{start} {GOOD}\n\nHuman: Thanks", "rejected": f"{start} {BAD}"},
        {"chosen": "Plain text", "rejected": f"{start} {BAD}"},
    )
    report = take(workspace, path, format="hh")
    assert report.pairs == 1
    assert [(row, reason) for row, _, reason in rejects(workspace)] == [
        (2, "the two sides are identical"),
        (3, "the sides diverge in a turn that is not the assistant's"),
        (4, "empty"),
        (5, "the last message is not the assistant's"),
        (6, "not a dialogue with these marks"),
    ]


def test_dialogues_that_part_early_are_responses_of_several_turns(workspace: Workspace, tmp_path: Path) -> None:
    start = f"\n\nHuman: {PROMPT}\n\nAssistant:"
    row = {"chosen": f"{start} Hm.\n\nHuman: So?\n\nAssistant: {GOOD}", "rejected": f"{start} {BAD}"}
    later = f"\n\nHuman: So?\n\nAssistant: {GOOD}"
    both = {"chosen": f"{start} Hm.{later}", "rejected": f"{start} Well.{later}"}
    report = take(workspace, write(tmp_path / "hh.jsonl", row, both, {**both, "rejected": f"{start} Hm.{later}!"}))
    assert (report.recognised, report.pairs, report.dialogues) == ("HH-RLHF text in JSON Lines", 3, 1)
    with workspace.store.unit() as db:
        lengths = db.execute("SELECT DISTINCT len(messages) FROM prompts ORDER BY 1").fetchall()
        turns = db.execute("SELECT count(*) FROM responses WHERE json_array_length(turns) = 3").fetchall()
    assert lengths == [(1,), (3,)]
    assert turns == [(2,)], "the two dialogues of three turns"
    strict = (PUBLISHED / "hh.yaml").read_text().replace("label: first,", "label: first, last_turn_only: true,")
    (tmp_path / "strict.yaml").write_text(strict)
    other = new_workspace(tmp_path / "other")
    report = take(other, tmp_path / "hh.jsonl", format=str(tmp_path / "strict.yaml"))
    assert (report.pairs, report.rejected) == (1, {"rejected: the sides diverge before the last turn": 2})


def normalised(**changes: Any) -> dict[str, Any]:
    base = {"id": "n-1", "source": "set", "prompt": USER, "chosen": None, "rejected": None, "label_type": "human"}
    return {**base, "responses": [GOOD, BAD], "ratings": None, **changes}


def test_normalised_votes_ties_and_rankings(workspace: Workspace, tmp_path: Path) -> None:
    votes = [{"annotator": f"w{n}", "value": value, "reason": "so"} for n, value in enumerate(["A", "B", "tie"])]
    path = write(
        tmp_path / "n.jsonl",
        normalised(ratings={"votes": votes, "gold": None}),
        normalised(id="n-2", responses=["x", "y"], ratings={"scores": [1.0, 1.0]}),
        normalised(id="n-3", responses=["p", "q", "r"], ratings={"correct": [True, False, False]}),
        normalised(id="n-4", responses=["only"]),
        normalised(id="n-5", responses=["1", "2", "3"]),
        normalised(id="n-6", responses=["1", "1", "3"], ratings={"scores": [1, 2, 3]}),
    )
    report = take(workspace, path)
    assert report.pairs == 1 + 1 + 3 + 2
    with workspace.store.unit() as db:
        votes_found = db.execute(
            """SELECT name, answer, rationale FROM judgments JOIN annotators USING (annotator_id)
               WHERE kind = 'human' ORDER BY name"""
        ).fetchall()
        answers = db.execute(
            """SELECT record_id, list(answer ORDER BY answer) FROM judgments JOIN annotators USING (annotator_id)
               JOIN origins USING (comparison_id) WHERE kind = 'source' GROUP BY 1 ORDER BY 1"""
        ).fetchall()
    a, b = ("B", "A") if EXPECTED[1] else ("A", "B")
    assert votes_found == [("set/w0", a, "so"), ("set/w1", b, "so"), ("set/w2", "tie", "so")]
    assert [record for record, _ in answers] == ["n-2", "n-3", "n-6"]
    assert answers[0][1] == ["tie"]
    assert answers[1][1].count("both_bad") == 1
    assert sorted(reason for _, _, reason in rejects(workspace)) == [
        "more than two responses without a ranking or ratings",
        "one response without a rating",
        "the two sides are identical",
    ]


def test_limit_and_source_name(workspace: Workspace, tmp_path: Path) -> None:
    rows = [{"prompt": PROMPT, "chosen": f"{GOOD} {n}", "rejected": BAD} for n in range(5)]
    report = take(workspace, write(tmp_path / "five.jsonl", *rows), limit=3, source="mine")
    assert (report.rows, report.new.comparisons) == (3, 3)
    with workspace.store.unit() as db:
        assert db.execute("SELECT source, record_id FROM origins ORDER BY 2").fetchall() == [
            ("mine", f"five.jsonl#{n}") for n in (1, 2, 3)
        ]


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("empty.jsonl", b"", {}, "the file is empty"),
        ("array.json", b'[{"chosen": 1}]', {}, "cannot tell what the columns mean (chosen)"),
        ("cut.json", b'[{"chosen": "a",', {}, "the JSON array is damaged after row 0"),
        ("empty.json", b"[]", {}, "the file is empty"),
        ("odd.jsonl", b'{"text": "x"}\n', {}, "cannot tell what the columns mean (text)"),
        ("map.csv", b"a,b\n1,2\n", {"mapping": {"prompt": "nosuch"}}, "field 'nosuch': no such column; there are a, b"),
        ("map.jsonl", b'{"a": "x"}\n', {"mapping": {"prompt": "nosuch"}}, "no such column; there are a"),
        ("bad.parquet", b"not parquet at all", {}, "not a Parquet file"),
        ("all.jsonl", b'{"prompt": "x", "chosen": "y", "rejected": "y"}\n', {}, "no row could be imported"),
        ("broken.jsonl", b"{\n{\n", {}, "row 1: none of the first 2 rows can be read"),
    ],
)
def test_hopeless_files_give_one_clear_line(
    workspace: Workspace, tmp_path: Path, name: str, content: bytes, options: Any, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadInputError) as caught:
        take(workspace, path, **options)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_gzip_keeps_what_was_read(workspace: Workspace, tmp_path: Path) -> None:
    noise = random.Random(0)
    rows = [{"prompt": noise.randbytes(100).hex(), "chosen": GOOD, "rejected": BAD} for _ in range(3000)]
    path = write(tmp_path / "cut.jsonl.gz", *rows)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(BadInputError, match=r"the file is damaged after row \d+") as caught:
        take(workspace, path)
    row = int(re.findall(r"after row (\d+)", str(caught.value))[0])
    assert 0 < row < 3000
    assert len(labels(workspace)) == row


@pytest.mark.parametrize(("keep", "message"), [(15, "damaged in its header"), (-200, "damaged after row")])
def test_damaged_compressed_csv_is_one_line(workspace: Workspace, tmp_path: Path, keep: int, message: str) -> None:
    noise = random.Random(0)
    rows = "".join(f"{noise.randbytes(40).hex()},{GOOD},{BAD}\n" for _ in range(3000))
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(gzip.compress(f"prompt,chosen,rejected\n{rows}".encode())[:keep])
    with pytest.raises(BadInputError, match=message):
        take(workspace, path)


def test_zstd_and_byte_order_mark(workspace: Workspace, tmp_path: Path) -> None:
    line = b"\xef\xbb\xbf" + json.dumps({"prompt": PROMPT, "chosen": GOOD, "rejected": BAD}).encode()
    with pa.CompressedOutputStream(str(tmp_path / "x.jsonl.zst"), "zstd") as stream:
        stream.write(line)
    take(workspace, tmp_path / "x.jsonl.zst")
    assert [c for c, _ in labels(workspace)] == [EXPECTED[0].id]


def test_prefetch_passes_items_and_errors_on() -> None:
    def items() -> Any:
        yield 1
        yield 2
        raise ValueError("third")

    ahead = prefetch(items())
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ValueError, match="third"):
        next(ahead)
    assert list(prefetch(range(5))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("label", [0, 1, 2, "1", 1.0])
def test_a_numeric_label_is_refused_because_it_could_mean_either_side(
    workspace: Workspace, tmp_path: Path, label: object
) -> None:
    file = tmp_path / "numbers.jsonl"
    rows = [{"prompt": "P", "response_a": "x", "response_b": "y", "label": label}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BadInputError, match="does not say which response"):
        run_import(workspace, open_import(workspace, ImportConfig(str(file))))


def test_pairs_after_the_last_row_are_not_lost(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_pipelines.importers.rows.BATCH_PAIRS", 3)
    rows = [{"prompt": f"{n // 2}?", "completion": f"c{n}", "label": n % 2 == 0} for n in range(10)]
    path = tmp_path / "unpaired.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    source = open_import(workspace, ImportConfig(str(path)))
    sizes = [batch.pairs.num_rows for batch in source.batches()]
    assert (sum(sizes), max(sizes)) == (5, 3)
