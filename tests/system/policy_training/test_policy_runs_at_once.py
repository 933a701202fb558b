"""Several policy trainings in one workspace at the same time, each a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from forked_command import ForkedCommand

from assay.cli.main import main
from assay.errors import BadInputError
from assay.system.name_lock import locked_name
from assay.workspace import Workspace
from assay_policy_training.training.checkpoint import checkpoints

PLAN = ["--recipe", "dr_grpo", "--reward", "verifier", "--policy", "tiny", "--prompts", "constrained:8"]
PLAN += ["--prompts-per-step", "2", "--group-size", "2", "--max-new-tokens", "6", "--set", "checkpoint_every=1"]
PLAN += ["--set", "report_kl=false"]


@pytest.mark.slow
def test_runs_at_once_do_not_disturb_each_other(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    """One that goes on and on; beside it others of another name, of the same name, and from its own checkpoint."""

    def assay(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["rl", *arguments, "--json", "-w", str(workspace.root)])
        printed = capsys.readouterr()
        assert ended.value.code == code, printed.err
        return printed.err if code else printed.out

    endless = ("--steps", "100000", "--name", "long", "-w", workspace.root)
    long = ForkedCommand("rl", *PLAN, *endless)
    try:
        long.until(lambda: re.search("^run (run-.*)$", long.output(), re.MULTILINE) is not None)
        [run] = [folder.name for folder in workspace.runs.iterdir()]
        assert f"{run} is making it" in assay(*PLAN, "--steps", "2", "--name", "long", code=2)
        assert f"{run} is still running" in assay("--resume", run, "--name", "branch", code=2)
        made = json.loads(assay(*PLAN, "--steps", "2", "--name", "short", "--seed", "5"))
        assert made["steps"] == 2
        assert Path(made["policy"]) == workspace.models / "short"
        with workspace.store.unit() as db:
            states = dict(db.execute("SELECT run_id, status FROM runs WHERE kind = 'rl'").fetchall())
            policies = db.execute("SELECT name FROM artifacts WHERE kind = 'policy'").fetchall()
        assert states == {run: "running", made["run"]: "done"}, "what is refused leaves no run"
        assert policies == [("short",)]
        long.until(lambda: bool(checkpoints(workspace.runs / run)))
        assert not long.ended()
    finally:
        long.kill()
    assert Path(json.loads(assay("--resume", run, "--steps", "1"))["policy"]) == workspace.models / "long"
    assert not list(workspace.models.glob(".*")), "no claim is left behind"


def test_a_claim_is_one_processs_and_ends_with_it(tmp_path: Path) -> None:
    target = tmp_path / "models" / "name"
    holding = "import sys, time, pathlib; from assay.system.name_lock import locked_name\n"
    holding += (
        "with locked_name(pathlib.Path(sys.argv[1])) as told: told('run-x'); print('held', flush=True); time.sleep(600)"
    )
    other = subprocess.Popen([sys.executable, "-c", holding, str(target)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(BadInputError, match="run-x is making it"), locked_name(target):
            pytest.fail("two hold one name")
        with locked_name(target.with_name("other")):
            pass
    finally:
        other.kill()
        other.communicate()
    for _ in range(2):
        with locked_name(target):
            assert not target.exists()


def test_a_claim_that_ends_while_its_holder_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder removes its file between the look at its lock and the reading of its name."""
    read = Path.read_text

    def late(path: Path, *args: str, **options: str) -> str:
        path.unlink()
        return read(path, *args, **options)

    with locked_name(tmp_path / "name"):
        monkeypatch.setattr(Path, "read_text", late)
        with pytest.raises(BadInputError, match="another run is making it"), locked_name(tmp_path / "name"):
            pass
