"""Models behind an SGLang server. Its replies are written from its documentation and sources: it needs a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recorded_engines import (
    ITEMS,
    PROMPT,
    Answer,
    Reply,
    codes,
    elsewhere,
    opened,
    reward_of,
)

from assay.errors import BackendError
from assay.score import Score
from assay_serving.scorer import ScoreItem


def sglang_routes(*, generates: bool = False, **changed: Answer) -> dict[str, Answer]:
    info = {"model_path": "/models/rm", "is_generation": generates, "weight_version": "7"}

    def rewards(body: dict[str, Any]) -> Reply:
        found = [
            {"embedding": [reward_of(row)], "meta_info": {"id": "x", "prompt_tokens": len(row), "cached_tokens": 0}}
            for row in body["input_ids"]
        ]
        return 200, json.dumps(found).encode()

    routes: dict[str, Answer] = {
        "/get_model_info": lambda _: (200, json.dumps(info).encode()),
        "/v1/models": lambda _: (200, b'{"object":"list","data":[{"id":"rm","root":"rm","max_model_len":4096}]}'),
        "/classify": rewards,
    }
    return routes | {"/" + name.replace("__", "/"): answer for name, answer in changed.items()}


def test_sglang_rewards(tiny_reward_model: Path) -> None:
    with elsewhere(sglang_routes()) as server:
        scorer = opened(tiny_reward_model, server, engine="sglang-http")
        assert codes(scorer.score(ITEMS)) == ["score"] * 5
        assert {path for path, _ in server.posted} == {"/classify"}  # never /v1/classify: a soft-max of one logit is 1
        assert "@sglang:rm:" in scorer.info.version


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        (sglang_routes(generates=True), "start it with --is-embedding"),
        (sglang_routes(classify=lambda _: (200, b'[{"embedding":[0.1,0.2]}]')), "embedding of 2 numbers"),
        (sglang_routes(get_model_info=lambda _: (404, b"")), "no SGLang server"),
    ],
)
def test_sglang_servers_that_give_no_rewards(tiny_reward_model: Path, routes: dict[str, Answer], message: str) -> None:
    with elsewhere(routes) as server, pytest.raises(BackendError, match=message):
        opened(tiny_reward_model, server, engine="sglang-http")


def test_sglang_log_odds(tiny_principle_model: Path) -> None:
    def generate(body: dict[str, Any]) -> Reply:
        assert body["return_logprob"] is True
        found = [
            {"text": "No", "meta_info": {"output_token_ids_logprobs": [[[-2.0, yes, None], [-0.5, no, None]]]}}
            for yes, no in body["token_ids_logprob"]
        ]
        return 200, json.dumps(found if len(found) > 1 else found[0]).encode()  # one row is answered by one object

    items = [ScoreItem(PROMPT, f"Metal {i}.", principle="correctness") for i in range(3)]
    with elsewhere(sglang_routes(generates=True, generate=generate)) as server:
        scorer = opened(tiny_principle_model, server, engine="sglang-http", rows_per_request=2)
        assert [s.reward if isinstance(s, Score) else s for s in scorer.score(items)] == [-1.5] * 3


def test_a_generative_model_behind_sglang_is_asked_by_chat(tiny_judges: dict[str, Path]) -> None:
    from assay_serving.generative.templates import POINTWISE

    def chat(body: dict[str, Any]) -> Reply:
        assert body["model"] == "rm"
        message = {"role": "assistant", "content": f"Fine.\n{POINTWISE.final_line('Yes')}"}
        return 200, json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()

    with elsewhere(sglang_routes(generates=True, v1__chat__completions=chat)) as server:
        scorer = opened(tiny_judges["pointwise"], server, engine="sglang-http")
        (result,) = scorer.score([ScoreItem(PROMPT, "Gold.")])
    assert codes([result]) == ["unparsable"]  # a verdict without its log-probs has no log-odds
    assert "@sglang:rm:" in scorer.info.version
