"""What people write about runs: changed by what is given alone, of all the runs or of none."""

import pytest

from assay.errors import BadInputError, NotFoundError
from assay.runs.catalogue import list_runs, run_record
from assay.runs.notes import RunNote, change_notes, notes_of
from assay.runs.record import start_run
from assay.workspace import Workspace


@pytest.fixture
def runs(workspace: Workspace) -> list[str]:
    made = []
    for rate in (0.1, 0.2):
        with start_run(workspace, "train", {"lr": rate}) as run:
            run.metrics["accuracy"] = 0.5 + rate
        made.append(run.id)
    return made


def test_a_change_leaves_what_it_does_not_name(workspace: Workspace, runs: list[str]) -> None:
    change_notes(workspace, runs, by="ada", note=" held ", add_tags=["best", " two  words ", ""])
    changed = change_notes(workspace, runs[:1], by="ada", add_tags=["new", "best"], remove_tags=["two words"])
    assert changed == {runs[0]: RunNote("held", ("best", "new"), archived=False)}
    change_notes(workspace, runs[:1], by="ada", archived=True)
    with workspace.store.unit() as db:
        assert notes_of(db, runs) == {
            runs[0]: RunNote("held", ("best", "new"), archived=True),
            runs[1]: RunNote("held", ("best", "two words"), archived=False),
        }
    assert [run.id for run in list_runs(workspace)] == [runs[1]]
    assert {run.id for run in list_runs(workspace, archived=True)} == set(runs)
    assert [run.id for run in list_runs(workspace, tag="new", archived=True)] == [runs[0]]
    shown = run_record(workspace, runs[0])
    assert (shown.summary.note, shown.settings, shown.metrics) == ("held", {"lr": 0.1}, {"accuracy": 0.6})


def test_of_all_the_runs_or_of_none(workspace: Workspace, runs: list[str]) -> None:
    with pytest.raises(NotFoundError, match="run-0"):
        change_notes(workspace, [*runs, "run-0"], by="ada", note="x")
    with pytest.raises(BadInputError, match="over 30"):
        change_notes(workspace, runs, by="ada", add_tags=[str(number) for number in range(31)])
    with pytest.raises(BadInputError, match="60 characters"):
        change_notes(workspace, runs, by="ada", add_tags=["x" * 61])
    with workspace.store.unit() as db:
        assert notes_of(db, runs) == {}
