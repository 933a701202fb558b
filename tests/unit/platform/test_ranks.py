"""Ranks of one command: their numbers, what is printed, errors, killed ranks and lost nodes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from assay.compute import ranks
from assay.compute.actors import LocalActor, Node
from assay.errors import BackendError
from assay.system import parent_watchdog

NAMES = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"]
#: Notes its environment and process, then what follows.
NOTE = f"""
import os, signal, sys, time
from pathlib import Path
rank, folder = os.environ["RANK"], Path(os.getcwd())
first = not (folder / f"rank-{{rank}}").exists()
text = " ".join([str(os.getpid()), *(os.environ[name] for name in {NAMES})])
(folder / "writing").with_suffix("." + rank).write_text(text)
os.replace((folder / "writing").with_suffix("." + rank), folder / f"rank-{{rank}}")
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parent_watchdog, "GRACE_S", 0.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.chdir(tmp_path)


def local_nodes(count: int, hired: list[Sequence[LocalActor]]) -> Callable[[], AbstractContextManager[Sequence[Node]]]:
    @contextmanager
    def hire() -> Iterator[Sequence[Node]]:
        actors = [LocalActor(ranks.TARGET, {}) for _ in range(count)]
        hired.append(actors)
        try:
            yield [Node("127.0.0.1", actor) for actor in actors]
        finally:
            for actor in actors:
                actor.close()

    return hire


def run(code: str, *, nodes: int = 2, count: int = 1, restarts: int = 0) -> tuple[int, list[Sequence[LocalActor]]]:
    hired: list[Sequence[LocalActor]] = []
    words = ["-c", NOTE + code]
    return ranks.run_ranks(local_nodes(nodes, hired), lambda: words, count=count, max_restarts=restarts), hired


def process_of(rank: int) -> int:
    return int(Path(f"rank-{rank}").read_text().split()[0])


def is_gone(process: int) -> bool:
    """Or dead and not waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ranks_are_numbered_as_torchrun_does_and_the_first_one_speaks(capfd: pytest.CaptureFixture[str]) -> None:
    code = "print('out', rank); print('err', rank, file=sys.stderr)\nwhile len(list(folder.glob('rank-*'))) < 4: pass"
    status, _ = run(code, nodes=2, count=2)
    assert status == 0
    rows = [Path(f"rank-{rank}").read_text().split()[1:] for rank in range(4)]
    port = rows[0][5]
    assert int(port) in ranks.PORTS
    assert rows == [[str(rank), str(rank % 2), "4", "2", "127.0.0.1", port, "3"] for rank in range(4)]
    assert capfd.readouterr() == ("out 0\n", "err 0\n")


def test_nothing_stays_in_the_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    status, _ = run("print('out', rank)", nodes=1)
    assert (status, list(temporary.iterdir())) == (0, [])


def test_a_node_that_is_lost_after_the_end_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ranks, "_stop", lambda node: node.actor.close())
    status, hired = run("print('out', rank)", restarts=1)
    assert (status, len(hired)) == (0, 1)
    assert capfd.readouterr().out == "out 0\n"


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [0, 1])
def test_all_start_again_after_a_killed_rank(restarts: int, capfd: pytest.CaptureFixture[str]) -> None:
    code = "print(first)\nif first and rank == '1': os.kill(os.getpid(), signal.SIGKILL)\nif first: time.sleep(600)"
    if not restarts:
        with pytest.raises(BackendError, match=r"rank 1 on 127\.0\.0\.1 was killed by signal 9; .* 0 times"):
            run(code, restarts=restarts)
        assert is_gone(process_of(0))
        return
    status, hired = run(code, restarts=restarts)
    assert (status, len(hired)) == (0, 2)
    assert capfd.readouterr().out == "False\n"  # of the start that ended well


def test_a_lost_node_is_hired_again_and_leaves_no_rank() -> None:
    lost: list[int] = []
    hired: list[Sequence[LocalActor]] = []

    def words() -> list[str]:
        if len(hired) > 1:
            lost.append(process_of(1))
        return ["-c", NOTE + "if first: time.sleep(600)"]

    def kill_when_both_run() -> None:
        wait_for(lambda: all(Path(f"rank-{rank}").exists() for rank in range(2)))
        os.kill(hired[0][1].pid or 0, signal.SIGKILL)

    killer = threading.Thread(target=kill_when_both_run)
    killer.start()
    assert ranks.run_ranks(local_nodes(2, hired), words, count=1, max_restarts=1) == 0
    killer.join()
    assert len(hired) == 2
    wait_for(lambda: is_gone(lost[0]))


@pytest.mark.slow
def test_an_error_of_one_ends_all_with_its_status(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ranks, "FAIL_S", 0.1)
    status, hired = run("if rank == '1': sys.exit('no such thing')\ntime.sleep(600)", restarts=3)
    assert (status, len(hired)) == (1, 1)
    assert capfd.readouterr().err == "assay: rank 1: no such thing\n"
    assert is_gone(process_of(0))
    status, _ = run("if rank == '0': sys.exit(4)\ntime.sleep(600)", restarts=3)
    assert status == 4
