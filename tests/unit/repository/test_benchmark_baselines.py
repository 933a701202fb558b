"""Each benchmark declares what it measures and is in the README, each baseline is a script's, the page is their table.

Baselines that are older than the code are no failure here: `python benchmarks/stale.py` lists them.
"""

import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from measured_code import ROOT, declared, scripts
from stale import Baseline, stored_baselines
from table import PAGE, newest, table, without_marks, written

SCRIPTS = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if path.stem != "measure" and re.search(r"^from measure import|^ +from measure import", path.read_text(), re.M)
    if "Report(" in path.read_text()
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_declares_the_code_it_measures_and_says_so_in_its_results(script: str) -> None:
    path = ROOT / "benchmarks" / f"{script}.py"
    paths = declared(path)
    assert paths, f"{script}.py: MEASURES = (paths, ...) at the top of the module"
    assert [name for name in paths if not (ROOT / name).exists()] == []
    assert "measures=MEASURES" in path.read_text()


def test_the_readme_has_a_row_for_each_script() -> None:
    rows = re.findall(r"^\| `(\w+)\.py`", (ROOT / "benchmarks" / "README.md").read_text(), re.M)
    assert sorted(rows) == SCRIPTS


def test_each_baseline_is_a_scripts() -> None:
    assert {baseline.script for baseline in stored_baselines()} <= {
        n for n, path in scripts().items() if declared(path)
    }


def test_the_page_has_the_table_of_the_baselines() -> None:
    page = PAGE.read_text()
    renewed = written(page, stored_baselines(), lambda _: False)
    assert without_marks(page) == renewed, "python benchmarks/table.py writes it anew"


def baseline(script: str, quick: bool, date: str, ratios: dict[str, float] | None = None) -> Baseline:
    spread = {
        name: {"median": each, "low": 0.9 * each, "high": 1.1 * each, "rounds": 3}
        for name, each in (ratios or {}).items()
    }
    machine = {"cpu": "a processor", "cores": 2, "load_at_start": 3.4}
    result = {"ratios": ratios or {}, "spread": spread, "machine": machine, "date": date}
    result |= {
        "code": {"commit": "0123abc"},
        "refused": {"a / b, CPU": "2 rounds"},
        "limits": {"a / b": 3.8, "c / d": 2.0},
    }
    return Baseline(Path(f"{script}.json"), script, quick, result)


def test_a_row_has_the_ratio_by_wall_and_cpu_its_limit_and_what_is_wrong_with_it() -> None:
    stored = baseline("x", True, "2026-01-02", {"a / b": 4.0, "c / d": 1.05})
    (_, _, first, second) = table([stored], lambda _: True).splitlines()
    assert first == (
        "| `x` --quick | a / b | 4 (3.6 to 4.4) | none: 2 rounds | at least 3.8: *undecided* "
        "| a processor, 2 cores, load 3 | 0123abc **older than the code** |"
    )
    assert "| c / d | 1.05 (0.945 to 1.16) *undecided* |  | at least 2: **missed** |" in second
    assert "older than the code" not in without_marks(first)


def test_a_limit_is_of_cpu_seconds_unless_the_script_says_by_wall() -> None:
    stored = baseline("x", True, "2026-01-02", {"a / b": 4.0, "a / b, CPU": 0.7})
    stored.result["refused"] = {}
    assert "at least 3.8: **missed**" in table([stored], lambda _: False)
    stored.result["by_wall"] = ["a / b"]
    stored.result["limits"]["a / b"] = 3.0
    assert "at least 3 by wall: met" in table([stored], lambda _: False)


def test_the_newest_baseline_of_a_script_counts_and_of_one_day_the_full_one() -> None:
    old, full = baseline("x", False, ""), baseline("x", False, "2026-01-02")
    quick, later = baseline("x", True, "2026-01-02"), baseline("x", True, "2026-01-03")
    assert newest([old, quick, full]) == [full]
    assert newest([later, full, old]) == [later]
