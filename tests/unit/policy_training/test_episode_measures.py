"""Episodes measured and shown: by hand, with what failed named and never counted as 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from assay_command import captured
from recorded_episodes import failed, game, played, rollout_row, write_rollouts

from assay.conversation.parts import TextPart, ToolCallPart, ToolDefinitionPart, ToolResultPart
from assay.domain import Message
from assay.workspace import Workspace
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.measures.episodes import EpisodeFigure, RecordedEpisode, episode_figures, failures_of
from assay_policy_training.plugins.environments.conversation import recorded_conversation
from assay_policy_training.plugins.environments.tool_use import Tools

ITEM = PromptItem((Message("system", "Be brief."), Message("user", "12 * (3 + 4)?")))


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def measured(rows: list[dict[str, Any]]) -> dict[str, EpisodeFigure]:
    episodes = [
        RecordedEpisode(row["task_id"], row["episode"], None if row["reward"] is None else row["reward"] > 0.5)
        for row in rows
    ]
    return {figure.figure: figure for figure in episode_figures(episodes)}


def test_figures_by_hand() -> None:
    """Three games: won in two turns, won in four (with a turn that loops), lost in one; one failed."""
    won, slow, lost = game("cow", "alive?", "cow"), game("cow", "large?", "large?", "wild?", "cow"), game("cow", "cat")
    found = measured([won, slow, lost, failed(game("cow", "alive?", "cow"))])
    assert {name: (f.value, f.episodes) for name, f in found.items() if name.startswith("solved")} == {
        "solved": (pytest.approx(2 / 3), 3),
        "solved_within_1": (0, 3),
        "solved_within_2": (pytest.approx(1 / 3), 3),
        "solved_within_3": (pytest.approx(1 / 3), 3),
    }
    assert found["turns"].value == found["tokens"].value == pytest.approx(7 / 3)  # a word a turn
    assert found["loops"].value == pytest.approx(1 / 3)
    assert [found[f"question_turn_{n}"].value for n in (1, 2)] == [pytest.approx(-0.2 / 3), pytest.approx(-0.1 / 2)]
    assert found["solved"].low is None  # three episodes of one prompt say nothing of others


def test_calls_a_success_and_intervals_over_prompts() -> None:
    rows = []
    for number in range(12):
        item = PromptItem((*ITEM.prompt, Message("user", str(number))))
        calls = [call("calculator", expression="3+4")] * (1 + number % 2) + [call("nothing")] * (number == 0)
        rows.append(rollout_row(played(Tools(), item, [*calls, "84"]), reward=float(number % 3 > 0)))
    found = measured(rows)
    assert found["calls_a_success"].value == pytest.approx(19 / 8)
    low, high = found["calls_a_success"].low, found["calls_a_success"].high
    assert low is not None
    assert high is not None
    assert 0 < low < 19 / 8 < high
    assert found["invalid_calls"].value == pytest.approx(1 / 12)
    assert found["solved"].low is not None
    assert failures_of([RecordedEpisode("p", failed(rows[0])["episode"], None)] * 2) == {"environment_timeout": 2}
    assert measured([row | {"reward": 0.0} for row in rows])["calls_a_success"].value is None


def test_an_episode_is_the_conversation_that_it_was() -> None:
    text = f"I add first.\n{call('calculator', expression='3+4')}"
    bad = "<tool_call>{no json</tool_call>"
    row = rollout_row(played(Tools(), ITEM, [text, bad, "84"]), reward=1.0)
    conversation = recorded_conversation(json.loads(json.dumps(row)))
    assert conversation is not None
    tool, rule = conversation.prompt[0].parts
    assert isinstance(tool, ToolDefinitionPart)
    assert tool.name == "calculator"
    assert rule == TextPart("Be brief.")
    assert not isinstance(conversation.response, str)
    first, answer, second, refusal, last = conversation.response
    assert first.parts == (TextPart("I add first."), ToolCallPart("calculator", '{"expression":"3+4"}'))
    assert answer == Message("tool", (ToolResultPart("7", None, "calculator"),))
    assert second == Message("assistant", bad)
    assert refusal.text.startswith("error: the call is no JSON")
    assert last == Message("assistant", "84")
    plain = recorded_conversation(game("cow", "alive?", "cow"))
    assert plain is not None
    assert [m.text for m in plain.response if isinstance(m, Message)] == ["alive?", "yes", "cow"]
    assert recorded_conversation({**row, "episode": {**row["episode"], "turns": []}}) is None


def test_the_command_measures_runs(workspace: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = captured(capsys)
    rows = [game("cow", "alive?", "cow" if n % 2 else "cat", number=n) for n in range(12)]
    write_rollouts(workspace.runs / "run-a", [*rows, failed(rows[0], "invalid_call"), failed(rows[1])])
    code, out, err = run("measure", "episodes", "run-a", "-w", workspace.root, "--pass-above", "0.5", "--json")
    assert code == 0, err
    printed = json.loads(out)
    solved = next(row for row in printed["table"] if row["figure"] == "solved")
    assert (solved["value"], solved["episodes"]) == (0.5, 12)
    assert 0.1 < solved["low"] < 0.5 < solved["high"] < 0.9
    coverage = {"policy": "run-a", "episodes": 14, "tasks": 12, "failed": 2, "no_verdict": 0, "others": 0}
    assert printed["coverage"] == [{**coverage, "by": "invalid_call 1, environment_timeout 1"}]
    plain = tmp_path / "plain.jsonl"
    plain.write_text(json.dumps({"prompt_id": "p-1", "response": "no episode"}) + "\n", encoding="utf-8")
    code, out, err = run("measure", "episodes", str(plain), "-w", workspace.root)
    assert code == 2
    assert "has no episodes" in err
