"""Judges that call tools before their verdict: rounds, what is read and counted, endpoints in OpenAI's form."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request

from assay.domain import Message
from assay.errors import BadInputError
from assay.http.running import running_app
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.models.spec import Judging, RewardModelSpec
from assay.score import Score, ScoreFailure
from assay_serving.chat.client import ChatEndpoint
from assay_serving.generative.engine import GenerativeScorer
from assay_serving.generative.generation import Sampled, SamplingParams
from assay_serving.generative.local import described
from assay_serving.generative.profiles.profile import profile_of
from assay_serving.generative.reader import VerdictReader
from assay_serving.generative.remote import RemoteWriter
from assay_serving.generative.templates import POINTWISE
from assay_serving.generative.token_writer import TokenWriter
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_scorer
from assay_serving.scorer import ScoreItem

ITEM = ScoreItem((Message("user", "What is 2 * 62?"),), "124")
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2 * 62"}}\n</tool_call>'
TOOLS = replace(POINTWISE.judging, tools=("calculator",), max_new_tokens=100)


class Said(TokenWriter):
    """A writer whose turns are given by a rule, from the text of the row so far."""

    repeatable = True

    def __init__(self, rule: Callable[[str], str], judging: Judging, context: int = 5000) -> None:
        renderer = Renderer(load_tokenizer("tiny"), max_length=5000)
        spec = RewardModelSpec("generative", "said", renderer.template_hash, 5000, "v", judging=judging)
        super().__init__(renderer, described("said", spec, dtype="", device=""), context=context)
        self.spec, self.rule, self.read_at, self.batches = spec, rule, list[list[int]](), list[int]()

    def generate(
        self, prompts: Sequence[tuple[int, ...]], sampling: SamplingParams, *, samples: int, seed: int
    ) -> list[list[Sampled] | ScoreFailure]:
        self.batches.append(len(prompts))
        said = [self.rule(str(self.renderer.tokenizer.decode(list(row)))) for row in prompts]
        return [[Sampled(tuple(self._plain_ids(text)), True)] * samples for text in said]

    def next_logps(self, rows: Sequence[list[int]], tokens: Sequence[int]) -> list[dict[int, float]]:
        self.read_at += [list(row) for row in rows]
        return [{token: -1.0 - number for number, token in enumerate(tokens)} for _ in rows]


def checked(row: str) -> str:
    if "<|im_start|>tool" not in row:
        return f"I compute it.\n{CALL}"
    return "It is right.\nVerdict: Yes" if "tool\n124" in row else "It is wrong.\nVerdict: No"


def test_the_verdict_follows_the_tools_result() -> None:
    writer = Said(checked, TOOLS)
    scorer = GenerativeScorer(writer, writer.spec)
    [examined] = scorer.examine([ITEM])
    assert not isinstance(examined, ScoreFailure)
    [answer] = examined.answers
    assert answer.label == "Yes"
    assert answer.text == f"I compute it.\n{CALL}\n<tool_response>\n124\n</tool_response>\nIt is right.\nVerdict: Yes"
    assert answer.reasoning.endswith("It is right.")  # what a vote keeps as its rationale
    assert answer.turns[0].to_dict()["results"][0]["content"] == "124"
    # The label's log-probs are read after the whole row, as it was generated.
    row = str(writer.renderer.tokenizer.decode(writer.read_at[0]))
    assert "# Tools" in row
    assert row.endswith("<|im_start|>tool\n124<|im_end|>\n<|im_start|>assistant\nIt is right.\nVerdict: ")
    [score] = scorer.score([ITEM])
    assert isinstance(score, Score)
    assert {part.name: part.value for part in score.parts} == {"tool_calls": 1.0, "tool_errors": 0.0}
    assert scorer.score_identity is not None  # the calculator answers equal calls equally


def test_rows_leave_the_rounds_as_they_end() -> None:
    def rule(row: str) -> str:
        return checked(row) if "Gold?" not in row else "No.\nVerdict: No"

    writer = Said(rule, TOOLS)
    items = [ITEM, replace(ITEM, prompt=(Message("user", "Gold?"),)), ITEM]
    labels = [one.answers[0].label for one in GenerativeScorer(writer, writer.spec).examine(items)]  # type: ignore[union-attr]
    assert labels == ["Yes", "No", "Yes"]
    assert sum(writer.batches) == 3 + 2


def test_the_same_question_asked_again_gets_the_same_answer() -> None:
    class Drawn(Said):
        def generate(
            self, prompts: Sequence[tuple[int, ...]], sampling: SamplingParams, *, samples: int, seed: int
        ) -> list[list[Sampled] | ScoreFailure]:
            self.rule = lambda row: f"{seed}.\nVerdict: Yes" if "<|im_start|>tool" in row else checked(row)
            return super().generate(prompts, sampling, samples=samples, seed=seed)

    writer = Drawn(checked, replace(TOOLS, samples=2, temperature=0.5))
    first, again = GenerativeScorer(writer, writer.spec).examine([ITEM, ITEM])
    assert not isinstance(first, ScoreFailure)
    assert first == again
    assert first.answers[0].text != first.answers[1].text


def test_a_failed_call_is_shown_or_is_no_verdict_as_configured() -> None:
    def stubborn(row: str) -> str:
        return "It is wrong.\nVerdict: No" if "error:" in row else '<tool_call>{"name": "oven"}</tool_call>'

    for errors in ("show", "fail"):
        judging = replace(TOOLS, tool_errors=errors)
        writer = Said(stubborn, judging)
        [score] = GenerativeScorer(writer, writer.spec).score([ITEM])
        if errors == "show":
            assert isinstance(score, Score)
            assert {part.name: part.value for part in score.parts} == {"tool_calls": 1.0, "tool_errors": 1.0}
        else:
            assert isinstance(score, ScoreFailure)
            assert "1 tool_error" in score.message


def test_calls_without_end_are_bounded_and_have_no_verdict() -> None:
    writer = Said(lambda _: CALL, replace(TOOLS, tool_rounds=3))
    [examined] = GenerativeScorer(writer, writer.spec).examine([ITEM])
    assert not isinstance(examined, ScoreFailure)
    assert (len(examined.answers[0].turns), examined.answers[0].fault) == (3, "no_verdict")
    short = Said(lambda _: CALL, replace(TOOLS, tool_rounds=30), context=2000)
    [cut] = GenerativeScorer(short, short.spec).examine([ITEM])
    assert not isinstance(cut, ScoreFailure)
    assert cut.answers[0].fault == "truncated"
    assert len(cut.answers[0].turns) < 30


def test_tools_are_part_of_what_a_model_is_and_their_absence_is_not() -> None:
    assert str(POINTWISE.judging) == str(replace(POINTWISE.judging, tools=("calculator",)))
    plain, tooled = Said(checked, POINTWISE.judging), Said(checked, TOOLS)
    assert plain.info.template_hash != tooled.info.template_hash
    profile = profile_of(
        "responses: 1\nuser: 'Rate {response}'\ngeneration: {tools: [calculator], tool_rounds: 2}\n"
        "reads: {pattern: '([1-5])$', range: [1, 5]}\n",
        "stars",
    )
    assert (profile.judging.tools, profile.judging.tool_rounds) == (("calculator",), 2)


def test_a_checkpoint_that_names_a_tool_of_code_needs_its_users_word(
    tiny_judges: dict[str, Path], tmp_path: Path
) -> None:
    code = "from assay_serving.tools.calculator import Calculator\nopen({!r}, 'w')\n"
    ran, own, folder = tmp_path / "ran", tmp_path / "own.py", tmp_path / "judge"
    own.write_text(code.format(str(ran)), encoding="utf-8")
    shutil.copytree(tiny_judges["pointwise"], folder)
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    assert spec.judging is not None
    replace(spec, judging=replace(spec.judging, tools=(f"{own}:Calculator",))).write(folder)
    config = ModelConfig(str(folder), device="cpu")
    with pytest.raises(BadInputError, match=r"--tool own\.py:Calculator"):
        open_scorer(config)
    assert VerdictReader.load(config).spec.judging is not None
    assert not ran.exists()
    scorer = open_scorer(replace(config, tools=(f"{own}:Calculator",)))
    assert isinstance(scorer, GenerativeScorer)
    assert scorer.judging.tools == (f"{own}:Calculator",)


@pytest.mark.parametrize("native", [True, False])
def test_an_endpoint_calls_tools_in_openais_form_or_in_text(native: bool) -> None:
    asked: list[dict[str, Any]] = []
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> dict[str, Any]:
        body = await request.json()
        asked.append(body)
        if len(body["messages"]) > 1:
            message: dict[str, Any] = {"content": "It is right.\nVerdict: Yes"}
        elif native:
            function = {"name": "calculator", "arguments": json.dumps({"expression": "2 * 62"})}
            message = {"content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
        else:
            message = {"content": CALL}
        finish = "tool_calls" if "tool_calls" in message else "stop"
        return {"choices": [{"message": message, "finish_reason": finish}], "usage": {"completion_tokens": 5}}

    judging = replace(TOOLS, vote="majority", samples=2, temperature=0.5)
    with running_app(app) as url:
        writer, spec = RemoteWriter.open(ChatEndpoint(f"{url}/v1", "m", retries=0), judging)
        [examined] = GenerativeScorer(writer, spec).examine([ITEM])
    assert not isinstance(examined, ScoreFailure)
    assert [answer.label for answer in examined.answers] == ["Yes", "Yes"]
    assert examined.answers[0].text == f"{CALL}\n<tool_response>\n124\n</tool_response>\nIt is right.\nVerdict: Yes"
    assert examined.answers[0].tokens_out == 10
    assert [len(body["messages"]) for body in asked] == [1, 3] * 2
    assert asked[0]["tools"][0]["function"]["name"] == "calculator"
    assert asked[0]["seed"] != asked[2]["seed"]
    last = asked[1]["messages"][-1]
    assert last == (
        {"role": "tool", "tool_call_id": "c1", "content": "124"}
        if native
        else {"role": "user", "content": "<tool_response>\n124\n</tool_response>"}
    )
