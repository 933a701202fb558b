"""What a card, and a tracker, get of a run's settings: no addresses, folders or passwords of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BackendError
from assay.runs.publishing import _public, _without_folders
from assay.runs.trackers import Tracker, open_trackers

RECEIVED: list[Mapping[str, Any]] = []
CLOSED: list[bool] = []


class SettingsTracker(Tracker):
    def __init__(self, folder: Path, settings: Mapping[str, Any], keep_to_step: int) -> None:
        RECEIVED.append(settings)

    def close(self) -> None:
        CLOSED.append(self.failed)


class BrokenTracker(SettingsTracker):
    def log(self, metrics: Mapping[str, float], step: int) -> None:
        raise ValueError("no\nroute")

    def close(self) -> None:
        raise BackendError("no connection")


def test_addresses_of_servers_and_clusters_are_left_out() -> None:
    settings = {"asynchrony": {"run_on": "ray:10.0.0.5:6379"}, "rewards": ["q=http://me:pw@host:1#safety", "verifier"]}
    assert _public(settings) == {"asynchrony": {"run_on": "a server"}, "rewards": ["q=a server of safety", "verifier"]}


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("| r | dpo:/home/me/gone/pol@/home/me/gone/ref |", "| r | dpo:pol@ref |"),
        (
            "| p | maths=/home/me/gone/a.jsonl@0.7, /home/me/gone/b.jsonl@0.3 |",
            "| p | maths=a.jsonl@0.7, b.jsonl@0.3 |",
        ),
        ("/home/me/gone/mine.py:letters", "mine.py:letters"),
        ("https://example.org/a/b/c and/or </s> /no_think", "https://example.org/a/b/c and/or </s> /no_think"),
    ],
)
def test_folders_are_left_out_also_where_they_are_gone(text: str, public: str) -> None:
    assert _without_folders(text) == public


def test_a_tracker_gets_no_password_of_an_address(tmp_path: Path) -> None:
    settings = {"rewards": ["http://me:pw@host:1/x", "https://host/@y"], "prompts": "a.jsonl@0.7"}
    with open_trackers([f"{__name__}:SettingsTracker"], tmp_path, settings, keep_to_step=0):
        assert RECEIVED == [{"rewards": ["http://host:1/x", "https://host/@y"], "prompts": "a.jsonl@0.7"}]


def test_a_tracker_that_cannot_be_closed_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_trackers([f"{__name__}:BrokenTracker"], tmp_path, {}, keep_to_step=0):
        pass
    assert caplog.messages == ["a tracker was not closed: no connection"]


def test_a_tracker_is_closed_as_failed_after_an_error(tmp_path: Path) -> None:
    del CLOSED[:]
    names = [f"{__name__}:SettingsTracker"]
    with open_trackers(names, tmp_path, {}, keep_to_step=0):
        pass
    with pytest.raises(KeyboardInterrupt), open_trackers(names, tmp_path, {}, keep_to_step=0):
        raise KeyboardInterrupt
    assert CLOSED == [False, True]


def test_what_a_tracker_of_ones_own_raises_is_one_line_with_its_name(tmp_path: Path) -> None:
    name = f"{__name__}:BrokenTracker"
    with (
        pytest.raises(BackendError, match=f"^tracker {name}: ValueError: no route$"),
        open_trackers([name], tmp_path, {}, keep_to_step=0) as trackers,
    ):
        trackers[0].on_step({"step": 1, "loss": 0.5})
