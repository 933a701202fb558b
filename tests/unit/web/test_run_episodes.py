"""Episodes on the run page: turn by turn, each failure once, long texts cut."""

from __future__ import annotations

from pathlib import Path

from recorded_episodes import failed, game, played, rollout_row, write_rollouts

from assay.domain import Message
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.tool_use import Tools
from assay_web.run_charts import policy_charts
from assay_web.run_charts.chart import MetricExtents
from assay_web.runs.rollouts_reader import MOST_TEXT, episode_table, rollouts_of, samples_of


def test_an_episode_turn_by_turn(tmp_path: Path) -> None:
    write_rollouts(tmp_path, [game("cow", "alive?", "cow"), failed(game("cow", "alive?", "cow"))])
    rows = rollouts_of(tmp_path / "rollouts.jsonl", 1)
    total, (won, lost) = samples_of(rows, "best", limit=10, offset=0)
    assert total == 2
    assert won.episode is not None
    assert [[message.role for message in turn.messages] for turn in won.episode.turns] == [
        ["assistant", "user"],
        ["assistant"],
    ]
    assert [turn.rewards for turn in won.episode.turns] == [{"question": -0.1}, {"question": 0.0}]
    assert (won.episode.rewards, won.episode.ended, won.failures) == ({"win": 1.0}, "done", [])
    assert lost.failures == ["environment_timeout: no answer within 60 s"]  # not also that a part does not apply
    table = episode_table(rows, 0.5)
    assert table is not None
    assert table.title == "2 episodes, 1 of them failed (1 environment_timeout)"
    assert ["solved", "1", "-", "-", "1"] in table.rows
    assert episode_table([{"uid": "1", "response": "no episode"}], 0.5) is None


def test_wrong_calls_are_counted_and_long_texts_cut(tmp_path: Path) -> None:
    item = PromptItem((Message("user", "1 + 1?"),))
    texts = [
        "<tool_call>{no json</tool_call>",
        '<tool_call>{"name": "calculator", "arguments": {"expression": "1/0"}}</tool_call>',
        "x" * (MOST_TEXT + 9),
    ]
    (sample,) = samples_of([rollout_row(played(Tools(), item, texts), reward=0.0)], "best", limit=1, offset=0)[1]
    assert sample.episode is not None
    assert [(turn.calls, turn.invalid, turn.errors) for turn in sample.episode.turns] == [
        (1, 1, 1),
        (1, 0, 1),
        (0, 0, 0),
    ]
    (tools,) = sample.episode.opening
    assert isinstance(tools.content, list)
    assert tools.content[0]["type"] == "tool_definition"
    (last,) = sample.episode.turns[-1].messages
    assert isinstance(last.content, str)
    assert last.content.endswith("… (9 more characters in rollouts.jsonl)")
    assert len(sample.response) < MOST_TEXT + 60


def test_curves_of_episodes() -> None:
    names = ("turns_mean", "tool_calls", "invalid_calls", "turn_reward_field", "episodes_failed", "failed_invalid_call")
    charts = policy_charts(MetricExtents.of_rows([{"step": n, **dict.fromkeys(names, 0.5)} for n in (1, 2)]))
    assert {chart.title: [curve.key for curve in chart.curves] for chart in charts if chart.section == "Episodes"} == {
        "Turns": ["turns_mean"],
        "Calls of tools": ["tool_calls", "invalid_calls"],
        "Reward of a turn": ["turn_reward_field"],
        "Cut and failed": ["episodes_failed", "failed_invalid_call"],
    }
