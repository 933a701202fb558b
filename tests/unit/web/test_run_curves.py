"""The numbers of a run's files as the page reads them: while they grow, broken, cut, and long."""

from __future__ import annotations

import io
import json
import math
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_web.runs import buckets, metrics_reader, rollouts_reader
from assay_web.runs.buckets import POINTS, Buckets
from assay_web.runs.curves import curves_reply
from assay_web.runs.key_figure import key_figure, newest_step
from assay_web.runs.metrics_reader import MetricsReader
from assay_web.runs.replies import CurvesReply, PointsReply
from assay_web.runs.rollouts_reader import rollouts_of, step_bounds
from assay_web.runs.routes import RunPages


def row(step: int, **more: Any) -> str:
    return json.dumps({"kind": "train", "step": step, "epoch": step / 10, "loss": 1 / step, "lr": 1e-3, **more}) + "\n"


def write(folder: Path, text: str) -> None:
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(text)


class Watcher:
    """Puts replies together as the page does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.reader = folder, MetricsReader(folder / "metrics.jsonl")
        self.state: str | None = None
        self.step: list[float] = []
        self.mean: dict[str, list[float | None]] = {}

    def look(self) -> CurvesReply:
        reply = curves_reply(self.reader, self.folder, self.state)
        if reply.anew:
            self.step, self.mean = [], {}
        self._join(reply.step)
        self.state = reply.state
        return reply

    def _join(self, points: PointsReply) -> None:
        self.step = self.step[: points.first] + points.step
        for key, values in points.mean.items():
            self.mean[key] = [*self.mean.get(key, [None] * points.first)[: points.first], *values]


def test_a_reader_that_had_no_time_says_that_there_is_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_reader, "BLOCK", 1000)
    write(tmp_path, "".join(row(n) for n in range(1, 101)))
    reader, looks = MetricsReader(tmp_path / "metrics.jsonl"), 0
    reader.read(0.0)
    assert 0 < reader.step.rows < 100
    while reader.behind:
        reader.read(0.0)
        looks += 1
    assert (reader.step.rows, reader.position) == (100, reader.size)
    assert looks > 3


def test_new_lines_are_added_and_a_half_written_one_waits(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    assert watcher.look().rows == 0  # no file yet
    write(tmp_path, row(1) + row(2) + row(3)[:20])
    first = watcher.look()
    assert (watcher.step, first.running, first.broken) == ([1, 2], False, 0)
    write(tmp_path, row(3)[20:] + row(4))
    second = watcher.look()
    assert (second.anew, second.step.first, second.step.step) == (False, 2, [3, 4])
    assert watcher.mean["loss"] == [1.0, 0.5, 0.333333, 0.25]
    assert watcher.look().step.step == []


def test_broken_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    write(
        tmp_path,
        row(1)
        + '{"step": 2, "los\n'
        + "\x00\x00\n"
        + "[1]\n"
        + '{"loss": 3}\n'
        + f'{{"step": {10**400}}}\n'
        + row(3).replace("0.001", "NaN #"),
    )
    write(tmp_path, row(4, loss=math.nan) + row(4) + row(2) + "\n" + row(5, loss=math.inf))
    reply = Watcher(tmp_path).look()
    assert reply.step.step == [1, 4, 5]
    assert reply.step.mean["loss"] == [1.0, None, None], "what is no number is a gap, and never 0"
    assert reply.broken == 8
    write(tmp_path, '{"step": ')
    assert newest_step(tmp_path / "metrics.jsonl")[0] == 5


def test_a_file_that_was_cut_or_replaced_is_read_anew(tmp_path: Path) -> None:
    watcher, path = Watcher(tmp_path), tmp_path / "metrics.jsonl"
    write(tmp_path, "".join(row(n) for n in range(1, 6)))
    watcher.look()
    size = path.stat().st_size
    path.write_text(row(1) + row(2) + "".join(row(n, loss=0.125) for n in (3, 4, 5)))  # went on from a checkpoint
    assert path.stat().st_size >= size - 100
    reply = watcher.look()
    assert reply.anew
    assert watcher.mean["loss"] == [1.0, 0.5, 0.125, 0.125, 0.125]


def test_a_number_that_comes_late_is_sent_with_all_points(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    write(tmp_path, row(1) + row(2))
    watcher.look()
    write(tmp_path, row(3, margin=0.5))
    assert watcher.look().anew
    assert watcher.mean["margin"] == [None, None, 0.5]
    write(tmp_path, json.dumps({"kind": "eval", "step": 3, "loss": 0.25, "accuracy": 0.75}) + "\n")
    reply = watcher.look()
    assert reply.evaluation.mean["accuracy"] == [0.75]
    assert [figure.label for figure in reply.latest] == ["step", "loss", "margin", "held-out accuracy", "held-out loss"]


def test_a_long_file_has_few_points_that_are_means_and_bounds_of_all_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=30_000)
    values[12_345] = 99.0  # a spike that a point drawn of every n-th row would hide
    watcher = Watcher(tmp_path)
    write(tmp_path, "".join(row(n, loss=v) for n, v in enumerate(values[:20_000], 1)))
    while watcher.look().behind:
        pass
    write(tmp_path, "".join(row(n, loss=v) for n, v in enumerate(values[20_000:], 20_001)))
    while watcher.look().behind:
        pass
    reply = curves_reply(watcher.reader, tmp_path, None)
    width = reply.step.width
    assert width == 16
    assert len(reply.step.step) == -(-30_000 // width) <= POINTS
    assert reply.step.step == watcher.step
    expected = [values[start : start + width].mean() for start in range(0, 30_000, width)]
    assert reply.step.mean["loss"] == pytest.approx(expected, rel=1e-5)
    assert watcher.mean["loss"] == reply.step.mean["loss"]
    assert max(value for value in reply.step.high["loss"] if value is not None) == 99.0


@given(
    st.lists(st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=40), max_size=12),
    st.lists(st.integers(0, 11), max_size=4),
)
def test_points_put_together_are_those_of_one_reply(blocks: list[list[int | None]], looks: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "POINTS", 8)
        found, count = Buckets(), 0
        kept: list[float] = []
        known = (0, 0)
        for number, block in enumerate(blocks):
            values = np.array([math.nan if v is None else float(v) for v in block])
            found.add([float(count + n + 1) for n in range(len(block))], {"v": values})
            count += len(block)
            if number in looks:
                points = found.points(["v"], known_rows=known[0], known_width=known[1])
                kept = kept[: points.first] + points.step.tolist()
                known = (found.rows, found.width)
        points = found.points(["v"], known_rows=known[0], known_width=known[1])
        assert kept[: points.first] + points.step.tolist() == found.points(["v"]).step.tolist()
        whole = found.points(["v"])
        every = [v for block in blocks for v in block]
        for place, mean in enumerate(whole.mean.get("v", np.array([]))):
            part = [v for v in every[place * found.width : (place + 1) * found.width] if v is not None]
            assert (math.isnan(mean) and not part) or mean == pytest.approx(sum(part) / len(part))
        assert len(whole.step) <= 8


def test_a_policys_file_is_known_by_its_rollouts_and_tells_when_the_watch_spoke_up(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({"recipe": {"steps": 8}}))
    rows = [
        {"step": n, "rollouts": 4, "reward_mean": n / 10, "reward_a_mean": 0.1, "reward_b_mean": 0.2, "entropy": 1.0,
         "kl_k3": 0.01 * n, "held_out_reward_mean": 1 - n / 10, "overoptimised": float(n >= 3), "rewards_missing": 0}
        for n in range(1, 5)
    ]  # fmt: skip
    write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows))
    reply = Watcher(tmp_path).look()
    assert [(m.step, m.section) for m in reply.moments] == [(3, "Over-optimisation")]
    assert reply.progress == 0.5
    titles = {chart.title: chart for chart in reply.charts}
    assert [curve.name for curve in titles["Parts of the reward"].curves] == ["a", "b"]
    assert titles["The same by distance"].x == "kl_k3"
    assert reply.step.mean["kl_k3"] == [0.01, 0.02, 0.03, 0.04]
    assert "Rollouts without a reward" not in titles


@pytest.mark.parametrize("seed", range(4))
def test_rollouts_of_a_step_are_found_wherever_they_are(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts_reader, "_NEAR", 200)
    rng, path = random.Random(seed), tmp_path / "rollouts.jsonl"
    steps = sorted(rng.choices([n for n in range(1, 40) if n != 20], k=150))
    lines = [json.dumps({"step": s, "uid": str(n), "response": "x" * rng.randrange(300)}) for n, s in enumerate(steps)]
    path.write_text("\n".join(lines) + "\n" + '{"step": 40, "uid": "half')
    assert step_bounds(path) == (steps[0], steps[-1])
    for step in range(42):
        expected = [str(n) for n, s in enumerate(steps) if s == step]
        assert [found["uid"] for found in rollouts_of(path, step)] == expected


def test_rollouts_that_are_not_there_or_broken(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    assert (step_bounds(path), rollouts_of(path, 1)) == (None, [])
    path.write_text('{"step": 1, "uid"')
    assert (step_bounds(path), rollouts_of(path, 1)) == (None, [])
    path.write_text('{"step": 1, "uid": "a"}\n{"step": 1, broken}\n{"step": 1, "uid": "b"}\n')
    assert [found["uid"] for found in rollouts_of(path, 1)] == ["a", "b"]


def test_the_figure_of_a_benchmark_is_the_best_models_overall_share() -> None:
    reports = [
        {"model": name, "aggregates": {"overall": value}} for name, value in (("a", 0.4), ("b", 0.6), ("c", None))
    ]
    found = key_figure("eval", {"bench": "rm-bench", "models": reports})
    assert found is not None
    assert (found.label, found.value, found.share) == ("best overall, b", 0.6, True)
    one = key_figure("eval", {"bench": "rm-bench", "models": reports[:1]})
    assert one is not None
    assert one.label == "overall"
    assert key_figure("eval", {"bench": "ppe", "models": reports[2:]}) is None


class Counted(io.FileIO):
    """A file that adds up what is read of it."""

    read_bytes = 0

    def readinto(self, buffer: Any) -> int | None:
        found = super().readinto(buffer)
        Counted.read_bytes += found or 0
        return found


@pytest.mark.parametrize("line", ["", '{"text": "not a rollout"}\n', '{"step": ' + "9" * 5000 + "}\n"])
def test_a_file_of_somebody_else_is_not_read_whole(tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one line of 1 GiB (a hole, which takes no disk), nor many lines without a step."""
    most = 1 << 18
    monkeypatch.setattr(rollouts_reader, "_FOREIGN", most)
    monkeypatch.setattr(rollouts_reader, "_NEAR", 1 << 12)
    path = tmp_path / "rollouts.jsonl"
    path.write_text(line * (2 * most // len(line) if line else 0))
    os.truncate(path, 1 << 30)
    monkeypatch.setattr(Path, "open", lambda path, mode: io.BufferedReader(Counted(path)))
    Counted.read_bytes = 0
    assert step_bounds(path) is None
    assert most <= Counted.read_bytes < 2 * most
    assert rollouts_of(path, 1) == []
    assert Counted.read_bytes < 60 * most, "a bound for each halving, and the log of the size of them"
    monkeypatch.undo()
    with path.open("r+") as stream:
        stream.write('{"step": 3, "uid": "ours"}\n')
    assert step_bounds(path) is None, "the end is somebody else's"


def test_only_so_many_readers_are_kept(tmp_path: Path) -> None:
    pages = RunPages()
    first = pages.reader(tmp_path / "0")
    assert pages.reader(tmp_path / "0") is first
    for number in range(1, 60):
        assert isinstance(pages.reader(tmp_path / str(number)), MetricsReader)
    assert pages.reader(tmp_path / "0") is not first
