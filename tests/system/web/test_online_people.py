"""An online loop whose labels come from people, through the queue and the page's own routes, as the policy trains."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from annotating import cast
from web_pages import PATIENCE_S, running_web, signed_in

from assay import ids
from assay.domain import prompt_of
from assay.runs.lineage import lineage
from assay.workspace import Workspace

pytestmark = pytest.mark.slow
QUEUE = "loop-peopled"
LOOP = {
    "name": "peopled",
    "policy": "tiny",
    "set": {
        "steps": 24,
        "sampling.prompts_per_step": 4,
        "sampling.group_size": 4,
        "sampling.max_new_tokens": 8,
        "checkpoint_every": 2,
    },
    "training": {"prompts": ["constrained:24"], "device": "cpu"},
    "reward": {"labels": 12, "members": 3, "l2": 0.1},
    "labels": {"every": 4, "count": 4, "held_out": 0.0, "source": {"kind": "people"}},
}


def annotate(url: str, person: str, accuracy: float, over: threading.Event, votes: list[str]) -> None:
    """Takes what the queue has and prefers the longer response, with errors that a hash decides."""
    with signed_in(url, person) as client:
        while not over.is_set():
            reply = client.post(f"/api/annotate/queues/{QUEUE}/item")
            item = reply.json()["item"] if reply.status_code == 200 else None
            if item is None:
                time.sleep(0.05)
                continue
            first, second = (json.dumps(item[side]) for side in ("first", "second"))
            better, worse = ("first", "second") if len(first) > len(second) else ("second", "first")
            right = ids.fraction(person, *sorted((first, second))) < accuracy
            cast(client, QUEUE, item, person, choice=better if right else worse).raise_for_status()
            votes.append(person)


@contextmanager
def annotators(url: str) -> Iterator[list[str]]:
    over, votes = threading.Event(), list[str]()
    people = [threading.Thread(target=annotate, args=(url, name, 0.9, over, votes)) for name in ("ann", "ben")]
    for person in people:
        person.start()
    try:
        yield votes
    finally:
        over.set()
        for person in people:
            person.join(PATIENCE_S)


def rows(path: Path) -> list[dict[str, Any]]:
    listed = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            listed.append(json.loads(line))
        except ValueError:  # being written
            break
    return listed


def newest(workspace: Workspace, name: str) -> Path:
    return max(workspace.runs.glob("*/loop.json"), key=lambda path: path.parent.name).with_name(name)


def test_two_rounds_of_votes_survive_kill_9_and_reach_the_rewards(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "peopled.yaml"
    file.write_text(yaml.safe_dump(LOOP), encoding="utf-8")
    command = [sys.executable, "-m", "assay.cli", "loop", str(file), "-w", str(workspace.root)]

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=(tmp_path / "errors").open("ab"))

    with running_web(workspace) as url, annotators(url):
        process = begin()
        deadline = time.monotonic() + PATIENCE_S
        while not (workspace.runs.is_dir() and any(workspace.runs.glob("*/loop.json"))) or not any(
            row["step"] >= 4 and row["label"] for row in rows(newest(workspace, "labels.jsonl"))
        ):
            assert process.poll() is None, (tmp_path / "errors").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = rows(newest(workspace, "labels.jsonl"))
        process = begin()
        assert process.wait(PATIENCE_S) == 0, (tmp_path / "errors").read_text()
    labels = rows(newest(workspace, "labels.jsonl"))
    told = [(row["step"], row["comparison_id"], row["label"], row["judgments"]) for row in labels]
    assert told[: len(before)] == [(r["step"], r["comparison_id"], r["label"], r["judgments"]) for r in before]
    answered = {row["comparison_id"]: row for row in labels if row["label"]}
    assert len({row["step"] for row in answered.values()}) >= 3, "the first labels, and two rounds"
    asked = {row["comparison_id"] for row in labels}
    with workspace.store.unit() as db:
        queued = [c for (c,) in db.execute("SELECT comparison_id FROM queue_items").fetchall()]
        votes = db.execute("SELECT comparison_id, count(*) FROM judgments GROUP BY 1").fetchall()
    assert sorted(asked) == sorted(queued), "nothing else was queued"
    assert all(count == 1 for _, count in votes), "and one vote each, as configured"

    swaps = [row for row in rows(newest(workspace, "events.jsonl")) if row["kind"] == "swap"]
    assert len(swaps) >= 2
    vote = next(row["judgments"][0] for row in answered.values() if row["step"] == 4 and row["label"] != "tie")
    walked = {node.id: node.kind for node in lineage(workspace, vote, "down", depth=6, width=500).walk()}
    later = [row for row in rows(newest(workspace, "rollouts.jsonl")) if row["step"] == swaps[-1]["step"] + 1]
    scored = {ids.response_id(ids.prompt_id(prompt_of(row["prompt"])), row["response"]) for row in later}
    assert scored <= walked.keys()
