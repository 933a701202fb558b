"""What a run notes of how far it is: read by another process, never more than was counted, never in its way."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from assay.runs.progress_bar import progress_bar
from assay.runs.progress_file import FILE, noted, noting_in, progress_of
from assay.runs.record import start_run
from assay.workspace import Workspace


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Both clocks, which stand still until the test moves them."""
    now = [1_000.0]
    monkeypatch.setattr("assay.runs.progress_file.time.time", lambda: now[0])
    monkeypatch.setattr("assay.runs.progress_file.time.monotonic", lambda: now[0])
    return now


def test_a_run_notes_what_its_bars_count(workspace: Workspace) -> None:
    with start_run(workspace, "clean", {}) as run:
        assert progress_of(run.folder) == []
        with progress_bar("cleaning", 10, unit="comparisons") as advance:
            (begun,) = progress_of(run.folder)
            advance(4)
        (ended,) = progress_of(run.folder)
    assert (begun.what, begun.done, begun.total, begun.ended) == ("cleaning", 0, 10, False)
    assert (ended.done, ended.total, ended.unit, ended.ended) == (4, 10, "comparisons", True)
    with progress_bar("nobody's", 1) as advance:
        advance(1)
    assert progress_of(run.folder) == [ended]


def test_counts_within_counts_and_runs_within_runs(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    outer.mkdir()
    inner.mkdir()
    with noting_in(outer), noted("loop", 9, unit="steps") as step:
        with noted("iteration 1: training the reward model"), noting_in(inner), noted("training", 5, unit="steps"):
            assert [one.what for one in progress_of(outer)] == [
                "loop",
                "iteration 1: training the reward model",
                "training",
            ]
            assert [one.what for one in progress_of(inner)] == ["training"]
        step(1)
        with noted("asking", 3):
            assert [(one.what, one.ended) for one in progress_of(outer)] == [("loop", False), ("asking", False)]
    assert [(one.what, one.done, one.ended) for one in progress_of(outer)] == [("loop", 1, True)]


def test_an_interrupted_run_says_where_it_stopped(tmp_path: Path) -> None:
    def interrupted() -> None:
        with noting_in(tmp_path), noted("loop", 9, unit="steps") as step:
            step(2)
            with noted("asking", 8, unit="questions") as advance:
                advance(3)
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    stopped = [(one.what, one.done, one.ended) for one in progress_of(tmp_path)]
    assert stopped == [("loop", 2, True), ("asking", 3, True)]


def test_the_rate_leaves_out_what_was_done_before(tmp_path: Path, clock: list[float]) -> None:
    with noting_in(tmp_path), noted("asking", 100, unit="questions") as advance:
        advance(40)  # known already
        for _ in range(10):
            clock[0] += 2
            advance(1)
        (going,) = progress_of(tmp_path)
        assert going.done == 50
        assert going.rate == pytest.approx(10 / 19.5)  # in the 20 s but the first half
        assert going.seconds_left == pytest.approx(50 * 19.5 / 10)
        for _ in range(100):  # slower by and by: the last minute counts
            clock[0] += 4
            advance(0)
        assert progress_of(tmp_path)[0].rate == 0
        assert progress_of(tmp_path)[0].seconds_left is None


def test_steps_that_take_longer_than_the_window_have_a_rate(tmp_path: Path, clock: list[float]) -> None:
    with noting_in(tmp_path), noted("training", 10, unit="steps") as advance:
        clock[0] += 100
        advance(1)
        (first,) = progress_of(tmp_path)
        assert first.rate == pytest.approx(1 / 99.5)  # but for the first half second
        for _ in range(3):
            clock[0] += 200
            advance(1)
        (slower,) = progress_of(tmp_path)
    assert slower.rate == pytest.approx(1 / 200), "of the last step alone"
    assert slower.seconds_left == pytest.approx(6 * 200)


def test_the_wall_clock_may_be_set(tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    with noting_in(tmp_path), noted("asking", 100) as advance:
        for _ in range(10):
            clock[0] += 2
            advance(1)
        monkeypatch.setattr("assay.runs.progress_file.time.time", lambda: clock[0] - 3600)
        clock[0] += 2
        advance(1)
        assert progress_of(tmp_path)[0].rate == pytest.approx(11 / 21.5)


def test_no_rate_of_what_came_at_once(tmp_path: Path, clock: list[float]) -> None:
    with noting_in(tmp_path), noted("cleaning", 10) as advance:
        advance(10)
        clock[0] += 0.2
        advance(0)
    (ended,) = progress_of(tmp_path)
    assert (ended.done, ended.rate, ended.seconds_left) == (10, None, None)


def test_it_writes_seldom_and_a_full_disk_stops_nobody(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    whole = Path.write_text

    def write(path: Path, text: str, encoding: str) -> int:
        written.append(path)
        return whole(path, text, encoding)

    monkeypatch.setattr(Path, "write_text", write)
    with noting_in(tmp_path), noted("scoring", 10_000) as advance:
        for _ in range(10_000):
            advance(1)
        assert len(written) == 1
        clock[0] += 1
        advance(0)
        assert progress_of(tmp_path)[0].done == 10_000
    with noting_in(tmp_path / "gone"), noted("scoring", 2) as advance:
        advance(2)
    assert progress_of(tmp_path / "gone") == []


def test_threads_count_together(tmp_path: Path) -> None:
    with noting_in(tmp_path), noted("asking", 400) as advance:
        threads = [threading.Thread(target=lambda: [advance(1) for _ in range(100)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert progress_of(tmp_path)[0].done == 400


def test_a_file_of_something_else_is_no_progress(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('[{"what": "cut')
    assert progress_of(tmp_path) == []


def test_lines_of_a_long_piece_of_work_have_rate_and_time_left(
    capsys: pytest.CaptureFixture[str], clock: list[float]
) -> None:
    with progress_bar("embedding", 1_000, unit="comparisons") as advance:
        advance(400)  # stored before
        clock[0] += 10.5
        advance(100)
        clock[0] += 10
        advance(100)
        clock[0] += 4_000
        advance(40)
    with progress_bar("reading", unit="rows") as advance:
        clock[0] += 20.5
        advance(5)
    assert capsys.readouterr().err.splitlines()[:-1] == [
        "embedding: 600/1000 comparisons, 10/s, 0:00:40 left",
        "embedding: 640/1000 comparisons, 0.01/s, 10:00:00 left",
        "embedding: 640 comparisons in 4020.5 s",
        "reading: 5 rows, 0.25/s",
    ]
