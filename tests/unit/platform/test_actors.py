"""Actors of this machine: one that does not answer is lost after its deadline, like one of a cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from assay.compute import actors
from assay.compute.actors import ActorLostError, CallDeadline, LocalActor


class Echo:
    def said(self, text: str) -> str:
        return text


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalActor]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    with closing(LocalActor("test_actors:Echo", {})) as actor:
        yield actor


def test_the_deadline_follows_the_longest_call() -> None:
    deadline = CallDeadline()
    limits = [deadline.seconds]
    for seconds in (3.0, 20.0, 1.0):
        deadline.answered_in(seconds)
        limits.append(deadline.seconds)
    assert limits == [1800.0, 60.0, 120.0, 120.0]


@pytest.mark.parametrize("length", [1, 1 << 22], ids=["short", "more than a pipe holds"])
def test_a_stopped_process_is_lost_after_its_deadline(
    echo: LocalActor, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors, "LEAST_CALL_S", 0.2)
    monkeypatch.setattr(actors, "LONGEST_CALLS", 0.0)
    assert echo.call("said", "a") == "a"
    assert echo.pid is not None
    os.kill(echo.pid, signal.SIGSTOP)
    with pytest.raises(ActorLostError, match="no answer for 0 s"):
        echo.call("said", "b" * length)
