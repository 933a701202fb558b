"""Scalar rewards from a vLLM server: what is asked, how replies are read, what every fault becomes.

A real vLLM server is asked in `test_vllm_engine.py`, SGLang in `test_remote_sglang.py`.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from recorded_engines import (
    ACTIVATED,
    ITEMS,
    MODELS,
    PROBES,
    PROMPT,
    TOO_LONG,
    Reply,
    after_probes,
    classification,
    classify,
    codes,
    elsewhere,
    opened,
    reward_of,
    vllm_routes,
)

from assay.errors import BackendError, BadInputError
from assay.models.spec import RewardModelSpec
from assay.score import Score, ScoreFailure
from assay_serving.client import RewardClient
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.process import running_server
from assay_serving.scorer import ScoreItem
from assay_serving.vllm.connection import RemoteSettings
from assay_serving.vllm.vllm_server import VllmServerEngine


def test_rewards_come_from_the_server_and_everything_else_from_here(tiny_reward_model: Path) -> None:
    with elsewhere(vllm_routes()) as server:
        scorer = opened(tiny_reward_model, server, rows_per_request=3, api_key="secret")
        long, odd = ScoreItem(PROMPT, "y" * 3000), ScoreItem(PROMPT, "Gold.", principle="honesty")
        seen: list[int] = []
        results = scorer.score([*ITEMS[:3], long, odd, *ITEMS[3:]], seen.append)
    assert codes(results) == ["score"] * 3 + ["too_long", "bad_input"] + ["score"] * 2
    assert sum(seen) == 7
    spec = RewardModelSpec.read(tiny_reward_model)
    assert spec is not None
    sent = [body for _, body in server.posted if body["input"] != PROBES]
    assert [len(body["input"]) for body in sorted(sent, key=lambda b: -len(b["input"]))] == [3, 2]
    rows = {tuple(row): reward_of(row) for body in sent for row in body["input"]}
    scores = [result for result in results if isinstance(result, Score)]
    assert sorted(score.reward for score in scores) == sorted(rows.values())
    by_text = {item.response: score.reward for item, score in zip(ITEMS, scores, strict=True)}
    assert [s.reward for s in scorer_rewards(tiny_reward_model, rows)] == list(by_text.values())
    assert all(body["use_activation"] is False and body["add_special_tokens"] is False for body in sent)
    assert set(server.keys) == {"Bearer secret"}
    assert scorer.info.version.startswith(f"{spec.version}@vllm:rm:")
    assert "/models/rm" not in scorer.info.version
    assert scorer.info.device == "remote"
    assert getattr(scorer, "score_identity", "") is None  # nobody knows when the server's weights change


def scorer_rewards(folder: Path, rows: dict[tuple[int, ...], float]) -> list[Score]:
    """What the items' own token ids are worth by the server's rule."""
    from assay.models.chat.renderer import Renderer
    from assay.models.loading import load_tokenizer

    renderer = Renderer(load_tokenizer(str(folder)), max_length=512)
    return [
        Score(rows[renderer.encode(item.prompt, item.response).ids], "rm", "v", "t", 1, truncated=False)
        for item in ITEMS
    ]


def test_recorded_answers_are_read_exactly() -> None:
    with elsewhere(vllm_routes()) as server:
        engine = VllmServerEngine.connect(RemoteSettings(server.url))
        assert engine.logits(PROBES) == [-0.10216431319713593, -0.21829509735107422, -0.01533297449350357]
        assert engine.running.max_length == 512
        engine.require_rewards(regression=False)
        engine.close()


def test_a_server_that_takes_less_cuts_conversations_shorter(tiny_reward_model: Path) -> None:
    short = MODELS.replace(b'"max_model_len":512', b'"max_model_len":100')
    with elsewhere(vllm_routes(v1__models=lambda _: (200, short))) as server:
        assert opened(tiny_reward_model, server).info.max_length == 100


def test_an_older_server_is_asked_in_its_own_words(tiny_reward_model: Path) -> None:
    def older(body: dict[str, Any]) -> Reply:
        assert "use_activation" not in body
        return classify({**body, "use_activation": body["activation"]})

    old = vllm_routes(version=lambda _: (200, b'{"version":"0.10.2"}'), classify=older)
    with elsewhere(old) as server:
        assert codes(opened(tiny_reward_model, server).score(ITEMS)) == ["score"] * 5


def test_probabilities_are_not_served_as_rewards(
    tiny_reward_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The field's oldest trap: a flag that the server does not know is ignored, and every reward is a sigmoid."""
    folder = tmp_path / "plain"
    shutil.copytree(tiny_reward_model, folder)
    (folder / "assay.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    config.pop("problem_type")
    (folder / "config.json").write_text(json.dumps(config))
    with elsewhere(vllm_routes(classify=lambda body: (200, ACTIVATED))) as server:
        with pytest.raises(BackendError, match="may be probabilities"):
            opened(folder, server)
        # With problem_type "regression" vLLM's activation is the identity: alike is right, and only looks odd.
        with caplog.at_level(logging.WARNING):
            opened(tiny_reward_model, server)
    assert "lie between 0 and 1" in caplog.text


@pytest.mark.parametrize(
    ("reply", "code", "message"),
    [
        ((500, b'{"error":{"message":"engine died","code":500}}'), "backend", "status 500: engine died"),
        ((200, b'{"data": [{"index"'), "backend", "not JSON"),
        ((200, b'{"object":"list"}'), "backend", "not a classification"),
        ((200, b"[]"), "backend", "not a classification"),
        ((200, classification([1.0, 2.0])), "backend", "2 results for 5 rows"),
        ((200, classification([1.0] * 6)), "backend", "6 results for 5 rows"),
        ((200, classification([1.0] * 5).replace(b'"index": 4', b'"index": 3')), "backend", "results for 5 rows"),
        ((200, classification([1.0] * 5).replace(b"[1.0]", b"[null]")), "backend", "no number"),
        ((200, classification([1.0] * 5).replace(b"[1.0]", b'["1.0"]')), "backend", "no number"),
        ((200, classification([1.0] * 5).replace(b"[1.0]", b"[0.3, 0.7]")), "backend", "2 labels"),
        ((200, classification([1.0] * 5).replace(b"[1.0]", b"[NaN]")), "non_finite", "not finite"),
        ((401, b'{"error":"Unauthorized"}'), "backend", "status 401: Unauthorized"),
        ((404, b'{"error":{"message":"The model `rm` does not exist."}}'), "backend", "does not exist"),
    ],
)
def test_what_is_no_answer_is_a_failure_in_its_place(
    tiny_reward_model: Path, reply: Reply, code: str, message: str
) -> None:
    with elsewhere(vllm_routes(classify=after_probes(lambda _: reply))) as server:
        results = opened(tiny_reward_model, server).score(ITEMS)
        asked = len(server.posted) - 2
    assert codes(results) == [code] * 5
    assert all(isinstance(result, ScoreFailure) and message in result.message for result in results)
    assert asked == 1  # nothing of this is asked again


def test_one_row_that_is_refused_costs_no_other_its_score(tiny_reward_model: Path) -> None:
    def strict(body: dict[str, Any]) -> Reply:
        bad = any(ord("X") - 33 in row for row in body["input"])  # the byte-level tokenizer's id of "X"
        return (400, TOO_LONG) if bad else classify(body)

    items = [*ITEMS[:2], ScoreItem(PROMPT, "X"), *ITEMS[2:]]
    with elsewhere(vllm_routes(classify=after_probes(strict))) as server:
        results = opened(tiny_reward_model, server).score(items)
    assert codes(results) == ["score", "score", "bad_input", "score", "score", "score"]
    refused = results[2]
    assert isinstance(refused, ScoreFailure)
    assert "maximum context length is 512" in refused.message


@pytest.mark.parametrize(
    "first",
    [
        (429, b'{"error":"slow down"}', {"Retry-After": "0"}),
        (503, b"", {"Retry-After": "0"}),
        None,  # the connection breaks
    ],
)
def test_what_passes_is_asked_again(tiny_reward_model: Path, first: Reply) -> None:
    told: list[int] = []

    def busy(body: dict[str, Any]) -> Reply:
        told.append(len(body["input"]))
        return first if len(told) == 1 else classify(body)

    with elsewhere(vllm_routes(classify=after_probes(busy))) as server:
        assert codes(opened(tiny_reward_model, server).score(ITEMS)) == ["score"] * 5
    assert told == [5, 5]


@pytest.mark.slow
def test_a_server_that_stays_busy_or_silent_gives_failures(tiny_reward_model: Path) -> None:
    release = threading.Event()

    def silent(body: dict[str, Any]) -> Reply:
        release.wait(240)
        return None

    with elsewhere(vllm_routes(classify=after_probes(lambda _: (503, b"full")))) as server:
        busy = opened(tiny_reward_model, server, retries=1)
        assert codes(busy.score(ITEMS)) == ["backend"] * 5
    assert codes(busy.score(ITEMS)) == ["backend"] * 5  # the server is gone
    with elsewhere(vllm_routes(classify=after_probes(silent))) as server:
        late = opened(tiny_reward_model, server, timeout=3.0)
        assert codes(late.score(ITEMS)) == ["timeout"] * 5
        release.set()


def test_our_routes_serve_it(tiny_reward_model: Path) -> None:
    with elsewhere(vllm_routes()) as server:
        scorer = opened(tiny_reward_model, server)
        expected = scorer.score(ITEMS)
        with running_server({"rm": scorer}) as ours, RewardClient(ours.url) as client:
            assert client.score(ITEMS) == expected
            assert [info.version for info in client.models()] == [scorer.info.version]


def test_a_folder_without_weights_describes_a_model_elsewhere(tiny_reward_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "described"
    shutil.copytree(tiny_reward_model, folder)
    (folder / "model.safetensors").unlink()
    with elsewhere(vllm_routes()) as server:
        scorer = opened(folder, server)
        assert scorer.info.version.split("@")[0] == (RewardModelSpec.read(folder) or pytest.fail("no spec")).version
        assert codes(scorer.score(ITEMS)) == ["score"] * 5
    with pytest.raises(BadInputError, match="not the checkpoint"):
        load_scorer(ModelConfig(str(folder)))  # the reference engine wants the weights
