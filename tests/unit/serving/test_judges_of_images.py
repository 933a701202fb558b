"""Judges that see images: what is sent and where, pairs whose image is missing, judges that read text alone."""

import random
from pathlib import Path
from typing import Any

import pytest
from drawn_images import data_url, drawn, png
from fastapi import FastAPI, Request

from assay.conversation.parts import ImagePart, TextPart
from assay.domain import Message
from assay.errors import BadInputError
from assay.http.running import running_app
from assay.score import ScoreFailure
from assay.store.media import MediaFolder
from assay_rm_training.generative.evaluation import evaluate_judge
from assay_rm_training.generative.judged_rows import JudgedRow
from assay_serving.chat.client import ChatEndpoint
from assay_serving.generative.local import LocalWriter
from assay_serving.generative.pairwise import PairOutcome, PairQuestion, PairwiseJudge
from assay_serving.generative.remote import RemoteWriter
from assay_serving.generative.templates import PAIRWISE, format_named
from assay_serving.model_config import ModelConfig

RED, BLUE = (drawn(random.Random(0), colour, "circle") for colour in ("red", "blue"))


class SeeingJudge:
    """An endpoint that prefers the response which names the colour of the one image that it is sent."""

    def __init__(self) -> None:
        self.contents: list[Any] = []
        self.app = FastAPI()
        self.app.post("/v1/chat/completions", response_model=None)(self.answer)

    async def answer(self, request: Request) -> Any:
        content = (await request.json())["messages"][-1]["content"]
        self.contents.append(content)
        [image] = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
        text, colour = content[-1]["text"], "red" if image == data_url(RED) else "blue"
        first = text.index("It is red.") < text.index("It is blue.")
        answer = f"<think>It is {colour}.</think><answer>{1 if first == (colour == 'red') else 2}</answer>"
        return {"choices": [{"message": {"content": answer}, "finish_reason": "stop"}], "usage": {}}


def pair_on(image: ImagePart) -> PairQuestion:
    prompt = (Message("user", (image, TextPart("Which colour?"))),)
    return PairQuestion(prompt, "It is red.", "It is blue.")


def test_a_judge_by_r1_rewards_profile_sees_the_image_before_the_text(tmp_path: Path) -> None:
    media, judge = MediaFolder(tmp_path), SeeingJudge()
    stored = media.put(png(RED))
    images = [
        ImagePart(stored.content_hash, stored.media_type),
        ImagePart(url=data_url(BLUE)),
        ImagePart("0" * len(stored.content_hash), "image/png"),
        ImagePart(url="https://example.org/a.png"),
    ]
    with running_app(judge.app) as url:
        opened = RemoteWriter.open(
            ChatEndpoint(f"{url}/v1", "R1-Reward", retries=0), format_named("r1-reward").judging, lambda: media
        )
        red, blue, missing, unfetched = PairwiseJudge(*opened).compare([pair_on(image) for image in images])
    assert isinstance(red, PairOutcome)
    assert isinstance(blue, PairOutcome)
    assert (red.decision, red.consistent, blue.decision, blue.consistent) == ("A", True, "B", True)
    assert isinstance(missing, ScoreFailure)
    assert isinstance(unfetched, ScoreFailure)
    assert (missing.code, unfetched.code) == ("bad_input", "bad_input")
    assert "is not in the workspace" in missing.message
    assert "never fetched: https://example.org/a.png" in unfetched.message
    assert len(judge.contents) == 4
    for content in judge.contents:
        assert [part["type"] for part in content] == ["image_url", "text"]
        assert "###### [Question]:\nWhich colour?  \n\n###### [Response 1]:\nIt is " in content[1]["text"]


def test_several_images_are_called_by_name() -> None:
    red, blue = ImagePart("a" * 32, "image/png"), ImagePart("b" * 32, "image/png")
    prompt = (Message("user", (red, TextPart("Draw another."))),)
    [question] = PAIRWISE.ask(prompt, [(Message("assistant", (blue,)),), (Message("assistant", (red,)),)])
    assert [part for part in question.parts if isinstance(part, ImagePart)] == [red, blue]
    assert [part.text_view for part in question.parts[:4:2]] == [red.text_view, blue.text_view]
    assert f"Response A:\n| {blue.text_view}" in question.text
    drawn_here = [ImagePart(url=data_url(image)).text_view for image in (RED, BLUE)]
    assert len(set(drawn_here)) == 2
    assert max(map(len, drawn_here)) < 60
    guarded = format_named("llama-guard").ask(prompt, [(Message("assistant", (blue,)),)])
    assert [part for message in guarded for part in message.parts if isinstance(part, ImagePart)] == [red, blue]


@pytest.mark.slow
def test_a_judge_that_reads_text_alone_says_so_and_judges_the_rest() -> None:
    writer, spec = LocalWriter.load(ModelConfig("tiny", device="cpu"), judging=PAIRWISE.judging)
    seen = pair_on(ImagePart(url=data_url(RED)))
    turns = (*seen.prompt, Message("assistant", "Red."), Message("user", "And now?"))
    text = PairQuestion((Message("user", "Which colour is grass?"),), "Green.", "Red.")
    judge = PairwiseJudge(writer, spec)
    blind, blind_later, other = judge.compare([seen, PairQuestion(turns, "Red.", "Blue."), text])
    assert isinstance(other, PairOutcome)
    for outcome in (blind, blind_later):
        assert isinstance(outcome, ScoreFailure)
        assert outcome.code == "bad_input"
        assert "reads text only: it has no place for images" in outcome.message
    rows = [JudgedRow(seen.prompt, ("It is red.", "It is blue."), "A")]
    with pytest.raises(BadInputError, match=r"'bad_input': 1.*reads text only"):
        evaluate_judge(writer, spec, rows)
