"""Judges behind an OpenAI-compatible endpoint: one rule of reading, and log-probs that are not listed are bounds."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from assay.domain import Message
from assay.errors import BadInputError
from assay.http.running import running_app
from assay.models.spec import Judging
from assay.score import Score, ScoreFailure
from assay_serving.chat.client import ChatEndpoint
from assay_serving.generative.engine import GenerativeScorer
from assay_serving.generative.pairwise import PairOutcome, PairQuestion, PairwiseJudge
from assay_serving.generative.remote import LEAST, RemoteWriter, read_choice
from assay_serving.generative.templates import PAIRWISE, POINTWISE, RATING
from assay_serving.scorer import ScoreItem

PROMPT = (Message("user", "Name a metal."),)


def choice(pieces: list[str], at: int, listed: dict[str, float], *, finish: str = "stop") -> dict[str, Any]:
    """A choice of a chat completion; the token `at` was drawn from `listed` (probabilities)."""
    tokens = [
        {"token": piece, "logprob": -0.1, "top_logprobs": [{"token": piece, "logprob": -0.1}]} for piece in pieces
    ]
    tokens[at]["top_logprobs"] = [{"token": token, "logprob": math.log(p)} for token, p in listed.items()]
    tokens[at]["logprob"] = math.log(listed[pieces[at]])
    return {"message": {"content": "".join(pieces)}, "finish_reason": finish, "logprobs": {"content": tokens}}


def test_the_label_is_read_at_its_own_token() -> None:
    pieces = ["No", ", it is fine.", "\n", "Ver", "dict", ":", " Yes"]
    answer = read_choice(choice(pieces, 6, {" Yes": 0.75, " No": 0.25, "Yes": 0.0001}), POINTWISE, 9)
    assert answer.label == "Yes"
    assert answer.log_odds("Yes", "No") == pytest.approx(math.log(3))


def test_a_token_may_hold_a_part_of_the_label_or_more_before_it() -> None:
    split = read_choice(choice(["ok\n", "Verdict", ": ", "Y", "es"], 3, {"Y": 0.6, "N": 0.4}), POINTWISE, 9)
    assert split.log_odds("Yes", "No") == pytest.approx(math.log(1.5))
    joined = read_choice(choice(["ok", "\nVerdict: A"], 1, {"\nVerdict: A": 0.9, "\nVerdict: B": 0.1}), PAIRWISE, 9)
    assert joined.log_odds("A", "B") == pytest.approx(math.log(9))


def test_a_label_that_is_not_listed_is_very_unlikely_not_impossible() -> None:
    answer = read_choice(choice(["ok\n", "Verdict:", " A"], 2, {" A": 0.98, " the": 0.015}), PAIRWISE, 9)
    assert answer.logp is not None
    assert answer.logp["B"] == pytest.approx(math.log(0.005))  # what is left is less than the last one listed
    certain = read_choice(choice(["Verdict:", " A"], 1, {" A": 1.0}), PAIRWISE, 9)
    assert certain.logp is not None
    assert certain.logp["B"] == LEAST


def test_what_the_local_rule_cannot_read_this_one_cannot_either() -> None:
    cut = read_choice(choice(["ok\n", "Verdict:", " A"], 2, {" A": 0.9, " B": 0.1}, finish="length"), PAIRWISE, 9)
    assert (cut.fault, cut.logp) == ("truncated", None)
    more = read_choice(choice(["Verdict:", " A", ", I think"], 1, {" A": 0.9, " B": 0.1}), PAIRWISE, 9)
    assert (more.fault, more.logp) == ("trailing_text", None)
    # "1" may be the beginning of "10": these tokens do not tell the two apart.
    rated = read_choice(choice(["Verdict: ", "7"], 1, {"7": 0.9, "1": 0.1}), RATING, 9)
    assert (rated.label, rated.logp) == ("7", None)


class Endpoint:
    """An endpoint that answers each request with the next of its replies, and keeps what it was asked."""

    def __init__(self, replies: list[Any]) -> None:
        self.replies, self.asked = replies, list[dict[str, Any]]()
        self.app = FastAPI()
        self.app.post("/v1/chat/completions", response_model=None)(self._answer)

    async def _answer(self, request: Request) -> Any:
        self.asked.append(await request.json())
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, int):
            return JSONResponse({"error": "x"}, status_code=reply, headers={"Retry-After": "0"})
        return reply


def completion(*choices: dict[str, Any]) -> dict[str, Any]:
    return {"choices": list(choices), "usage": {"prompt_tokens": 11}}


def open_writer(url: str, judging: Judging, **settings: Any) -> Any:
    return RemoteWriter.open(ChatEndpoint(f"{url}/v1", "judge", concurrency=1, **settings), judging)


def test_pairs_are_judged_over_http_in_both_orders() -> None:
    wins = completion(choice(["ok\n", "Verdict:", " A"], 2, {" A": 0.8, " B": 0.2}))
    loses = completion(choice(["ok\n", "Verdict:", " B"], 2, {" A": 0.4, " B": 0.6}))
    endpoint = Endpoint([503, wins, loses])
    judging = Judging("pairwise", PAIRWISE.hash, max_new_tokens=50)
    with running_app(endpoint.app) as url:
        writer, spec = open_writer(url, judging)
        (found,) = PairwiseJudge(writer, spec).compare([PairQuestion(PROMPT, "gold", "glass")])
    assert isinstance(found, PairOutcome)
    assert found.probability == pytest.approx(0.7)
    sent = endpoint.asked[-1]
    assert (sent["logprobs"], sent["top_logprobs"], sent["max_tokens"]) == (True, 20, 50)
    assert "Response A:\n| glass" in sent["messages"][0]["content"]


def test_several_choices_are_votes_and_failures_are_typed() -> None:
    def vote(p: float) -> dict[str, Any]:
        return choice(["ok\n", "Verdict:", " Yes"], 2, {" Yes": p, " No": 1 - p})

    judging = Judging("pointwise", POINTWISE.hash, samples=2, temperature=0.7)
    items = [ScoreItem(PROMPT, "gold")]
    replies = [completion(vote(0.9), vote(0.5)), 400, completion(vote(0.9)), {"no": "choices"}, 500]
    with running_app(Endpoint(replies).app) as url:
        writer, spec = open_writer(url, judging, retries=0)
        scorer = GenerativeScorer(writer, spec)
        found = [scorer.score(items)[0] for _ in range(5)]
    assert isinstance(found[0], Score)
    assert 1 / (1 + math.exp(-found[0].reward)) == pytest.approx(0.7)
    failures = [one for one in found if isinstance(one, ScoreFailure)]
    assert [one.code for one in failures] == ["bad_input", "backend", "backend", "backend"]
    assert "1 choices where 2 were requested" in failures[1].message


def test_an_endpoint_that_is_not_there_fails_its_questions() -> None:
    writer, spec = open_writer("http://127.0.0.1:9", Judging("pointwise", POINTWISE.hash), retries=0)
    (found,) = GenerativeScorer(writer, spec).score([ScoreItem(PROMPT, "gold")])
    assert isinstance(found, ScoreFailure)
    assert found.code == "backend"
    with pytest.raises(BadInputError, match="not an http"):
        ChatEndpoint("nowhere", "judge")
