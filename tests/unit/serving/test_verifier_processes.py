"""The pool of verifier processes: hung and killed workers cost their own item only, threads share it, it closes."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from processes import children

from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.runs.process import is_alive
from assay.score import Score, ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.source import load_prompts
from assay_policy_training.rollouts.rewards import VerifierReward, verifier_accuracy
from assay_serving.composition.checking import ConstraintScorer
from assay_serving.scorer import ScoreItem
from assay_serving.verifiers import (
    Constraint,
    MathAnswer,
    NoCommas,
    Outcome,
    PoolConfig,
    PythonTests,
    Regex,
    Verification,
    VerifierPool,
)
from assay_serving.verifiers.sandbox import worker_pool as worker_pool
from assay_serving.verifiers.sandbox.worker_pool import CRASHED, TIMEOUT, Item

pytest.importorskip("math_verify", reason="needs the extra verifiers")

HANG = Regex("(a+)+b")  # exponential in the number of a's
HUNG: Item = ((NoCommas(), HANG), "a" * 50)
PROMPT = (Message("user", "q"),)
PATIENCE_S = 120
LONG = 600  #: seconds of a check that is ended before


def answers(number: int) -> list[Item]:
    return [((MathAnswer(str(n)), NoCommas()), f"The answer is {n - n % 2}.") for n in range(number)]


def passed(outcome: Outcome) -> bool:
    assert isinstance(outcome, Verification), outcome
    return outcome.passed


def code(outcome: Outcome) -> str:
    assert isinstance(outcome, ScoreFailure), outcome
    return outcome.code


def workers() -> list[int]:
    """Process ids of this process's workers."""
    return children(os.getpid(), b"verifiers.sandbox.worker")


def session(process: Path) -> int | None:
    """The session of a process that runs."""
    with contextlib.suppress(OSError):
        state, _, _, number, *_ = (process / "stat").read_text().rpartition(")")[2].split()
        return None if state == "Z" else int(number)
    return None


@pytest.mark.slow
def test_a_hung_check_is_killed_and_the_others_keep_their_verdicts() -> None:
    before = set(workers())
    with VerifierPool(PoolConfig(workers=2, seconds=3)) as pool:
        items = [*answers(4), HUNG, *answers(8)]
        outcomes = pool.verify(items)
        assert code(outcomes.pop(4)) == TIMEOUT
        assert [passed(outcome) for outcome in outcomes] == [n % 2 == 0 for n in (*range(4), *range(8))]
        assert passed(pool.verify(answers(1))[0])
        assert len(set(workers()) - before) <= 2
    assert not set(workers()) - before


def test_a_killed_worker_costs_its_own_item_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """kill -9 of the worker that is busy, while another thread's items go on."""
    before, checking, reply = set(workers()), threading.Event(), worker_pool._Worker.reply

    def noted(worker: Any, seconds: float) -> Any:
        if seconds == LONG:  # the worker has said that it is ready, and checks
            checking.set()
        return reply(worker, seconds)

    monkeypatch.setattr(worker_pool._Worker, "reply", noted)
    with VerifierPool(PoolConfig(workers=2, seconds=LONG)) as pool, ThreadPoolExecutor(2) as other:
        hung = other.submit(pool.verify, [HUNG])
        assert checking.wait(PATIENCE_S)
        (busy,) = set(workers()) - before
        going_on = other.submit(pool.verify, answers(40))
        os.kill(busy, signal.SIGKILL)
        (outcome,) = hung.result(timeout=PATIENCE_S)
        other_verdicts = going_on.result(timeout=PATIENCE_S)
        assert code(outcome) == CRASHED
        assert isinstance(outcome, ScoreFailure)
        assert "SIGKILL" in outcome.message
        assert [passed(verdict) for verdict in other_verdicts] == [n % 2 == 0 for n in range(40)]


def test_a_program_ends_with_its_worker() -> None:
    """The processes of its sandboxes: each has a session of its own, whose number outlives the worker."""
    before = set(workers())
    sleeping = PythonTests(("f()",), seconds=60)
    with VerifierPool(PoolConfig(workers=1, seconds=LONG)) as pool, ThreadPoolExecutor(1) as other:
        asleep = other.submit(pool.verify, [((sleeping,), f"import time\ndef f(): time.sleep({LONG})")])
        wait_until(lambda: bool(set(workers()) - before))
        (worker,) = set(workers()) - before
        wait_until(lambda: len(children(worker, b"program_child")) >= 2)
        sessions = set(children(worker, b"program_child"))
        os.kill(worker, signal.SIGKILL)
        assert code(asleep.result(timeout=PATIENCE_S)[0]) == CRASHED
    wait_until(lambda: not sessions & {session(process) for process in Path("/proc").glob("[0-9]*")})


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_worker_out_of_memory_is_a_crash_and_not_a_verdict() -> None:
    with VerifierPool(PoolConfig(workers=1, memory=256 << 20)) as pool:
        greedy = Regex("(?:(a)|b)*c")  # remembers every a
        first, second = pool.verify([((greedy,), "a" * 2_000_000), *answers(1)])
        assert code(first) == CRASHED
        assert passed(second)


def test_threads_share_a_pool() -> None:
    with VerifierPool(PoolConfig(workers=2)) as pool, ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda n: [passed(o) for o in pool.verify(answers(n))], range(1, 13)))
    assert found == [[n % 2 == 0 for n in range(number)] for number in range(1, 13)]


def test_what_runs_nothing_foreign_starts_no_worker() -> None:
    before = workers()
    with VerifierPool(PoolConfig(workers=2)) as pool:
        assert [passed(o) for o in pool.verify([((NoCommas(),), "so"), ((NoCommas(),), "so, no")])] == [True, False]
        assert workers() == before


def test_an_idle_worker_that_died_is_replaced() -> None:
    before = set(workers())
    with VerifierPool(PoolConfig(workers=1)) as pool:
        pool.verify(answers(1))
        (idle,) = set(workers()) - before
        os.kill(idle, signal.SIGKILL)
        wait_until(lambda: not is_alive(idle))
        assert passed(pool.verify(answers(3))[2])


def test_wrong_requests() -> None:
    with VerifierPool(PoolConfig(workers=1)) as pool, pytest.raises(BadInputError, match="no constraints"):
        pool.verify([((), "text")])
    with pytest.raises(RuntimeError, match="shutdown"):
        pool.verify(answers(1))
    for wrong in ({"workers": -1}, {"seconds": 0.0}, {"memory": 1}):
        with pytest.raises(BadInputError):
            PoolConfig(**wrong)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The shared pool with a limit that is waited for."""
    pool = VerifierPool(PoolConfig(workers=2, seconds=3))
    monkeypatch.setattr(worker_pool, "_shared", (os.getpid(), pool))
    yield
    pool.close()


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_rewards_and_accuracy_are_missing_where_there_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = VerifierPool._ask_worker

    def counted(pool: VerifierPool, request: Any, seconds: float, kinds: str) -> Any:
        asked.append(kinds)
        return ask(pool, request, seconds, kinds)

    monkeypatch.setattr(VerifierPool, "_ask_worker", counted)
    checked: list[tuple[Constraint, ...]] = [(MathAnswer("4"), NoCommas()), (HANG,), (), (MathAnswer("4"),)]
    items = [PromptItem(PROMPT, constraints) for constraints in checked]
    responses = ["4, I think", HUNG[1], "4", r"\boxed{4}"]
    found = VerifierReward().score(items, responses)
    assert found.parts["verifier"].tolist() == pytest.approx([0.5, math.nan, math.nan, 1.0], nan_ok=True)
    assert [[f.code for f in failures] for failures in found.failures] == [[], [TIMEOUT], ["no_verifier"], []]
    assert sorted(asked) == ["math_answer", "math_answer", "regex"]
    accuracy = verifier_accuracy(items, responses)
    assert accuracy.tolist() == pytest.approx([0.0, math.nan, math.nan, 1.0], nan_ok=True)
    assert len(asked) == 3, "what has just hung is not run again"


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_a_composed_rewards_part_fails_with_its_reason() -> None:
    labels = [json.dumps([c.to_dict() for c in checks]) for checks in ([MathAnswer("4")], [HANG], [NoCommas()])]
    items = [ScoreItem(PROMPT, text, label=label) for text, label in zip(("4", HUNG[1], "a, b"), labels, strict=True)]
    right, hung, wrong = ConstraintScorer(None, "fraction").score([*items])
    assert isinstance(right, Score)
    assert isinstance(wrong, Score)
    assert (right.reward, wrong.reward) == (1.0, 0.0)
    assert isinstance(hung, ScoreFailure)
    assert (hung.code, hung.model) == (TIMEOUT, "constraints")


def test_programs_of_labels_run_only_where_the_part_says_so() -> None:
    label = json.dumps(PythonTests(("assert f(2) == 4",)).to_dict())
    item = ScoreItem(PROMPT, "def f(x): return 4", label=label)
    (refused,), (right,) = (ConstraintScorer(None, "passed", programs=on).score([item]) for on in (False, True))
    assert isinstance(refused, ScoreFailure)
    assert "programs: true" in refused.message
    assert isinstance(right, Score)
    assert right.reward == 1.0


def test_a_missing_package_is_said_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The worker finds no math-verify: here because a hook at its start hides it."""
    hide = (
        "import importlib.util as util\nreal = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'math_verify' else real(name, *more)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(hide, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with VerifierPool(PoolConfig(workers=1)) as pool, pytest.raises(BackendError, match=r"assay\[verifiers\]"):
        pool.verify(answers(1))


def test_short_forms_of_prompt_rows(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    rows = [
        {"prompt": "What is 6 x 12?", "answer": "#### 72", "constraints": [{"kind": "no_commas"}]},
        {"prompt": "What is 6 x 7?", "answer": 42},
        {"prompt": "Square.", "tests": ["assert f(2) == 4"], "entry_point": "f"},
        {"prompt": "Cube.", "tests": "assert f(2) == 8", "entry_point": "f"},
        {"prompt": "Own.", "answer": "4", "constraints": [{"kind": "math_answer", "answer": "5"}]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    items = load_prompts(str(path), seed=0)
    assert [item.constraints for item in items] == [
        (NoCommas(), MathAnswer("#### 72")),
        (MathAnswer("42"),),
        (PythonTests(("assert f(2) == 4",), entry_point="f"),),
        (PythonTests(("assert f(2) == 8",), entry_point="f"),),
        (MathAnswer("5"),),
    ]
    assert items[0].meta == {"answer": "#### 72"}


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"answer": ["72"]}, "answer"),
        ({"answer": " "}, "answer"),
        ({"answer": True}, "answer"),
        ({"tests": "assert ("}, "tests"),
        ({"tests": []}, "tests"),
        ({"tests": ["assert ("]}, "tests"),
        ({"tests": ["f()"], "entry_point": 3}, "entry_point"),
    ],
)
def test_wrong_short_forms_name_row_and_field(tmp_path: Path, row: dict[str, object], field: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "fine"}\n' + json.dumps({"prompt": "q", **row}), encoding="utf-8")
    with pytest.raises(BadInputError, match=rf"prompts.jsonl, row 2.*field '{field}'"):
        load_prompts(str(path), seed=0)
