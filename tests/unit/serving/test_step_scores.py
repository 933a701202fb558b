"""Responses in steps, from the client through the server to a process reward model: each step's log-odds come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.conversation.parts import TextPart, ToolCallPart, ToolDefinitionPart, ToolResultPart
from assay.domain import Message
from assay.errors import BadInputError
from assay.models.chat.options import ChatOptions
from assay.models.chat.renderer import Renderer
from assay.models.readings import Stepwise
from assay.score import Score, ScoreFailure
from assay_serving.client import AsyncRewardClient, RewardClient
from assay_serving.engines.process_reward import StepScorer
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.score_files import read_rows, score_rows
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.settings import ServerSettings

QUESTION = (Message("user", "What is 2 + 3 * 4?"),)
STEPS = ("3 * 4 = 12\nwhich is a dozen", "2 + 12 = 14")  # the first one holds the model's own separator


@pytest.fixture(scope="module")
def plain(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


@pytest.fixture(scope="module")
def scorer(plain: TransformersScorer) -> StepScorer:
    spec = replace(plain.spec, stepwise=Stepwise("\n", "product"))
    return StepScorer(plain.model, plain.renderer, spec, name="prm")


@pytest.fixture(scope="module")
def server(plain: TransformersScorer, scorer: StepScorer) -> Iterator[RunningServer]:
    with running_server({"rm": plain, "prm": scorer}, settings=ServerSettings()) as running:
        yield running


def test_a_served_score_has_the_steps_that_were_sent(server: RunningServer, scorer: StepScorer) -> None:
    (offline, cut) = scorer.score([ScoreItem.of_steps(QUESTION, STEPS), ScoreItem(QUESTION, "\n".join(STEPS))])
    assert isinstance(offline, Score)
    assert isinstance(cut, Score)
    assert (len(offline.steps), len(cut.steps)) == (2, 3)  # as given; where the model's separator cuts
    rows = [(QUESTION, STEPS), (QUESTION, ()), (QUESTION, STEPS[:1])]
    with RewardClient(server.url, model="prm") as client:
        blocking = client.score_steps(rows)
        assert [info.stepwise for info in client.models()] == [False, True]
        (whole,) = client.score([ScoreItem(QUESTION, "\n".join(STEPS))])

    async def ask() -> list[Any]:
        async with AsyncRewardClient(server.url, model="prm") as client:
            return await client.score_steps(rows)

    for both, none, first in (blocking, asyncio.run(ask())):
        assert isinstance(both, Score)
        assert both.steps == pytest.approx(offline.steps, abs=1e-5)
        assert both.reward == pytest.approx(scorer.reading.aggregate(offline.steps), abs=1e-5)
        assert [part.name for part in both.parts] == ["step-1", "step-2"]
        assert isinstance(none, ScoreFailure)
        assert "at least one step" in none.message
        assert isinstance(first, Score)
        assert len(first.steps) == 1
    assert isinstance(whole, Score)  # equal text, other steps: not from the cache
    assert whole.steps == pytest.approx(cut.steps, abs=1e-5)


@pytest.mark.parametrize("steps", ["one text", ("a", 1)])
def test_steps_that_are_no_list_of_texts_are_refused(steps: Any) -> None:
    with pytest.raises(BadInputError, match="must be a list of texts"):  # not scored letter by letter
        ScoreItem.of_steps(QUESTION, steps)


def test_a_model_that_reads_no_steps_refuses_them_in_one_line(server: RunningServer) -> None:
    with RewardClient(server.url, model="rm") as client, pytest.raises(BadInputError, match="reads no steps"):
        client.score_steps([(QUESTION, STEPS)])
    both = {"items": [{"prompt": "a", "response": "b", "steps": ["c"]}], "model": "prm"}
    reply = httpx.post(f"{server.url}/v1/score", json=both)
    assert reply.status_code == 422
    assert "give either response or steps" in reply.text


def test_rows_of_a_file_may_be_in_steps(tmp_path: Path, plain: TransformersScorer, scorer: StepScorer) -> None:
    path, lines = tmp_path / "rows.jsonl", list[str]()
    rows: list[dict[str, Any]] = [{"prompt": "a", "steps": ["b", "c"]}, {"prompt": "a", "steps": "b"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = score_rows(scorer, read_rows(path), write=lines.append)
    assert (report.scored, dict(report.failures)) == (1, {"bad_input": 1})
    assert len(json.loads(lines[0])["score"]["parts"]) == 2
    with pytest.raises(BadInputError, match="reads no steps"):
        score_rows(plain, read_rows(path), write=lines.append)


#: As many templates write calls, results and definitions.
CALLING = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>"
    "{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALL = Message("assistant", (TextPart("I look."), ToolCallPart("weather", '{"town":"Ulm"}')))
TURNS = (CALL, Message("tool", (ToolResultPart("rain", None, "weather"),)), Message("assistant", "It rains in Ulm."))
WITH_TOOL = (Message("system", (ToolDefinitionPart("weather", "of a town", "{}"),)), Message("user", "Is it raining?"))


def turn_scorer(plain: TransformersScorer, template: str) -> StepScorer:
    renderer = Renderer(plain.renderer.tokenizer, max_length=512, chat=ChatOptions(template=template))
    spec = replace(plain.spec, stepwise=Stepwise("\n", "min"), template_hash=renderer.template_hash)
    return StepScorer(plain.model, renderer, spec, name="turns")


def test_each_turn_is_scored_as_the_conversation_that_ends_with_it(plain: TransformersScorer) -> None:
    scorer = turn_scorer(plain, CALLING)
    whole, first = scorer.score([ScoreItem(WITH_TOOL, TURNS), ScoreItem(WITH_TOOL, TURNS[:1])])
    assert isinstance(whole, Score)
    assert isinstance(first, Score)
    assert len(whole.steps) == 2
    assert whole.steps[0] == pytest.approx(first.steps[0], abs=1e-5)
    assert whole.reward == min(whole.steps)
    (stock,) = TransformersScorer(plain.model, scorer.renderer, replace(scorer.spec, stepwise=None), name="rm").score(
        [ScoreItem(WITH_TOOL, TURNS)]
    )
    assert isinstance(stock, Score)
    assert whole.steps[1] == pytest.approx(stock.reward, abs=1e-5)  # what any other engine gives


def test_turns_that_cannot_be_read_are_refused_by_name(scorer: StepScorer, plain: TransformersScorer) -> None:
    (untold,) = scorer.score([ScoreItem(WITH_TOOL, TURNS)])
    assert isinstance(untold, ScoreFailure)
    assert "no place for tool" in untold.message
    forgetful = "{% for m in messages %}{{ m.role }}: {% if loop.last %}{{ m.content }}{% endif %}\n{% endfor %}"
    spoken = (Message("assistant", "One."), Message("user", "And?"), Message("assistant", "Two."))
    (changed,) = turn_scorer(plain, forgetful).score([ScoreItem(QUESTION, spoken)])
    assert isinstance(changed, ScoreFailure)
    assert "writes a turn in another way once others follow it" in changed.message
