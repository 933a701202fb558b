"""Principle and generative models behind a vLLM server: log-odds and texts, byte for byte as vLLM 0.32 answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recorded_engines import (
    MODELS,
    PROMPT,
    Answer,
    Reply,
    codes,
    elsewhere,
    opened,
    vllm_routes,
)

from assay.score import Score
from assay_serving.generative.generation import Sampled, SamplingParams
from assay_serving.scorer import ScoreItem
from assay_serving.vllm.connection import RemoteSettings
from assay_serving.vllm.rows import Fault
from assay_serving.vllm.vllm_server import VllmServerEngine

#: Of the rows [1, 2, 3, 4] and [5, 6, 7]: log-probs of tokens 259 and 260 by name; with both allowed, of the most
#: likely ones; the same with 259 alone allowed.
_CHOICE_END = (
    b'"finish_reason":"length","stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null,'
    b'"routed_experts":null}'
)
_COMPLETION_END = (
    b'],"service_tier":null,"system_fingerprint":"vllm-0.32.0-b29a1b0c","usage":{"prompt_tokens":7,"total_tokens":9,'
    b'"completion_tokens":2,"prompt_tokens_details":null,"completion_tokens_details":null},"kv_transfer_params":null,'
    b'"ec_transfer_params":null,"metrics":null}'
)
NAMED = (
    b'{"id":"cmpl-8c1546cefc8b177e","object":"text_completion","created":1795310988,"model":"pm","choices":[{"index":0,'
    b'"text":"No","logprobs":{"text_offset":[0],"token_logprobs":[-5.339130878448486],"tokens":["token_id:260"],'
    b'"top_logprobs":[{"token_id:260":-5.339130878448486,"token_id:259":-5.464505672454834}]},'
    + _CHOICE_END
    + b',{"index":1,"text":"No","logprobs":{"text_offset":[0],"token_logprobs":[-5.453028678894043],"tokens":'
    b'["token_id:260"],"top_logprobs":[{"token_id:260":-5.453028678894043,"token_id:259":-5.58625602722168}]},'
    + _CHOICE_END
    + _COMPLETION_END
)
LIKELIEST = (
    b'{"id":"cmpl-ad6069415daf6e10","object":"text_completion","created":1795310988,"model":"pm","choices":[{"index":0,'
    b'"text":"No","logprobs":{"text_offset":[0],"token_logprobs":[-5.339130878448486],"tokens":["token_id:260"],'
    b'"top_logprobs":[{"token_id:260":-5.339130878448486,"token_id:4":-4.819385051727295,"token_id:124":'
    b'-4.914313793182373,"token_id:218":-5.016325950622559,"token_id:107":-5.047641277313232,"token_id:159":'
    b"-5.052282333374023}]},"
    + _CHOICE_END
    + b',{"index":1,"text":"No","logprobs":{"text_offset":[0],"token_logprobs":[-5.453028678894043],"tokens":'
    b'["token_id:260"],"top_logprobs":[{"token_id:260":-5.453028678894043,"token_id:7":-4.582188129425049,'
    b'"token_id:173":-4.975465297698975,"token_id:219":-5.0654425621032715,"token_id:244":-5.073258399963379,'
    b'"token_id:88":-5.144654750823975}]},' + _CHOICE_END + _COMPLETION_END
)
ONLY_259 = (
    b'{"id":"cmpl-9e43e5966e5c7988","object":"text_completion","created":1795311102,"model":"pm","choices":[{"index":0,'
    b'"text":"Yes","logprobs":{"text_offset":[0],"token_logprobs":[-5.464505672454834],"tokens":["token_id:259"],'
    b'"top_logprobs":[{"token_id:259":-5.464505672454834,"token_id:4":-4.819385051727295,"token_id:124":'
    b'-4.914313793182373,"token_id:218":-5.016325950622559,"token_id:107":-5.047641277313232,"token_id:159":'
    b"-5.052282333374023}]},"
    + _CHOICE_END
    + b',{"index":1,"text":"Yes","logprobs":{"text_offset":[0],"token_logprobs":[-5.58625602722168],"tokens":'
    b'["token_id:259"],"top_logprobs":[{"token_id:259":-5.58625602722168,"token_id:7":-4.582188129425049,'
    b'"token_id:173":-4.975465297698975,"token_id:219":-5.0654425621032715,"token_id:244":-5.073258399963379,'
    b'"token_id:88":-5.144654750823975}]},' + _CHOICE_END + _COMPLETION_END
)
WRITTEN = (
    b'{"id":"cmpl-9629df68104e9e80","object":"text_completion","created":1795310988,"model":"pm","choices":[{"index":0,'
    b'"text":"%%%%%%","logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":[4,4,4,4,4,4],'
    b'"prompt_logprobs":null,"prompt_token_ids":[1,2,3,4],"routed_experts":null}],"service_tier":null,'
    b'"system_fingerprint":"vllm-0.32.0-b29a1b0c","usage":{"prompt_tokens":4,"total_tokens":10,"completion_tokens":6,'
    b'"prompt_tokens_details":null,"completion_tokens_details":null},"kv_transfer_params":null,'
    b'"ec_transfer_params":null,"metrics":null}'
)
PM_MODELS = MODELS.replace(b'"id":"rm"', b'"id":"pm"').replace(b":512", b":1025")


def completion_routes(answer: Answer) -> dict[str, Answer]:
    return vllm_routes(v1__models=lambda _: (200, PM_MODELS), v1__completions=answer)


def test_log_odds_are_exact_with_named_tokens_and_without() -> None:
    rows, tokens = [[1, 2, 3, 4], [5, 6, 7]], (259, 260)
    expected = [{259: -5.464505672454834, 260: -5.339130878448486}, {259: -5.58625602722168, 260: -5.453028678894043}]

    def newer(body: dict[str, Any]) -> Reply:
        assert body["logprob_token_ids"] == [259, 260]
        return 200, NAMED

    def older(body: dict[str, Any]) -> Reply:
        """Does not know `logprob_token_ids`: lists the sampled token and the likeliest five."""
        return 200, {(259, 260): LIKELIEST, (259,): ONLY_259}[tuple(body["allowed_token_ids"])]

    for answer, requests in ((newer, 1), (older, 2)):
        with elsewhere(completion_routes(answer)) as server:
            engine = VllmServerEngine.connect(RemoteSettings(server.url))
            assert engine.next_logps(rows, tokens) == expected
            assert len(server.posted) == requests
            engine.close()


def test_a_server_that_lists_nothing_of_use_gives_faults() -> None:
    nothing = NAMED.replace(b"token_id:259", b"token_id:1").replace(b"token_id:260", b"token_id:2")
    for reply, said in ((nothing, "lists no log-prob"), (WRITTEN, "1 results for 2 rows")):
        with elsewhere(completion_routes(lambda _, reply=reply: (200, reply))) as server:  # type: ignore[misc]
            engine = VllmServerEngine.connect(RemoteSettings(server.url))
            found = engine.next_logps([[1, 2, 3, 4], [5, 6, 7]], (259, 260))
            assert all(isinstance(fault, Fault) and fault.code == "backend" for fault in found)
            assert said in str(found[0])
            engine.close()


def test_written_tokens_are_read_with_their_end() -> None:
    with elsewhere(completion_routes(lambda _: (200, WRITTEN))) as server:
        engine = VllmServerEngine.connect(RemoteSettings(server.url))
        drawing = SamplingParams(6, 0.0, 1.0)
        assert engine.generate([[1, 2, 3, 4]], drawing, samples=1, ends=[258], seed=0) == [[Sampled((4,) * 6, False)]]
        assert engine.generate([[1, 2, 3, 4]], drawing, samples=1, ends=[4], seed=0) == [[Sampled((4,) * 5, True)]]
        sampled = engine.generate([[1], [2]], SamplingParams(6, 0.5, 0.9), samples=2, ends=[258], seed=7)
        assert [len(samples) if isinstance(samples, list) else 0 for samples in sampled] == [2, 2]
        seeds = {body["seed"] for _, body in server.posted if "seed" in body}
        assert len(seeds) == 4  # every row and sample has its own
        engine.close()


def test_a_principle_model_elsewhere(tiny_principle_model: Path) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        yes, no = body["logprob_token_ids"]
        choices = [
            {"index": i, "logprobs": {"top_logprobs": [{f"token_id:{yes}": -1.0, f"token_id:{no}": -1.5 - len(row)}]}}
            for i, row in enumerate(body["prompt"])
        ]
        return 200, json.dumps({"choices": choices[::-1]}).encode()

    items = [ScoreItem(PROMPT, "Gold.", principle="correctness"), ScoreItem(PROMPT, "Gold.")]
    with elsewhere(completion_routes(answer)) as server:
        scorer = opened(tiny_principle_model, server)
        score, missing = scorer.score(items)
    assert isinstance(score, Score)
    assert score.reward == pytest.approx(0.5 + score.tokens)
    assert score.principle == "correctness"
    assert codes([missing]) == ["bad_input"]
    assert scorer.info.max_length == 1024  # the answer needs one of the server's 1025


def test_a_generative_model_elsewhere(tiny_judges: dict[str, Path]) -> None:
    """The questions' tokens and the verdict's log-probs are asked of the server; what they mean is decided here."""
    from assay.models.loading import load_tokenizer
    from assay_serving.generative.templates import POINTWISE

    folder = tiny_judges["pointwise"]
    tokenizer = load_tokenizer(str(folder))
    said = tokenizer(f"Fine.\n{POINTWISE.final_line('Yes')}", add_special_tokens=False)["input_ids"]

    def answer(body: dict[str, Any]) -> Reply:
        if "logprob_token_ids" not in body:
            choice = {"index": 0, "token_ids": [*said, tokenizer.eos_token_id]}
            return 200, json.dumps({"choices": [choice]}).encode()
        tokens = body["logprob_token_ids"]
        listed = {f"token_id:{token}": -1.0 - place for place, token in enumerate(tokens)}
        choices = [{"index": i, "logprobs": {"top_logprobs": [listed]}} for i in range(len(body["prompt"]))]
        return 200, json.dumps({"choices": choices}).encode()

    roomy = MODELS.replace(b":512", b":4096")
    with elsewhere(vllm_routes(v1__models=lambda _: (200, roomy), v1__completions=answer)) as server:
        (score,) = opened(folder, server).score([ScoreItem(PROMPT, "Gold.")])
        assert isinstance(score, Score)
        assert abs(score.reward) == pytest.approx(1.0)
    with elsewhere(
        vllm_routes(v1__models=lambda _: (200, roomy), v1__completions=lambda _: (500, b"out of memory"))
    ) as server:
        assert codes(opened(folder, server).score([ScoreItem(PROMPT, "Gold.")])) == ["backend"]
