"""`assay queue` and `assay annotate` as people use them: over a pipe, at a real terminal, interrupted."""

from __future__ import annotations

import codecs
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from annotating import skip as skip_item
from annotating import vote, vote_canonically

from assay.cli.main import main
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem, ShownOpinion
from assay_pipelines.annotation.queues import create_queue, queue_progress
from assay_pipelines.annotation.resolution import PEOPLE_MAJORITY, REVOKED, UNDECIDED, resolve_queue
from assay_pipelines.annotation.service import AnnotationService

Fill = Callable[[int], list[str]]
ASSAY = [sys.executable, "-c", "from assay.cli.main import main; main()"]


class Command:
    """Runs `assay` in this process, keys on standard input, and returns what it printed."""

    def __init__(self, workspace: Workspace, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.workspace, self.patch, self.capsys = workspace, patch, capsys

    def __call__(self, *arguments: str, keys: str = "", columns: int = 100, code: int = 0) -> str:
        self.patch.setenv("COLUMNS", str(columns))
        self.patch.setattr(sys, "stdin", io.StringIO(keys))
        with pytest.raises(SystemExit) as ended:
            main([*arguments, *(() if "--help" in arguments else ("-w", str(self.workspace.root)))])
        printed = self.capsys.readouterr()
        assert ended.value.code == code, printed.err
        return printed.out if code == 0 else printed.err

    def json(self, *arguments: str, keys: str = "") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*arguments, "--json", keys=keys))
        return found


@pytest.fixture
def assay(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(workspace, monkeypatch, capsys)


def test_from_a_queue_to_gold_decisions(workspace: Workspace, assay: Command, fill_comparisons: Fill) -> None:
    fill_comparisons(4)
    made = assay.json("queue", "create", "round", "--overlap", "2", "--reason", "models disagree")
    assert (made["items"], made["checks"], made["overlap"]) == (4, 0, 2)
    assert assay.json("queue", "create", "round", "--overlap", "2")["items"] == 4
    assert "2 people each" in assay("queue", "list")
    drawn = assay("annotate", "round", "--as", "ann", keys="2arfits better\ntgx")
    for said in ("models disagree", "prompt", "A better", "stored: A, clearly better", "4 votes, in the store"):
        assert said in drawn
    ended = assay.json("annotate", "round", "--as", "bob", keys="uz? t t u g s c")
    assert ended | {"votes": 2, "skipped": 1, "undone": 1, "finished": False} == ended
    status = assay.json("queue", "status", "round")
    assert (status["votes"], status["withdrawn"], status["annotators"]) == (7, 1, {"ann": 4, "bob": 3})
    assay("annotate", "round", "--as", "eve", keys="snq")
    told = assay("queue", "status", "round").splitlines()
    assert "7 votes and 0 on gold checks, 1 times passed on, 1 taken back" in told
    assert [line.split() for line in told[-1:]] == [["eve", "0,", "1", "passed", "on"]]
    tried = assay.json("queue", "resolve", "round", "--dry-run")
    done = assay.json("queue", "resolve", "round")
    assert tried["new"] == 0
    assert (done["gold"], done["ties"], done["conflicts"], done["waiting"], done["new"]) == (1, 1, 2, 1, 1)
    assert assay.json("queue", "resolve", "round")["new"] == 0
    assert "not somebody who voted" in " ".join(assay("queue", "adjudicate", "--help").split())
    assert assay.json("queue", "adjudicate", "round", "--as", "ann", keys="ab")["finished"]
    settled = assay("queue", "adjudicate", "round", "--as", "dora", keys="a v b")
    assert "2 adjudications" in settled
    assert "1 conflicts left" in settled
    assert settled.count("ann said") == 2, "after the own vote, or before it on demand"
    resolved = assay.json("queue", "resolve", "round")
    assert (resolved["gold"], resolved["adjudicated"], resolved["conflicts"]) == (3, 2, 0)
    with workspace.store.unit() as db:
        rules = db.execute("SELECT rule, count(*) FROM current_decisions GROUP BY 1 ORDER BY 1").fetchall()
        sight = db.execute("SELECT saw_votes FROM adjudications ORDER BY created_at").fetchall()
    assert rules == [("adjudicated", 2), (PEOPLE_MAJORITY, 1)]
    assert sight == [(False,), (True,)]
    assert "ann" in assay("queue", "report", "round")
    assert "alpha" in assay("queue", "agreement", "round", "--resamples", "20")
    assay("queue", "close", "round")
    assert "closed" in assay("queue", "status", "round")
    fill_comparisons(5)
    assert "is closed" in assay("queue", "create", "round", "--overlap", "2", code=2)
    assay("queue", "reopen", "round")
    assert "brought back 0 queues" in assay("queue", "recover")


def test_errors_are_one_line(workspace: Workspace, assay: Command, fill_comparisons: Fill, tmp_path: Any) -> None:
    assert "there are none yet" in assay("annotate", "nowhere", "--as", "ann", code=3)
    assert "nothing matches, the queue would be empty: the store is empty" in assay("queue", "create", "empty", code=2)
    fill_comparisons(1)
    assert "no source 'nowhere'; there are: '" in assay("queue", "create", "q", "--source", "nowhere", code=2)
    assert "the pools hold 1 unverified" in assay("queue", "create", "q", "--pool", "gold", code=2)
    assert "number or 'all'" in assay("queue", "create", "q", "--overlap", "some", code=2)
    ids = tmp_path / "ids.txt"
    ids.write_text("\nc-unknown\n")
    assert "no comparison c-unknown" in assay("queue", "create", "q", "--ids", str(ids), code=2)
    ids.write_text("word\n")
    assert "row 1: not a comparison id" in assay("queue", "create", "q", "--ids", str(ids), code=2)
    assert "there are none yet" in assay("queue", "status", "q", code=3)
    assert "name a queue" in assay("queue", "agreement", code=2)


def test_side_by_side_where_the_width_allows(workspace: Workspace, assay: Command, fill_comparisons: Fill) -> None:
    fill_comparisons(1)
    assay("queue", "create", "q")
    wide = assay("annotate", "q", "--as", "ann", keys="q", columns=120)
    narrow = assay("annotate", "q", "--as", "ann", keys="q", columns=80)
    assert any("better answer" in line and "Another answer" in line for line in wide.splitlines())
    assert not any("better answer" in line and "Another answer" in line for line in narrow.splitlines())
    for text, width in ((wide, 120), (narrow, 80)):
        assert max(len(line.rstrip()) for line in text.splitlines()[:-1]) <= width


def test_texts_cannot_take_over_the_terminal(workspace: Workspace, assay: Command) -> None:
    import pyarrow as pa

    from assay.store.intake import pair_schema, store_pairs

    bad = {"row": 1, "messages": [{"role": "user", "content": "[red]q[/]"}], "first": "\x1b[2Jgone", "second": "b\x07"}
    row = bad | {"label": "first", "source": "s", "record_id": "1"}
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist([row], schema=pair_schema()), None)
    assay("queue", "create", "q")
    drawn = assay("annotate", "q", "--as", "ann", keys="q")
    assert "\x1b" not in drawn
    assert "\x07" not in drawn
    for shown in ("<1b>[2Jgone", "b<07>", "[red]q[/]"):
        assert shown in drawn


class Terminal:
    """A process at a pseudo-terminal of 120 columns."""

    def __init__(self, *command: str) -> None:
        import fcntl
        import struct
        import termios

        def at_the_terminal() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell in the background has Ctrl-C ignored
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.handle, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        self.before = termios.tcgetattr(end)
        self.end = end
        self.process = subprocess.Popen(
            command,
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
            preexec_fn=at_the_terminal,
            env={k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"TERM": "xterm"},
        )
        self.text = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a read may end within a character

    def wait_for(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + 240
        while self.text.count(text) < times:
            assert time.monotonic() < deadline, self.text
            if select.select([self.handle], [], [], 0.2)[0]:
                self.text += self.decoder.decode(os.read(self.handle, 65536))
            else:
                assert self.process.poll() is None, self.text

    def press(self, keys: str) -> None:
        self.text = ""
        os.write(self.handle, keys.encode())

    def finish(self) -> int:
        import termios

        code = self.process.wait(timeout=240)
        assert termios.tcgetattr(self.end)[3] == self.before[3], "the terminal is left as it was found"
        os.close(self.handle)
        os.close(self.end)
        return code


def test_keys_at_a_terminal(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(4)
    items = [QueueItem(c, opinions=(ShownOpinion("a judge", "A"),)) for c in comparisons]
    create_queue(workspace, "q", items, gold_checks=0, run_id=None)
    terminal = Terminal(*ASSAY, "annotate", "q", "--as", "ann", "-w", str(workspace.root))
    terminal.wait_for("quit")
    assert "a judge" not in terminal.text, "opinions come after the vote"
    terminal.press("\x1b[A")  # an arrow key is no decision
    terminal.wait_for("no key here")
    terminal.press("3")
    terminal.wait_for("far better")
    terminal.press("r")
    terminal.wait_for("rationale: ")
    terminal.press("it is shorter, ключ\n")
    terminal.wait_for("rationale: it is shorter, ключ")
    terminal.press("b")
    terminal.wait_for("any key: continue")
    assert "stored: B, far better" in terminal.text
    assert "a judge said" in terminal.text
    terminal.press(" ")
    terminal.wait_for("quit")
    terminal.press("u")
    terminal.wait_for("undone, vote again")
    terminal.press("g")
    terminal.wait_for("any key: continue")
    terminal.press(" ")
    terminal.wait_for("quit")
    terminal.press("\x03")  # Ctrl-C
    terminal.wait_for("1 vote, 1 undone, in the store")
    assert terminal.finish() == 130
    progress = queue_progress(workspace, "q")
    assert (progress.votes, progress.withdrawn, progress.leased) == (1, 1, 0)
    with workspace.store.unit() as db:
        rows = db.execute(
            "SELECT answer, strength, rationale, withdrawn_at IS NULL FROM queue_votes ORDER BY attempt"
        ).fetchall()
    assert rows[0][1:] == (3, "it is shorter, ключ", False)
    assert rows[1] == ("both_good", None, None, True)


def test_a_terminal_that_is_killed_loses_no_acknowledged_vote(
    workspace: Workspace, assay: Command, fill_comparisons: Fill
) -> None:
    fill_comparisons(6)
    assay("queue", "create", "q")
    terminal = Terminal(*ASSAY, "annotate", "q", "--as", "ann", "-w", str(workspace.root))
    terminal.wait_for("quit")
    for _ in range(3):
        terminal.press("t")
        terminal.wait_for("stored: tie")
        terminal.wait_for("quit")
    os.kill(terminal.process.pid, signal.SIGKILL)
    terminal.process.wait()
    os.close(terminal.handle)
    os.close(terminal.end)
    ended = assay.json("annotate", "q", "--as", "ann", keys="tttttt")
    assert (ended["votes"], ended["done"]) == (3, 6)


def vote_all(workspace: Workspace, who: str, choose: Callable[[str], Any], **more: Any) -> None:
    with AnnotationService(workspace) as desk:
        while (given := desk.next("q", who)) is not None:
            said = choose(given.comparison_id)
            if said in ("cannot_decide", "later"):
                skip_item(desk, given, said)
            else:
                vote_canonically(desk, given, said, **more)


def pick(said: dict[str, tuple[str, ...]], number: int, comparison: str) -> str:
    return said[comparison][number]


def decided(workspace: Workspace) -> dict[str, tuple[Any, ...]]:
    with workspace.store.unit() as db:
        rows = db.execute("SELECT comparison_id, pool, label, rule, margin FROM current_decisions").fetchall()
    return {row[0]: tuple(row[1:]) for row in rows}


def test_what_votes_come_to(workspace: Workspace, fill_comparisons: Fill) -> None:
    plain, tied, undecided, split = fill_comparisons(4)
    create_queue(workspace, "q", [QueueItem(c) for c in (plain, tied, undecided, split)], overlap=3, run_id=None)
    said: dict[str, tuple[str, ...]] = {
        plain: ("A", "A", "B"),
        tied: ("both_good", "tie", "A"),
        undecided: ("cannot_decide", "cannot_decide", "B"),
        split: ("A", "B", "tie"),
    }
    for number, who in enumerate(("ann", "bob", "cy")):
        vote_all(workspace, who, partial(pick, said, number), strength=2)
    report = resolve_queue(workspace, "q", None)
    assert (report.gold, report.ties, report.discarded, report.conflicts, report.new) == (2, 1, 1, 1, 3)
    assert decided(workspace) == {
        plain: ("gold", "A", PEOPLE_MAJORITY, 2.0),
        tied: ("gold", "tie", PEOPLE_MAJORITY, None),
        undecided: ("discarded", None, UNDECIDED, None),
    }
    with AnnotationService(workspace) as desk:
        assert desk.next_conflict("q", "ann") is None, "she voted on it"
        given = desk.next_conflict("q", "dora")
        assert given is not None
        assert given.comparison_id == split
        assert desk.next_conflict("q", "emil") is None, "one adjudicator at a time"
        skip_item(desk, given, "cannot_decide")
    report = resolve_queue(workspace, "q", None)
    assert (report.discarded, report.adjudicated, report.new) == (2, 1, 1)


def test_a_decision_made_by_something_else_meanwhile_stands(workspace: Workspace, fill_comparisons: Fill) -> None:
    before, meanwhile = fill_comparisons(2)
    with workspace.store.unit() as db:
        insert_decisions(db, [Decision(before, "silver", "B", "judges", "asked before")], None)
    create_queue(workspace, "q", [QueueItem(before), QueueItem(meanwhile)], gold_checks=0, run_id=None)
    vote_all(workspace, "ann", lambda _: "A")
    with workspace.store.unit() as db:
        insert_decisions(db, [Decision(meanwhile, "gold", "B", "verifier", "checked")], None)
    report = resolve_queue(workspace, "q", None)
    assert (report.gold, report.overtaken, report.new) == (1, 1, 1)
    found = decided(workspace)
    assert found[before][:3] == ("gold", "A", PEOPLE_MAJORITY), (
        "what was known when it was queued is what it was asked to better"
    )
    assert found[meanwhile][:3] == ("gold", "B", "verifier")


def test_votes_taken_back_revoke_the_decision(workspace: Workspace, fill_comparisons: Fill) -> None:
    (only,) = fill_comparisons(1)
    create_queue(workspace, "q", [QueueItem(only)], gold_checks=0, run_id=None)
    vote_all(workspace, "ann", lambda _: "A")
    assert resolve_queue(workspace, "q", None).new == 1
    with AnnotationService(workspace) as desk:
        assert desk.undo("q", "ann") is not None
        report = resolve_queue(workspace, "q", None)
        assert (report.revoked, report.gold, report.waiting) == (1, 0, 1)
        assert decided(workspace)[only][:3] == ("pending", None, REVOKED)
        given = desk.next("q", "ann")
        assert given is not None
        vote_canonically(desk, given, "B")
    assert resolve_queue(workspace, "q", None).new == 1
    assert decided(workspace)[only][:2] == ("gold", "B")


@pytest.mark.parametrize("skip", ["later", "not_for_me"])
def test_an_item_passed_on_goes_to_somebody_else(workspace: Workspace, fill_comparisons: Fill, skip: str) -> None:
    (only,) = fill_comparisons(1)
    create_queue(workspace, "q", [QueueItem(only)], gold_checks=0, run_id=None)
    with AnnotationService(workspace) as desk:
        given = desk.next("q", "ann")
        assert given is not None
        skip_item(desk, given, skip, text="tired")
        assert desk.next("q", "ann") is None
        other = desk.next("q", "bob")
        assert other is not None
        vote(desk, other, "tie")
        assert desk.progress("q").done == 1


def test_lineage_walks_from_a_click_to_the_decision_and_back(
    workspace: Workspace, assay: Command, fill_comparisons: Fill
) -> None:
    (only,) = fill_comparisons(1)
    made = assay.json("queue", "create", "q", "--gold-checks", "0")
    assay.json("annotate", "q", "--as", "ann", keys="aut ")
    run = assay.json("queue", "resolve", "q")["run"]
    click = assay("lineage", only, columns=200)
    assert click.count("by human ann") == 2
    assert "taken back" in click
    queue = assay("lineage", made["id"])
    for said in (f"written by {made['run']}", f"read by {run}", "was told", "asked about", "decision gold tie"):
        assert said in queue
    with workspace.store.unit() as db:
        (stands,) = db.execute("SELECT judgment_id FROM standing_judgments WHERE origin <> ''").fetchall()
        (gone,) = db.execute("SELECT judgment_id FROM withdrawn_judgments").fetchall()
    assert "led to" in assay("lineage", stands[0])
    assert f"asked in {made['id']}" in assay("lineage", stands[0])
    assert "led to" not in assay("lineage", gone[0])
    assert assay.json("doctor")["healthy"]
