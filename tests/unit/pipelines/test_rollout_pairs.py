"""Which pairs of a run's rollouts people are asked first; steps of a response that are its turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded_episodes import failed, game, write_rollouts

from assay.conversation.message import response_text, turn_spans
from assay.conversation.parts import TextPart, ToolCallPart
from assay.domain import Message
from assay_pipelines.annotation.rollout_pairs import uncertain_pairs


def answer(text: str, reward: float | None, uid: str = "1.0", **fields: Any) -> dict[str, Any]:
    prompt = [{"role": "user", "content": f"q{uid}"}]
    row = {"step": 1, "uid": uid, "prompt": prompt, "response": text, "reward": reward, "parts": {}, "scores": {}}
    return row | fields


def pairs(tmp_path: Path, rows: list[dict[str, Any]]) -> list[tuple[list[Any], float]]:
    write_rollouts(tmp_path, rows)
    return [(pair["responses"], pair["doubt"]) for pair in uncertain_pairs(tmp_path / "rollouts.jsonl")]


def test_the_closest_pair_of_a_group_and_those_whose_parts_disagree(tmp_path: Path) -> None:
    near = [answer("a", 0.0), answer("b", 3.0), answer("c", 2.5), answer("d", None), answer("b", 3.0)]
    ((responses, doubt),) = pairs(tmp_path, near)
    assert responses == ["b", "c"]
    assert doubt == pytest.approx(2.718281828459045 ** (-0.5 / 1.2437342963832749))
    split = [answer("a", 2.0, parts={"x": 2.0, "y": 0.0}), answer("b", 0.0, parts={"x": 0.0, "y": 4.0})]
    ((responses, doubt),) = pairs(tmp_path, split)
    assert responses == ["a", "b"]
    assert doubt == pytest.approx(2.718281828459045**-2 + 2)  # y, with its deviation of 2, prefers b by 4
    sure = [
        answer("a", 1.0, scores={"rm": {"uncertainty": 3.0}}),
        answer("b", 0.0, scores={"rm": {"uncertainty": 4.0}}),
    ]
    assert pairs(tmp_path, sure)[0][1] == pytest.approx(2.718281828459045 ** (-1 / 5))


def test_episodes_are_paired_with_their_turns_and_failed_ones_not_at_all(tmp_path: Path) -> None:
    rows = [game("cow", "alive?", "cow"), failed(game("cow", "wild?")), game("cow", "cat")]
    ((responses, _),) = pairs(tmp_path, rows)
    assert [message["content"] for message in responses[0]] == ["alive?", "yes", "cow"]
    assert responses[1] == "cat"
    told = game("cow", "cat")
    told["episode"]["opening"] = [{"role": "user", "content": "It is in a field."}]
    assert pairs(tmp_path, [rows[0], told]) == []


def test_where_the_turns_of_the_assistant_stand() -> None:
    call = Message("assistant", (TextPart("I look."), ToolCallPart("weather", '{"town":"Ulm"}')))
    turns = (call, Message("tool", "rain"), Message("assistant", "It rains.\n\nTake a coat."))
    text = response_text(turns)
    assert [text[start:end] for start, end in turn_spans(turns)] == [call.text, "It rains.\n\nTake a coat."]
    assert turn_spans("One turn.\n\nOne step.") == [(0, 20)]
    assert turn_spans((call,)) == [(0, len(call.text))]
