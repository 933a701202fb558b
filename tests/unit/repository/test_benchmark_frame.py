"""benchmarks/measure.py on made-up figures: what it decides, what it refuses to name, when it stops, what it stores."""

import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

import measure
from measure import Cost, Ratio, Refusal, Report, Rounds, Spread, compare, interleaved, spent
from measured_code import CodeState, changed, state

LONG = Namespace(quick=False, budget=None)


def turns(*costs: Cost) -> Callable[[], Cost]:
    ready = iter(costs)
    return lambda: next(ready)


def wall_of(value: Ratio) -> Spread:
    assert isinstance(value.wall, Spread)
    return value.wall


def test_ratios_are_of_work_a_second_round_by_round_by_wall_and_by_cpu() -> None:
    ours = turns(Cost(1.0, 0.5, 10), Cost(2.0, 0.5, 10), Cost(1.0, 1.0, 10))
    peer = turns(Cost(1.0, 1.0, 5), Cost(4.0, 1.0, 5), Cost(2.0, 1.0, 5))
    ratio = compare({"ours": ours, "peer": peer}, LONG, rounds=3).ratio("ours", "peer")
    assert ratio == Ratio(wall=Spread(4.0, 2.0, 4.0, 3), cpu=Spread(4.0, 2.0, 4.0, 3))
    assert not wall_of(ratio).undecided


def test_a_spread_that_holds_1_is_undecided_in_print_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    ours = turns(*(Cost(wall, 1.0) for wall in (0.9, 1.0, 1.2)))
    peer = turns(*(Cost(1.0, 2.0) for _ in range(3)))
    report = Report("made_up", ratios={"ours / peer": compare({"a": ours, "b": peer}, LONG, rounds=3).ratio("a", "b")})
    report.finish(Namespace(quick=False, save_baseline=False, json=True))
    wall, cpu, last = capsys.readouterr().out.splitlines()
    assert wall == "ours / peer: 1 (0.833 to 1.11, 3 rounds): undecided, 1 lies within"
    assert cpu == "ours / peer, CPU: 2 (2 to 2, 3 rounds)"
    result = json.loads(last)
    assert result["ratios"] == {"ours / peer": 1.0, "ours / peer, CPU": 2.0}
    assert {name: spread["undecided"] for name, spread in result["spread"].items()} == {
        "ours / peer": True,
        "ours / peer, CPU": False,
    }
    assert result["machine"]["cores"] > 0
    assert "torch" in result["packages"]


def test_work_too_short_to_time_has_no_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    rounds = Rounds({"a": [Cost(1.0, 0.5)] * 3, "b": [Cost(1.0, 0.5), Cost(0.9, 0.1), Cost(1.0, 0.5)]})
    report = Report("made_up", ratios={"a / b": rounds.ratio("a", "b")})
    assert report.to_dict()["ratios"] == {"a / b": 1.0}
    assert report.to_dict()["refused"] == {"a / b, CPU": "a turn of b took 0.1 s (CPU), less than 0.2 s"}
    report.finish(Namespace(quick=True, save_baseline=False, json=False))
    assert "a / b, CPU: no ratio: a turn of b took 0.1 s (CPU)" in capsys.readouterr().out


def test_fewer_than_three_rounds_are_an_error_where_asked_for_and_no_ratio_where_time_ran_out() -> None:
    with pytest.raises(ValueError, match="2 rounds decide nothing"):
        compare({"a": turns(), "b": turns()}, LONG, rounds=2)
    with pytest.raises(ValueError, match="at least 3"):
        interleaved({"a": lambda: 1.0}, 2)
    refusal = Rounds({"a": [Cost(1, 1)] * 2, "b": [Cost(1, 1)] * 2}, budget_s=180).ratio("a", "b").wall
    assert refusal == Refusal("2 rounds within 180 s, it takes 3")


class Clock:
    """Stands for the module `time`: seconds pass where a contender says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.now

    def work(self, seconds: float) -> Callable[[], Cost]:
        def turn() -> Cost:
            self.now += seconds
            return Cost(seconds, seconds)

        return turn


@pytest.mark.parametrize(
    ("quick", "budget", "parts_left", "done"),
    [(False, None, 1, 9), (True, None, 1, 6), (True, None, 2, 3), (True, 40.0, 1, 1), (False, 130.0, 1, 4)],
    ids=["without", "quick", "half of it", "too little", "of its own"],
)
def test_no_round_begins_that_would_end_after_the_budget(
    quick: bool, budget: float | None, parts_left: int, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)
    monkeypatch.setattr(measure, "STARTED", clock.now)
    contenders = {"a": clock.work(10.0), "b": clock.work(20.0)}
    rounds = compare(contenders, Namespace(quick=quick, budget=budget), rounds=9, parts_left=parts_left)
    assert len(rounds.costs["a"]) == len(rounds.costs["b"]) == done
    assert isinstance(rounds.ratio("a", "b").wall, Spread if done >= 3 else Refusal)


def test_every_second_round_is_in_reverse_order() -> None:
    order: list[str] = []

    def turn(name: str) -> Callable[[], Cost]:
        return lambda: order.append(name) or Cost(1, 1)  # type: ignore[func-returns-value]

    compare({"a": turn("a"), "b": turn("b")}, LONG, rounds=3)
    assert "".join(order) == "abbaab"


def test_a_turn_costs_the_cpu_of_its_child_and_short_work_is_repeated() -> None:
    loop = "import time\nwhile time.process_time() < 0.1: pass"
    cost = spent(lambda: subprocess.run([sys.executable, "-c", loop], check=True), amount=3)
    assert cost.amount == 3
    assert cost.cpu_s >= 0.09
    repeated = spent(lambda: sum(range(10_000)), amount=2, least_s=0.02)
    assert repeated.cpu_s >= 0.02
    assert repeated.amount > 2


def test_the_cpu_of_a_server_is_its_own() -> None:
    loop = "import time\nprint(flush=True)\nend = 0.2 + time.process_time()\nwhile time.process_time() < end: pass\n"
    loop += "print(flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", loop], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        cost = spent(server.stdout.readline, pid=server.pid)
        server.kill()
    assert cost.cpu_s >= 0.1


def test_figures_are_stale_when_the_code_they_measured_has_changed_and_not_when_other_code_has(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True)

    def commit(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
        git("add", ".")
        git("commit", "-m", path)

    git("init")
    commit("part/a.py", "1")
    before = state(["part"], tmp_path)
    commit("other/b.py", "1")
    assert changed(["part"], before, tmp_path) == []
    assert changed(["part", "other"], before, tmp_path) == ["other was not measured"]
    git("commit", "--amend", "-m", "the same code, another commit")
    assert changed(["part"], before, tmp_path) == []
    commit("part/a.py", '"""What it is."""\n1  # the same code')
    assert changed(["part", "part/a.py"], state(["part", "part/a.py"], tmp_path), tmp_path) == []
    assert changed(["part"], before, tmp_path) == []

    (tmp_path / "part" / "a.py").write_text("2")
    dirty = state(["part"], tmp_path)
    assert dirty.dirty
    commit("part/a.py", "2")
    assert changed(["part"], before, tmp_path) == [f"part has changed since {before.commit}"]
    commit("part/c.txt", "words that are no code")
    words = state(["part"], tmp_path)
    commit("part/c.txt", "other words")
    assert changed(["part"], words, tmp_path) == [f"part has changed since {words.commit}"]
    assert changed(["part"], dirty, tmp_path) == [
        f"measured with changes that were not committed, after {dirty.commit}"
    ]
    assert changed(["part"], CodeState.of({}), tmp_path) == ["no commit is recorded"]
