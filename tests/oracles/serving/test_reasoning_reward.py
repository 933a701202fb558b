"""R1-Reward's reward of a judge: 0.5 format + verdict (1 + 0.5 consistency), its numbers by hand; the second judge's
question. The numbers are those of the released `0.5 * format_reward + acc_reward * (1 + 0.5 * conflict_reward)`."""

from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from assay.domain import Message
from assay.errors import BadInputError
from assay.http.running import running_app
from assay_rm_training.generative.judged_rows import JudgedRow
from assay_rm_training.generative.reasoning_check import ReasoningCheck
from assay_rm_training.generative.rl_run import _with_parts, judge_recipe
from assay_rm_training.generative.verdict_reward import VerdictReward, judge_prompts
from assay_serving.generative.templates import PAIRWISE

#: An answer, what the second judge says of it, and the reward; None: it was not to be asked, or could not be.
CASES = [
    ("a\nb\nIt is vague.\nSo A is better.\nVerdict: A", "1", 2.0),
    ("B is better, clearly.\nVerdict: A", "Output: 0", 1.0),
    ("Both, perhaps.\nVerdict: A", "I cannot tell: 0 or 1.", float("nan")),
    ("Verdict: A", "0", 0.5),  # no analysis: no format
    ("So B is better.\nVerdict: B", None, 0.5),  # wrong
    ("So A is better.", None, 0.0),  # no verdict
    ("Broken line.\nVerdict: A", None, float("nan")),
]


class SecondJudge:
    def __init__(self) -> None:
        self.questions: list[str] = []
        self.app = FastAPI()
        self.app.post("/v1/chat/completions", response_model=None)(self.answer)

    async def answer(self, request: Request) -> Any:
        question = (await request.json())["messages"][0]["content"]
        self.questions.append(question)
        if "Broken line." in question:
            return Response("no such model", status_code=404)
        shown = question.partition("Response #########\n ")[2].partition(" \n\n")[0]
        [reply] = [said for text, said, _ in CASES if said and text.rpartition("Verdict")[0].strip()[-9:] == shown[-9:]]
        return JSONResponse({"choices": [{"message": {"content": reply}, "finish_reason": "stop"}], "usage": {}})


def test_the_rewards_of_a_judges_answers() -> None:
    row, judge = JudgedRow((Message("user", "Q?"),), ("good", "bad"), "A"), SecondJudge()
    [item, _] = judge_prompts([row], PAIRWISE)[0]
    with running_app(judge.app) as url:
        reward = VerdictReward(PAIRWISE, ReasoningCheck.open(f"{url}/v1", "second", device="cpu"))
        found = reward.score([item] * len(CASES), [text for text, _, _ in CASES])
    composed = judge_recipe("r1_reward").reward(found.parts)
    assert composed.tolist() == pytest.approx([number for _, _, number in CASES], nan_ok=True)
    assert [bool(failures) for failures in found.failures] == [False, False, True, False, False, False, True]
    assert len([question for question in judge.questions if "Broken" not in question]) == 4
    [whole] = [question for question in judge.questions if "vague" in question]
    assert "Response #########\n b;It is vague.;So A is better. \n\n\n" in whole  # the last three lines
    assert "Model's Answer#########\n response A is better\n" in whole


def test_without_a_second_judge_it_is_refused() -> None:
    recipe = judge_recipe("r1_reward")
    with pytest.raises(BadInputError, match="needs a second judge") as caught:
        _with_parts(recipe, PAIRWISE)
    assert caught.value.field == "--checker"
    assert _with_parts(recipe, PAIRWISE, checked=True) == recipe
    with pytest.raises(BadInputError, match="name the endpoint's model"):
        ReasoningCheck.open("http://127.0.0.1:9/v1", None, device="cpu")
