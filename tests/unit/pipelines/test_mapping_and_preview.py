"""Columns under other names, with paths and codes; what a file would be read as, by column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from published_rows import PUBLISHED_ROWS
from typer.testing import CliRunner

from assay.cli.main import build_app
from assay.errors import BadInputError
from assay.store.media import MediaFolder
from assay.workspace import Workspace
from assay_pipelines.importers.mapping import ColumnMapping, parse_mapping
from assay_pipelines.importers.preview import column_use, preview
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig, ImportSource, open_source


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def opened(path: Path, **options: Any) -> ImportSource:
    return open_source(ImportConfig(str(path), **options), spill=path.parent, media=MediaFolder(path.parent / "media"))


def take(workspace: Workspace, path: Path, *maps: str, values: tuple[str, ...] = ()) -> ImportReport:
    columns = parse_mapping(maps, values)
    config = ImportConfig(str(path), mapping=dict(columns.paths), values=dict(columns.values))
    return run_import(workspace, open_import(workspace, config))


def answers(workspace: Workspace) -> list[tuple[str, int | None]]:
    with workspace.store.unit() as db:
        return db.execute(
            """SELECT CASE answer WHEN 'A' THEN a.content WHEN 'B' THEN b.content ELSE answer END, strength
               FROM judgments JOIN comparisons c USING (comparison_id)
               JOIN responses a ON a.response_id = c.response_a JOIN responses b ON b.response_id = c.response_b
               ORDER BY ALL"""
        ).fetchall()


def test_nested_fields_and_codes(workspace: Workspace, tmp_path: Path) -> None:
    rows = [
        {"item": {"question": f"{n}?"}, "answers": [{"text": f"x{n}"}, {"text": f"y{n}"}], "winner": winner}
        for n, winner in enumerate((1, 2, 0, 7, "B"))
    ]
    maps = ("prompt=item.question", "response_a=answers[0].text", "response_b=answers[1].text", "label=winner")
    report = take(workspace, write(tmp_path / "x.jsonl", rows), *maps, values=("1=first,2=second", "0=tie"))
    assert answers(workspace) == [("tie", None), ("x0", None), ("y1", None), ("y4", None)]
    number = "a number does not say which response it means: write A, B or tie, or give --values"
    assert report.rejected == {f"label: {number}": 1}


def test_scores_make_the_label(workspace: Workspace, tmp_path: Path) -> None:
    rows = [{"q": "?", "a": "x", "b": f"y{n}", "s": scores} for n, scores in enumerate(([1, 2], [2, 1.5], [1, None]))]
    maps = ("prompt=q", "response_a=a", "response_b=b", "score_a=s[0]", "score_b=s[1]")
    report = take(workspace, write(tmp_path / "x.jsonl", rows), *maps)
    assert answers(workspace) == [("x", None), ("y0", None)]
    assert (report.pairs, report.rejected) == (3, {})  # the third has no label


@pytest.mark.slow
def test_lists_with_scores_and_labels_of_single_responses(workspace: Workspace, tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.jsonl", [{"q": "?", "all": [{"t": "x", "s": 1}, {"t": "y", "s": 3}, {"t": "z", "s": 2}]}]
    )
    assert take(workspace, path, "prompt=q", "responses=all[].t", "scores=all[].s").pairs == 3
    assert sorted(answer for answer, _ in answers(workspace)) == ["y", "y", "z"]
    rows = [{"q": "?", "r": "x", "ok": "good"}, {"q": "?", "r": "w", "ok": "bad"}]
    maps = ("prompt=q", "completion=r", "label=ok")
    report = take(workspace, write(tmp_path / "y.jsonl", rows), *maps, values=("good=true,bad=false",))
    assert (report.pairs, report.rejected) == (1, {})


def test_names_with_spaces_are_columns(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("the prompt,good one,bad one\n?,x,y\n")
    take(workspace, path, "prompt=the prompt", "chosen=good one", "rejected=bad one")
    assert answers(workspace) == [("x", None)]


@pytest.mark.parametrize(
    ("maps", "values", "complaint"),
    [
        (["promt=q"], [], "cannot map to 'promt'"),
        (["prompt=q[["], [], "is no path expression"),
        (["prompt"], [], "--map takes OURS=THEIRS"),
        (["label=w"], ["1=best"], "1=best: not a label"),
        (["label=w"], ["1"], "--values takes CODE=LABEL"),
    ],
)
def test_wrong_mappings(maps: list[str], values: list[str], complaint: str) -> None:
    with pytest.raises(BadInputError) as raised:
        parse_mapping(maps, values)
    assert complaint in str(raised.value)


def test_a_path_that_no_row_has(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"q": "?", "a": "x", "b": "y"}])
    with pytest.raises(BadInputError, match=r"field 'q\.text': no such column; there are a, b, q"):
        opened(path, mapping={"prompt": "q.text", "chosen": "a", "rejected": "b"})
    table = tmp_path / "x.csv"
    table.write_text("q,a,b\n?,x,y\n")
    with pytest.raises(BadInputError, match="field 'question': no such column; there are q, a, b"):
        opened(table, mapping={"prompt": "question", "chosen": "a", "rejected": "b"})
    assert ColumnMapping()({"label": 1}) == {"label": 1}


def test_columns_are_found_to_be_read_kept_or_unused(tmp_path: Path) -> None:
    use = column_use(opened(write(tmp_path / "x.jsonl", PUBLISHED_ROWS["openai-tldr"])))
    inner = ("info.post", "info.title", "info.subreddit", "summaries.text")
    assert use.read == (*inner, "choice", "worker")
    assert use.metadata == ("info.id", "summaries.policy", "batch", "split")
    assert use.unused == ("summaries.note", "extra")


def test_a_column_that_some_rows_read_is_read(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": "?", "chosen": f"x{n}", "rejected": "y", "clips": ["a.png"]} for n in (1, 2)
    ]
    rows[1]["margin"] = 2
    use = column_use(opened(write(tmp_path / "x.jsonl", rows)))
    assert (use.read, use.unused) == (("prompt", "chosen", "rejected", "margin"), ("clips",))


def test_a_preview_counts_what_an_import_would_read(workspace: Workspace, tmp_path: Path) -> None:
    rows = [
        {"prompt": "?", "chosen": f"x{n}", "rejected": "y" if n % 3 else "", "note": "long " * 999} for n in range(7)
    ]
    path = write(tmp_path / "x.jsonl", [*rows, "{broken"])
    shown = preview(opened(path))
    assert (shown.rows, shown.readable, shown.counts) == (8, 4, {"pairs": 4})
    assert [row for row, _ in shown.examples["pairs"]] == [2, 3, 5]
    assert [row for row, _ in shown.rejects] == [1, 4, 7, 8]
    assert shown.columns.unused == ("note",)
    report = run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    assert (report.pairs, report.rejected, report.unused) == (4, shown.rejected, ["note"])


@pytest.mark.slow
def test_the_commands(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = [{"prompt": "?", "chosen": f"x{n}", "rejected": "y", "clips": ["a.png"]} for n in range(4)]
    path = str(write(tmp_path / "good.jsonl", good))
    runner, app = CliRunner(), build_app()
    shown = runner.invoke(app, ["data", "preview", path])
    assert shown.exit_code == 0
    for line in ("4 of the first 4 rows can be read", "not used: clips", "  row 1: user: ? | first: x0 | second: y"):
        assert line in shown.output
    payload = json.loads(runner.invoke(app, ["data", "preview", path, "--json"]).output)
    assert (payload["columns"]["unused"], len(payload["examples"]["pairs"])) == (["clips"], 3)
    where = ["--workspace", str(workspace.root)]
    assert "columns that were not used: clips" in runner.invoke(app, ["data", "import", path, *where]).output

    bad = str(write(tmp_path / "bad.jsonl", [good[0], *({**row, "chosen": None} for row in good)]))
    refused = runner.invoke(app, ["data", "import", bad, *where])
    assert isinstance(refused.exception, BadInputError)
    assert "only 1 of the first 5 rows can be read (chosen: missing); --yes imports those" in str(refused.exception)
    monkeypatch.setattr("assay_pipelines.commands.importing.is_terminal", lambda: True)
    assert runner.invoke(app, ["data", "import", bad, *where], input="n\n").exit_code == 1
    assert "1 pairs" in runner.invoke(app, ["data", "import", bad, *where], input="y\n").output
    assert runner.invoke(app, ["data", "import", bad, *where, "--yes"]).exit_code == 0
