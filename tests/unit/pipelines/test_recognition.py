"""Which layout a file has: what most rows say, by reading them; and values in rows that cost these rows only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.importers.recognition import recognise
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig

HH = {"chosen": "\n\nHuman: h{0}\n\nAssistant: a", "rejected": "\n\nHuman: h{0}\n\nAssistant: b"}


def take(workspace: Workspace, path: Path) -> ImportReport:
    return run_import(workspace, open_import(workspace, ImportConfig(str(path))))


def normalised(number: int, chosen: str = "yes", rejected: str = "no") -> dict[str, Any]:
    prompt = [{"role": "user", "content": f"question {number}"}]
    sides = {"chosen": chosen, "rejected": rejected, "responses": [chosen, rejected]}
    return {"prompt": prompt, **sides, "label_type": "human", "ratings": {}}


def dialogue(number: int) -> dict[str, str]:
    return {side: text.format(number) for side, text in HH.items()}


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def test_a_response_that_begins_like_a_dialogue_does_not_decide_for_the_file(
    workspace: Workspace, tmp_path: Path
) -> None:
    odd = normalised(100, "Human: hello\n\nAssistant: hi", "Human: hello\n\nAssistant: go away")
    rows = [*[normalised(n) for n in range(30)], odd, *[normalised(n) for n in range(30, 60)]]
    report = take(workspace, write(tmp_path / "x.jsonl", rows))
    assert (report.recognised, report.pairs, report.rejected) == ("the normalised form in JSON Lines", 61, {})


def test_a_few_broken_rows_do_not_decide_either(workspace: Workspace, tmp_path: Path) -> None:
    rows: list[Any] = [dialogue(n) for n in range(40)]
    rows[0] = {"chosen": "a plain text", "rejected": "a plain answer"}
    rows[20] = "{"
    report = take(workspace, write(tmp_path / "x.jsonl", rows))
    assert (report.recognised, report.pairs) == ("HH-RLHF text in JSON Lines", 38)


def test_a_layout_that_few_rows_have_is_none(workspace: Workspace, tmp_path: Path) -> None:
    pair = {"prompt": "why?", "chosen": "a", "rejected": "b"}
    rows = [{"text": f"line {n}", "lang": "en"} for n in range(6)]
    with pytest.raises(
        BadInputError, match=r"cannot tell what the columns mean \(chosen, lang, prompt, rejected, text\)"
    ):
        take(workspace, write(tmp_path / "x.jsonl", [pair, *rows]))
    report = take(workspace, write(tmp_path / "y.jsonl", [*[pair] * 5, *rows[:5]]))
    assert (report.pairs, report.rejected) == (5, {"chosen: missing": 5})


def test_a_single_row_of_the_red_team_set_does_not_refuse_the_file(workspace: Workspace, tmp_path: Path) -> None:
    transcript = {"transcript": "t", "min_harmlessness_score_transcript": 1.0, "task_description": "d"}
    rows = [{**normalised(n), **(transcript if n == 3 else {})} for n in range(9)]
    assert take(workspace, write(tmp_path / "x.jsonl", rows)).pairs == 9
    with pytest.raises(BadInputError, match="red-team set"):
        take(workspace, write(tmp_path / "red.jsonl", [transcript] * 3))


def test_where_nothing_is_read_the_layout_that_most_records_have_says_why() -> None:
    layout = recognise([{"prompt": "p", "chosen": "", "rejected": ""}] * 3, mapped=False)
    assert layout is not None
    assert layout.title_of({"prompt": "p"}) == "TRL pairs with an explicit prompt"
    assert recognise([{"text": "t"}], mapped=False) is None


def test_a_key_that_occurs_twice_is_a_reject_that_names_it(workspace: Workspace, tmp_path: Path) -> None:
    rows = [
        normalised(1, 'a "quote": and a colon', "b"),
        '{"prompt": "why?", "chosen": "a", "rejected": "b", "chosen": "c"}',
        json.dumps(normalised(2)).replace('"ratings": {}', '"ratings": {"gold": "A", "g\\u006fld": "B"}'),
        normalised(3),
    ]
    path = write(tmp_path / "x.jsonl", rows)
    array = tmp_path / "x.json"
    array.write_text("[" + ",".join(path.read_text().splitlines()) + "]")
    for file in (path, array):
        report = take(workspace, file)
        assert (report.rows, report.pairs) == (4, 2)
        twice = ["row 2: chosen: the key occurs twice", "row 3: gold: the key occurs twice"]
        assert report.first_rejects == twice


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_a_column_that_occurs_twice_is_refused(workspace: Workspace, tmp_path: Path, name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / name
    if name == "x.csv":
        path.write_text("prompt,chosen,rejected,chosen\np,a,b,c\n")
    else:
        columns = [pa.array([text]) for text in "pabc"]
        pq.write_table(pa.Table.from_arrays(columns, names=["prompt", "chosen", "rejected", "chosen"]), path)
    with pytest.raises(BadInputError, match=r"field 'chosen': .* twice"):
        take(workspace, path)


def test_odd_values_in_rows_of_an_array_reject_these_rows(workspace: Workspace, tmp_path: Path) -> None:
    good = '{"prompt": "why?", "chosen": "a, ] \\" }", "rejected": "%s"}'
    odd = [
        '{"prompt": "why?", "chosen": "a", "rejected": "b", "margin": Infinity}',
        "5",
        '"a, b"',
        "[{}]",
        "{1: 2}",
        "",
    ]
    elements = [good % n if n % 2 == 0 else odd[n // 2] for n in range(2 * len(odd))]
    path = tmp_path / "x.json"
    path.write_text("\ufeff [" + " ,\n".join(elements) + "\n] \n")
    report = take(workspace, path)
    assert (report.rows, report.pairs, sum(report.rejected.values())) == (12, 6, 6)
    assert report.rejected["not a JSON object"] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"prompt": "p", "chosen": "a", "rejected": "b"}', "after row 0 (the array does not end)"),
        ('[{"prompt": "p", "chosen": "a", "rejected": "b"}] x', "after row 1 (something follows the array)"),
        ('[{"prompt": "p", "chosen": "a", "rejected": "b"}}]', "after row 0 (a closing brace"),
    ],
)
def test_an_array_that_is_none_says_where(workspace: Workspace, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(BadInputError) as raised:
        take(workspace, path)
    assert message in str(raised.value)
