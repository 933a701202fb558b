"""Judges as they were trained, as a person runs them: `assay judge run`, `assay eval --judge`, `assay score`, served.

An endpoint answers in the style of each judge by which response is the longer one; what cannot be read ends a command
with its code, an example and the profile that the replies look like.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from assay_command import Run
from empty_workspaces import new_workspace

from assay.http.running import running_app
from assay.workspace import Workspace
from assay_serving.chat.app import create_chat_app
from assay_serving.chat.scripted import ReceivedRequest, ScriptedChat
from assay_serving.client import RewardClient
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import Loader
from assay_serving.process import running_server
from assay_serving.scorer import ScoreItem

COUNT = 6


def right(n: int) -> str:
    return f"Answer {n} with every reason for it"


def wrong(n: int) -> str:
    return f"No answer {n}"


@contextmanager
def endpoint(style: Callable[[bool, str], str]) -> Iterator[tuple[str, ScriptedChat[ReceivedRequest]]]:
    """`style`: (whether the right response stands first, the question) -> the reply."""

    def rule(request: ReceivedRequest) -> str:
        text = str(request.body["messages"][-1]["content"])
        first = text.find("with every reason")
        return style(0 <= first < text.find("No answer") or "No answer" not in text, text)

    chat: ScriptedChat[ReceivedRequest] = ScriptedChat(rule)
    with running_app(create_chat_app(chat)) as url:
        yield f"{url}/v1", chat


def by_letters(template: str) -> Callable[[bool, str], str]:
    return lambda first, _: template.format("A" if first else "B")


STYLES = {
    "rm-r1": by_letters("<type>Chat</type>\n<eval>It says why.</eval>\n<answer>[[{0}]]</answer>"),
    "arena-hard": lambda first, _: f"My final verdict is: [[{'A>>B' if first else 'B>>A'}]]",
    "selene-pairwise": by_letters("**Reasoning:** It says why.\n\n**Result:** {0}"),
}


@pytest.fixture
def root(tmp_path: Path, assay: Run) -> Path:
    workspace = new_workspace(tmp_path / "workspace")
    rows = [{"prompt": f"Question {n}?", "chosen": right(n), "rejected": wrong(n)} for n in range(COUNT)]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert assay("data", "import", file, "--source", "pairs", "-w", workspace.root)[0] == 0
    return workspace.root


def judgments(root: Path) -> dict[str, list[tuple[bool, int | None]]]:
    """(answer agrees with the source, strength) of every opinion, by annotator."""
    with Workspace.open(root).store.unit() as db:
        rows = db.execute(
            """SELECT name, o.answer = s.label, o.strength FROM opinions o JOIN annotators a USING (annotator_id)
               JOIN source_labels s USING (comparison_id) WHERE a.kind = 'llm' AND o.origin = '' ORDER BY ALL"""
        ).fetchall()
    found: dict[str, list[tuple[bool, int | None]]] = {}
    for name, agrees, strength in rows:
        found.setdefault(name.split("@")[0], []).append((agrees, strength))
    return found


@pytest.mark.parametrize("profile", STYLES)
def test_judge_run_reads_a_judge_in_its_own_style(root: Path, assay: Run, profile: str) -> None:
    with endpoint(STYLES[profile]) as (url, chat):
        judge = ("--judge", "openai", "--base-url", url, "--model", "judge", "--judge-profile", profile)
        code, out, err = assay("judge", "run", *judge, "--both-orders", "-w", root)
        assert code == 0, err
        assert f": {COUNT} of {COUNT} comparisons answered" in out
    bodies = [request.body for request in chat.requests]
    assert len(bodies) == 2 * COUNT
    assert not any("response_format" in body for body in bodies)
    assert {body["max_tokens"] for body in bodies} == {{"rm-r1": 8192, "arena-hard": 4096}.get(profile, 1024)}
    strength = 3 if profile == "arena-hard" else None
    assert judgments(root) == {"judge": [(True, strength)] * COUNT}


def test_a_file_of_judges_names_profiles_of_single_responses_and_of_ones_own(
    root: Path, assay: Run, tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text(
        'responses: 2\nuser: "{prompt}|{response_a}|{response_b}"\n'
        "reads: {pattern: \"winner is (1|2)\", values: {'1': A, '2': B}}\n"
    )

    def style(first: bool, text: str) -> str:
        if "|" in text:
            return f"The winner is {1 if first else 2}"
        return f"Feedback. [RESULT] {5 if 'with every reason' in text else 2}"

    with endpoint(style) as (url, chat):
        file = tmp_path / "judges.yaml"
        file.write_text(
            f"judges:\n  - {{kind: openai, base_url: '{url}', model: m, name: scores, profile: prometheus-2}}\n"
            f"  - {{kind: openai, base_url: '{url}', model: m, name: own, profile: own.yaml}}\n"
        )
        code, out, err = assay("judge", "run", "--judges", file, "-w", root)
        assert code == 0, err + out
        assert len(chat.requests) == 3 * COUNT
        code, out, _ = assay("judge", "run", "--judges", file, "-w", root, "--json")
        assert code == 0
        assert [judge["known"] for judge in json.loads(out)["judges"]] == [COUNT, COUNT]
        assert len(chat.requests) == 3 * COUNT
    assert judgments(root) == {"scores": [(True, None)] * COUNT, "own": [(True, None)] * COUNT}


@pytest.mark.slow
def test_replies_that_cannot_be_read_end_with_an_example_and_the_profile_they_look_like(root: Path, assay: Run) -> None:
    with endpoint(STYLES["rm-r1"]) as (url, _):
        judge = ("--judge", "openai", "--base-url", url, "--model", "judge", "-w", root)
        code, out, _ = assay("judge", "run", *judge, "--judge-profile", "prometheus-2-pairwise")
        assert code == 2
        assert f"{COUNT} of {COUNT} replies of judge could not be read as prometheus-2-pairwise, e.g. '" in out
        assert "they look like judge profile rm-r1" in out
    with endpoint(lambda first, _: f"Scores: \\boxed{{{'7, 3' if first else '3, 7'}}}") as (url, _):
        judge = ("--judge", "openai", "--base-url", url, "--model", "other", "-w", root)
        code, out, _ = assay("judge", "run", *judge, "--json")  # asked for our own JSON
        assert code == 2
        (line,) = json.loads(out)["unreadable"]
        assert f"{2 * COUNT} of {2 * COUNT} replies of other could not be read as JSON" in line  # each asked again once
        assert "they look like judge profile deepseek-grm (" in line
    assert judgments(root) == {}


def write_judgebench(path: Path, count: int) -> Path:
    rows = [
        {
            "pair_id": f"u-{n}",
            "source": "livebench-math",
            "question": f"Question {n}?",
            "response_model": "m",
            "response_A": wrong(n) if n % 2 else right(n),
            "response_B": right(n) if n % 2 else wrong(n),
            "label": "B>A" if n % 2 else "A>B",
        }
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("profile", STYLES)
def test_eval_reads_a_judge_in_its_own_style(assay: Run, tmp_path: Path, profile: str) -> None:
    items = write_judgebench(tmp_path / "items.jsonl", COUNT)
    with endpoint(STYLES[profile]) as (url, _):
        judge = ("--bench", "judgebench", "--path", items, "--judge", url, "--server-model", "judge", "--json")
        code, out, err = assay("eval", *judge, "--judge-profile", profile)
        assert code == 0, err
        report = json.loads(out)
        assert (report["aggregates"]["overall"], report["failures"], report["judge_profile"]) == (1.0, {}, profile)
        code, out, err = assay("eval", *judge)  # the question and the reader of our own format
        assert code == 2
        line = json.loads(out)["error"]["message"]
        assert f"{2 * COUNT} of {2 * COUNT} replies of judge could not be read as pairwise, e.g. " in line
        assert f"they look like judge profile {profile}" in line


def test_eval_counts_unreadable_replies_and_fails_where_they_are_most(assay: Run, tmp_path: Path) -> None:
    items = write_judgebench(tmp_path / "items.jsonl", COUNT)

    def mostly(readable: int) -> Callable[[bool, str], str]:
        return lambda first, text: (
            STYLES["rm-r1"](first, text) if any(f"Question {n}?" in text for n in range(readable)) else "No idea."
        )

    judge: list[Any] = ["--bench", "judgebench", "--path", items, "--server-model", "j", "--judge-profile", "rm-r1"]
    with endpoint(mostly(4)) as (url, _):
        code, out, err = assay("eval", *judge, "--judge", url, "--json")
        assert code == 0, err
        report = json.loads(out)
        assert report["failures"] == {"unparsable": 2}
        assert report["unread_replies"]["unread"] == 4
        assert report["unread_replies"]["example"] == "No idea."
        assert "null_decisions" not in report["counts"] or report["counts"]["null_decisions"] == 0
    with endpoint(mostly(2)) as (url, _):
        code, out, err = assay("eval", *judge, "--judge", url, "--json")
        assert code == 2
        assert json.loads(out)["failures"] == {"unparsable": 4}  # what could be read is reported all the same
        assert "8 of 12 replies of j could not be read as rm-r1, e.g. 'No idea.'" in err
        assert "no judge profile reads them either" in err
        data = tmp_path / "pairs.jsonl"
        data.write_text(json.dumps({"prompt": "Question 9?", "chosen": right(9), "rejected": wrong(9)}) + "\n")
        code, out, err = assay(
            "eval-judge", "--judge", url, "--model", "j", "--judge-profile", "rm-r1", "--data", data, "--json"
        )
        assert code == 2
        assert json.loads(out)["faults"] == {"no_verdict": 2}
        assert "2 of 2 replies of j could not be read as rm-r1" in err


def test_a_local_judge_with_a_profile_scores_serves_and_judges(
    root: Path, assay: Run, tmp_path: Path, tiny_judges: dict[str, Path]
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        'responses: 1\nuser: "{prompt} {response}"\ngeneration: {max_new_tokens: 24}\n'
        'reads: {pattern: "^Verdict: (Yes|No)$", values: {"Yes": 1, "No": 0.25}}\n'
    )
    model = ("--model", tiny_judges["pointwise"], "--judge-profile", own)
    code, out, err = assay("score", *model, "--prompt", "Name a metal.", "--response", "gold", "--json")
    assert code == 0, err
    (score,) = json.loads(out)["scores"]
    assert score["reward"] == 0.25
    scorer = Loader().open_served(ModelConfig(str(tiny_judges["pointwise"]), device="cpu", judge_profile=str(own)))
    with running_server({"judge": scorer}) as running, RewardClient(running.url) as client:
        (served,) = client.score([ScoreItem(_prompt(), "gold")])
        assert getattr(served, "reward", served) == 0.25
    file = tmp_path / "judges.yaml"
    file.write_text(f"judges: [{{kind: reward_model, model: '{tiny_judges['pointwise']}', profile: own.yaml}}]\n")
    code, out, err = assay("judge", "run", "--judges", file, "-w", root)
    assert code == 0, err
    assert f"{COUNT} of {COUNT} comparisons answered" in out


def _prompt() -> Any:
    from assay.domain import Message

    return (Message("user", "Name a metal."),)
