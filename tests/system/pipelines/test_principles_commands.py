"""`assay principles`: feedback to principles to files, by the commands a person types."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from assay.cli.main import main
from assay.workspace import Workspace

Run: TypeAlias = "Callable[..., Ran]"

SAID = (
    ("A", "A1 gives facts and details"),
    ("A", "A1 has more facts than A2"),
    ("A", "A1 cites facts. A2 is nonsense"),
)


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def assay(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `assay principles ...` in this process: the imports of torch and DuckDB are paid once."""

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["principles", *arguments, "--workspace", str(workspace.root)])
        out, err = capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    return run


def done(assay: Run, *arguments: str) -> dict[str, Any]:
    result = assay(*arguments, "--json")
    assert result.code == 0, result.err
    found: dict[str, Any] = json.loads(result.out)
    return found


@pytest.fixture
def votes(tmp_path: Path) -> Path:
    rows = []
    for number in range(6):
        listed = [{"annotator": f"w{i}", "value": value, "reason": reason} for i, (value, reason) in enumerate(SAID)]
        row = {
            "id": f"d{number}",
            "source": "debates",
            "prompt": [{"role": "user", "content": f"Argue for {number}."}],
            "responses": [f"Because {number} is prime.", "Just because."],
            "ratings": {"votes": listed},
            "label_type": "human",
            "lang": "en",
            "category": "debate",
        }
        rows.append(json.dumps(row))
    path = tmp_path / "votes.jsonl"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_from_reasons_to_files(assay: Run, votes: Path, tmp_path: Path) -> None:
    assert done(assay, "import-feedback", str(votes))["feedback"] == 36
    read = done(assay, "extract", "--extractor", "lexicon")
    assert (read["read"], read["failures"], read["known"]) == (36, {}, 0)
    assert done(assay, "extract", "--extractor", "lexicon")["known"] == 36
    kept = done(assay, "filter", "--encoder", "hashing")
    assert kept["kept"] == 6  # "gives evidence" is what all three say of the first response
    assert kept["dropped"]["duplicate"] == 12
    assert kept["dropped"]["consensus"] > 0
    report = done(assay, "report")
    assert report["base_rates"] == [{"principle": "gives evidence", "responses": 6, "yes": 6}]
    file = tmp_path / "out" / "principles.jsonl"
    files = done(assay, "export", str(file), "--holdout", "0.5")["files"]
    assert sum(part["rows"] for part in files) == 6
    rows = [json.loads(line) for part in files for line in Path(part["path"]).read_text().splitlines()]
    assert rows[0].keys() == {"domain", "language", "context", "response", "principle", "fulfilment"}
    text = assay("report").out
    assert "dropped at consensus" in text
    assert "100%  gives evidence" in text


def test_mistakes_are_one_line(assay: Run) -> None:
    for arguments, told in (
        (("import-feedback",), "name a file, or give --judgments"),
        (("import-feedback", "none.jsonl"), "no such file"),
        (("extract", "--extractor", "magic"), "no principle_extractor is named 'magic'"),
        (("extract",), "needs --base-url and --model"),
        (("extract", "--extractor", "lexicon"), "there is no feedback to read"),
        (("filter", "--encoder", "hashing"), "there are no principle judgments"),
        (("filter", "--extractor", "gpt"), "no single extractor 'gpt'"),
    ):
        result = assay(*arguments)
        assert result.code == 2, result.err
        assert told in result.err
        assert "Traceback" not in result.err
    result = assay("export", "p.jsonl")
    assert (result.code, "nothing" in result.err or "no principles" in result.err) == (3, True)


@pytest.mark.slow
def test_experts_binary_tests_become_principles(assay: Run, shared_data: Path) -> None:
    """TTCW: three experts answer the same questions of a story; those that agree are kept."""
    file = shared_data / "ttcw_binary_tests.jsonl.gz"
    found = done(assay, "import-feedback", str(file))
    assert found["principle_judgments"] == 3 * (found["rows"] - sum(found["rejected"].values()))
    kept = done(assay, "filter", "--extractor", "stated", "--encoder", "hashing")
    assert set(kept["groups"]) == {"3"}
    assert 0 < kept["kept"] < kept["items"] / 3
    assert done(assay, "report")["principles"] == 14
