"""`assay demo --quick`: the whole product end to end, and what it leaves behind."""

from __future__ import annotations

import io
import json
import re
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from assay_command import exit_code
from store_contents import store_contents

from assay.backups.rebuild import rebuild
from assay.cli.main import main
from assay.data.snapshots import get_snapshot, load_pairs
from assay.errors import BadInputError, NotFoundError
from assay.workspace import Workspace
from assay_web.demo.run import run_demo
from assay_web.demo.source import SOURCE_BLEMISHES
from assay_web.report.pages.runs import write_run_page


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder, printed = tmp_path_factory.mktemp("demo") / "workspace", io.StringIO()
    with redirect_stdout(printed):
        assert exit_code("demo", "--quick", "--json", "--folder", folder) == 0
    payload: dict[str, Any] = json.loads(printed.getvalue())
    return payload


@pytest.fixture(scope="module")
def workspace(demo: dict[str, Any]) -> Workspace:
    return Workspace.open(demo["workspace"])


@pytest.mark.slow
def test_every_row_of_the_file_is_accounted_for(demo: dict[str, Any], workspace: Workspace) -> None:
    imported = demo["imported"]
    rejected = sum(imported["rejected"].values())
    assert imported["rows"] == imported["pairs"] + rejected
    assert (
        rejected == SOURCE_BLEMISHES.identical_sides + SOURCE_BLEMISHES.empty_responses + SOURCE_BLEMISHES.broken_lines
    )
    assert imported["pairs"] - imported["new"]["comparisons"] == SOURCE_BLEMISHES.repeated
    with workspace.store.unit() as db:
        (kept,) = db.execute("SELECT count(*) FROM rejects WHERE run_id = ?", [imported["run_id"]]).fetchone() or (0,)
        undecided = db.execute("SELECT count(*) FROM pools WHERE pool = 'unverified'").fetchone()
    assert kept == rejected
    assert undecided == (0,)


def test_the_error_figures_add_up(demo: dict[str, Any], workspace: Workspace) -> None:
    errors, verified, passed, relabelled = (demo[k] for k in ("errors", "verified", "source_pass", "relabelled"))
    assert errors["pairs"] == demo["snapshots"]["raw"] == verified["seen"] + passed["seen"]
    assert errors["errors"] == sum(source["wrong_in_truth"][0] for source in demo["sources"].values())
    against = relabelled["against"] if isinstance(relabelled, dict) else 0
    unused = passed["discarded"] - (relabelled["relabelled"] if isinstance(relabelled, dict) else 0)
    changed = verified["corrected"] + passed["reversed"] + against
    assert errors["caught"] + errors["false_alarms"] == changed + unused
    assert errors["kept"] == demo["snapshots"]["curated"] == get_snapshot(workspace, "curated").items
    # The verifier is never wrong about its own constraints: every error on the gold slice is corrected.
    with workspace.store.unit() as db:
        wrong_gold = db.execute(
            """SELECT count(DISTINCT p.comparison_id)
               FROM pools p JOIN source_labels s USING (comparison_id) JOIN origins o USING (comparison_id)
               WHERE p.pool = 'gold' AND p.label <> s.label AND o.source <> 'heldout'"""
        ).fetchone()
    assert wrong_gold == (verified["corrected"],)


def test_each_source_is_treated_as_gold_measures_it(demo: dict[str, Any], workspace: Workspace) -> None:
    assert set(demo["sources"]) == {"careful", "hasty", "longer-wins"}
    assert demo["sources"]["careful"]["mean"] >= 0.7 > demo["sources"]["hasty"]["mean"]
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT o.source, d.rule FROM current_decisions d JOIN origins o USING (comparison_id)
               WHERE d.rule IN ('source_reliable', 'source_reversed', 'source_at_chance', 'relabelled')"""
        ).fetchall()
    for name, source in demo["sources"].items():
        given = {rule for origin, rule in rows if origin == name}
        assert given <= ({"source_reliable"} if source["mean"] >= 0.7 else {"source_at_chance", "relabelled"})
        assert given


def test_raw_and_curated_differ_only_by_what_curation_decided(demo: dict[str, Any], workspace: Workspace) -> None:
    raw = {p.comparison_id: p.chosen for p in load_pairs(workspace, "raw")}
    curated = {p.comparison_id: p.chosen for p in load_pairs(workspace, "curated")}
    assert curated.keys() <= raw.keys()
    relabelled = demo["relabelled"]
    changed = sum(raw[key] != chosen for key, chosen in curated.items())
    against = relabelled["against"] if isinstance(relabelled, dict) else 0
    assert changed == demo["verified"]["corrected"] + demo["source_pass"]["reversed"] + against


def test_no_training_prompt_is_held_out(workspace: Workspace) -> None:
    seen = {p.prompt for p in load_pairs(workspace, "raw")}
    for name in ("heldout-dev", "heldout-test"):
        assert not seen & {p.prompt for p in load_pairs(workspace, name)}


def test_the_report_says_what_the_run_measured(demo: dict[str, Any]) -> None:
    page = Path(demo["report"]).read_text(encoding="utf-8")
    for label in ("raw", "gold", "curated", "oracle"):
        assert f"{100 * demo['accuracy'][label]['value']:.1f} %" in page
    assert f"{100 * demo['length_baseline']:.1f} %" in page
    assert f"{100 * demo['errors']['noise_after']:.1f} %" in page
    for name, source in demo["sources"].items():
        assert f"right on {source['right_on_gold']} of {source['of']} gold pairs" in page
        assert name in page
    assert demo["run"] in page
    assert "No data" not in page


def assay(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of the command."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_lineage_walks_from_the_policy_back_to_the_judgments(
    demo: dict[str, Any], workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = assay(capsys, "lineage", demo["policy"]["artifact"], "--json", "-w", str(workspace.root))
    assert code == 0, err
    assert get_snapshot(workspace, "curated").id in out
    for step in ("reward_model rm-curated", "decision gold", "judgment"):
        assert step in out


def test_the_trained_reward_model_is_used_by_the_other_commands(
    demo: dict[str, Any], workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["eval", "--model", "rm-curated", "--data", "heldout-test", "--json", "-w", str(workspace.root)]
    code, out, err = assay(capsys, *command)
    assert code == 0, err
    assert f"{demo['accuracy']['curated']['value']:.6f}"[:6] in out


@pytest.fixture(scope="module")
def fully_trained(workspace: Workspace) -> None:
    """A reward model trained with gradient steps, which the demo's probes are not."""
    command = ["train", "bt", "--data", "raw", "--base", "tiny", "--name", "rm-full", "--max-length", "384"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "-w", str(workspace.root)])
    assert not ended.value.code


@pytest.mark.usefixtures("fully_trained")
@pytest.mark.parametrize(("kind", "method", "curves"), [("train", "bt", 5), ("rl", None, 7)])
def test_a_training_run_has_its_page(
    workspace: Workspace, tmp_path: Path, kind: str, method: str | None, curves: int
) -> None:
    with workspace.store.unit() as db:
        (run,) = db.execute(
            "SELECT max(run_id) FROM runs WHERE kind = $kind AND ($method IS NULL OR config ->> 'method' = $method)",
            {"kind": kind, "method": method},
        ).fetchone() or ("",)
    page = write_run_page(workspace, run, tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= curves
    steps = [json.loads(line) for line in (workspace.runs / run / "metrics.jsonl").read_text().splitlines()]
    assert re.search(rf"{len(steps)} (rows|steps?) of", page)
    assert "seed" in page


def test_a_run_without_curves_says_so(demo: dict[str, Any], workspace: Workspace) -> None:
    with pytest.raises(BadInputError, match="without curves"):
        write_run_page(workspace, demo["imported"]["run_id"])
    with pytest.raises(NotFoundError, match="no run"):
        write_run_page(workspace, "run-nowhere")


@pytest.mark.slow(reason="a second demo; the first runs the same half")
def test_the_curation_half_runs_alone(tmp_path: Path) -> None:
    """With other draws: nothing in the report speaks of a policy that was not trained."""
    outcome = run_demo(tmp_path / "half", quick=True, seed=8, say=lambda line: None, policy=False)
    figures = outcome.to_dict()
    assert figures["policy"] is None
    assert set(figures["accuracy"]) == {"raw", "gold", "curated", "oracle"}
    page = outcome.report.read_text(encoding="utf-8")
    assert "What curation bought" in page
    assert "Policy training" not in page
    assert "pass rate" not in page


def test_a_folder_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "something").write_text("mine")
    code, _, err = assay(capsys, "demo", "--quick", "--folder", str(tmp_path))
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert "not an empty folder" in err
    assert (tmp_path / "something").read_text() == "mine"


def test_the_store_made_anew_from_its_log_is_the_same(workspace: Workspace, tmp_path: Path) -> None:
    """Of everything that the demo does: import, hygiene, judges, people, curation, training, scores, calibration."""
    before = store_contents(workspace)
    filled = [table for table, rows in before.items() if rows]
    assert {"decisions", "scores", "snapshots", "artifacts", "judgments", "run_links"} <= set(filled)
    for name in ("log", "journal"):
        shutil.copytree(workspace.root / name, tmp_path / name)
    shutil.copy(workspace.root / "assay.toml", tmp_path)
    copied = Workspace.open(tmp_path)
    assert rebuild(copied).problems == []
    after = store_contents(copied)
    assert [table for table in before if after[table] != before[table]] == []
