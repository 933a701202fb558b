"""Research sets as judged responses: what their labels become, checked against the sets themselves."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from assay_rm_training.data.principle_rows import read_principle_file, write_principle_rows
from assay_rm_training.evaluation.principle import opposite_pairs

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "principle_sets.py"


@pytest.fixture(scope="module")
def sets() -> ModuleType:
    spec = importlib.util.spec_from_file_location("principle_sets", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_shepherd_ticked_errors_are_no(sets: ModuleType, shared_data: Path) -> None:
    rows = sets.shepherd(shared_data)
    records = list(sets.records(shared_data / "shepherd_human_critiques.jsonl.gz"))
    ticked = Counter(error for record in records for error in record["ratings"]["error_types"])
    for error, principle in sets.ERRORS.items():
        judged = [row for row in rows if row.principle == principle]
        assert len(judged) == len(records)
        assert sum(not row.fulfilled for row in judged) == ticked[error]


def test_ttcw_is_the_experts_majority_and_holds_withheld_stories_out(sets: ModuleType, shared_data: Path) -> None:
    rows = sets.ttcw(shared_data)
    records = [r for r in sets.records(shared_data / "ttcw_binary_tests.jsonl.gz") if r["responses"]]
    assert len(rows) == len(records) == 504
    for row, record in zip(rows, records, strict=True):
        said = [vote["value"] for vote in record["ratings"]["votes"]]
        assert row.fulfilled == (said.count("Yes") >= 2)
    assert opposite_pairs(rows)  # several stories answer one prompt


def test_rbr_names_every_proposition(sets: ModuleType, shared_data: Path) -> None:
    rows = sets.rbr(shared_data)
    records = list(sets.records(shared_data / "rbr_gold_propositions.jsonl.gz"))
    assert set(sets.PROPOSITIONS) == set(records[0]["ratings"]["propositions"])
    assert sum(row.fulfilled for row in rows) == sum(sum(r["ratings"]["propositions"].values()) for r in records)


def test_ukp_reasons_praise_one_and_blame_the_other(sets: ModuleType, shared_data: Path) -> None:
    rows = {(row.response, row.principle): row.fulfilled for row in sets.ukp2(shared_data)}
    agreed = total = 0
    for record in sets.records(shared_data / "ukpconvarg2_reasons.jsonl.gz"):
        for label in record["meta"]["labels"]:
            principle = sets.REASONS[label][0]
            for response, expected in ((record["chosen"], True), (record["rejected"], False)):
                if (response, principle) in rows:
                    agreed += rows[response, principle] == expected
                    total += 1
    assert agreed / total > 0.8  # the majority over an argument's pairs overrules some
    assert {praised for _, praised in sets.REASONS.values()} == {True, False}


def test_usr_leaves_the_middle_out(sets: ModuleType, shared_data: Path) -> None:
    rows = sets.usr(shared_data)
    assert all(row.source == "usr" for row in rows)
    possible = sum(len(r["responses"]) for r in sets.records(shared_data / "topical_chat_usr.jsonl.gz")) * 5
    assert 0.5 * possible < len(rows) < possible


def test_written_rows_are_read_again(sets: ModuleType, shared_data: Path, tmp_path: Path) -> None:
    rows = sets.usr(shared_data)
    write_principle_rows(tmp_path / "usr.jsonl", rows)
    assert read_principle_file(tmp_path / "usr.jsonl") == [
        row if row.principle == " ".join(row.principle.split()) else row.__class__(**_tidied(row)) for row in rows
    ]


def _tidied(row: object) -> dict[str, object]:
    values = {name: getattr(row, name) for name in row.__dataclass_fields__}  # type: ignore[attr-defined]
    return {**values, "principle": " ".join(str(values["principle"]).split())}
