"""Engines behind a vLLM or SGLang server: what is asked, how replies are read, what every fault becomes.

vLLM's replies are those of its 0.32 server on a CPU, byte for byte; SGLang's are written from its documentation and
sources (it needs a GPU). A real vLLM server is asked in `test_vllm_engine.py`.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.models.spec import RewardModelSpec
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.client import RewardClient
from assay_serving.generative.generation import Drawing, Sampled
from assay_serving.opening import load_engine
from assay_serving.plan import ModelPlan
from assay_serving.process import running_server
from assay_serving.scorer import ScoreItem, Scorer
from assay_serving.vllm.connection import RemoteSettings
from assay_serving.vllm.in_process import checked_options
from assay_serving.vllm.opening import Opening
from assay_serving.vllm.rows import Fault
from assay_serving.vllm.versions import flags_for, parse_version, require_raw
from assay_serving.vllm.vllm_server import VllmServer

VERSION = b'{"version":"0.32.0"}'
MODELS = (
    b'{"object":"list","data":[{"id":"rm","object":"model","created":1795310987,"owned_by":"vllm","root":"/models/rm",'
    b'"parent":null,"max_model_len":512,"permission":[{"id":"modelperm-82ec62aa238e7243","object":"model_permission",'
    b'"created":1795310987,"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,'
    b'"allow_search_indices":false,"allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,'
    b'"is_blocking":false}]}]}'
)
#: Of the rows [1, 2, 3, 4], [4, 3, 2, 1], [5, 6, 7]: without and with activation.
RAW = (
    b'{"id":"classify-a580ab44d16d7dc0","object":"list","created":1795310987,"model":"rm","data":[{"index":0,"label":'
    b'"LABEL_0","probs":[-0.10216431319713593],"num_classes":1},{"index":1,"label":"LABEL_0","probs":'
    b'[-0.21829509735107422],"num_classes":1},{"index":2,"label":"LABEL_0","probs":[-0.01533297449350357],'
    b'"num_classes":1}],"usage":{"prompt_tokens":11,"total_tokens":11,"completion_tokens":0,"prompt_tokens_details":'
    b'null,"completion_tokens_details":null}}'
)
ACTIVATED = (
    b'{"id":"classify-8da689c96de74289","object":"list","created":1795310987,"model":"rm","data":[{"index":0,"label":'
    b'"LABEL_0","probs":[0.47448113560676575],"num_classes":1},{"index":1,"label":"LABEL_0","probs":'
    b'[0.4456419050693512],"num_classes":1},{"index":2,"label":"LABEL_0","probs":[0.4961668848991394],"num_classes":1}'
    b'],"usage":{"prompt_tokens":11,"total_tokens":11,"completion_tokens":0,"prompt_tokens_details":null,'
    b'"completion_tokens_details":null}}'
)
TOO_LONG = (
    b'{"error":{"message":"This model\'s maximum context length is 512 tokens. However, your prompt contains 600 input '
    b"tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
    b'(parameter=input_tokens, value=600)","type":"BadRequestError","param":"input_tokens","code":400}}'
)
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

PROMPT = (Message("user", "Name a metal."),)
ITEMS = [ScoreItem(PROMPT, f"Metal {i}.") for i in range(5)]
PROBES = [[1, 2, 3, 4], [4, 3, 2, 1], [5, 6, 7]]
#: (status, body[, headers]) for a request's body; None closes the connection without a reply.
Reply = tuple[int, bytes] | tuple[int, bytes, dict[str, str]] | None
Answer = Callable[[dict[str, Any]], Reply]


@dataclass
class Elsewhere:
    """A server that answers as told. `posted`: what it was asked, in order."""

    url: str
    routes: dict[str, Answer]
    posted: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


@contextmanager
def elsewhere(routes: dict[str, Answer]) -> Iterator[Elsewhere]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self, body: dict[str, Any]) -> None:
            route = routes.get(self.path)
            reply = (404, b'{"detail":"Not Found"}') if route is None else route(body)
            if reply is None:
                self.close_connection = True
                return
            self.send_response(reply[0])
            for name, value in (reply[2] if len(reply) == 3 else {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply[1])))
            self.end_headers()
            self.wfile.write(reply[1])

        def do_GET(self) -> None:
            self.answer({})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.posted.append((self.path, body))
            told.keys.append(self.headers.get("Authorization"))
            self.answer(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told = Elsewhere(f"http://127.0.0.1:{server.server_port}", routes)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield told
        finally:
            server.shutdown()
            thread.join(10)


def reward_of(row: list[int]) -> float:
    return sum(row) / 1000 - len(row)


def classification(values: list[float], **fields: Any) -> bytes:
    data = [{"index": i, "label": "LABEL_0", "probs": [v], "num_classes": 1} for i, v in enumerate(values)]
    return json.dumps({"object": "list", "model": "rm", "data": data, **fields}).encode()


def classify(body: dict[str, Any]) -> Reply:
    """As vLLM 0.32: the recorded replies for the rows that were recorded, the same form for others."""
    if body["input"] == PROBES:
        return 200, ACTIVATED if body.get("use_activation", True) else RAW
    return 200, classification([reward_of(row) for row in body["input"]])


def vllm_routes(**changed: Answer) -> dict[str, Answer]:
    routes: dict[str, Answer] = {
        "/version": lambda _: (200, VERSION),
        "/v1/models": lambda _: (200, MODELS),
        "/classify": classify,
    }
    return routes | {"/" + name.replace("__", "/"): answer for name, answer in changed.items()}


def after_probes(answer: Answer) -> Answer:
    """A route that is well until the engine has started."""
    return lambda body: classify(body) if body["input"] == PROBES else answer(body)


def opened(folder: Path, server: Elsewhere, engine: str = "vllm-http", **options: Any) -> Scorer:
    return load_engine(str(folder), served_as="rm", engine=engine, engine_options={"url": server.url, **options})


def codes(results: list[ScoreResult]) -> list[str]:
    return [result.code if isinstance(result, ScoreFailure) else "score" for result in results]


# ---------------------------------------------------------------- vLLM, scalar


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
    from assay.models.loading import load_tokenizer
    from assay.models.renderer import Renderer

    renderer = Renderer(load_tokenizer(str(folder)), max_length=512)
    return [
        Score(rows[renderer.encode(item.prompt, item.response).ids], "rm", "v", "t", 1, truncated=False)
        for item in ITEMS
    ]


def test_recorded_answers_are_read_exactly() -> None:
    with elsewhere(vllm_routes()) as server:
        engine = VllmServer.connect(RemoteSettings(server.url))
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


def test_a_server_that_stays_busy_or_silent_gives_failures(tiny_reward_model: Path) -> None:
    release = threading.Event()

    def silent(body: dict[str, Any]) -> Reply:
        release.wait(30)
        return None

    with elsewhere(vllm_routes(classify=after_probes(lambda _: (503, b"full")))) as server:
        busy = opened(tiny_reward_model, server, retries=1)
        assert codes(busy.score(ITEMS)) == ["backend"] * 5
    assert codes(busy.score(ITEMS)) == ["backend"] * 5  # the server is gone
    with elsewhere(vllm_routes(classify=after_probes(silent))) as server:
        late = opened(tiny_reward_model, server, timeout=0.3)
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
        load_engine(str(folder))  # the reference engine wants the weights


# ------------------------------------------------------------- what it refuses


@pytest.mark.parametrize(
    ("routes", "error", "message"),
    [
        ({"version": lambda _: (404, b"")}, BackendError, "no vLLM server"),
        ({"version": lambda _: (200, b'{"version":"0.8.5"}')}, BackendError, "0.8.5 is not supported: known are"),
        ({"version": lambda _: (200, b'{"version":"dev"}')}, BackendError, "not supported"),
        ({"version": lambda _: (503, b"starting")}, BackendError, "status 503: starting"),
        ({"version": lambda _: (200, b"<html>")}, BackendError, "does not answer JSON"),
        ({"v1__models": lambda _: (404, b"")}, BackendError, "does not say which models"),
        ({"v1__models": lambda _: (200, b'{"data":[]}')}, BadInputError, "serves no model"),
        ({"v1__models": lambda _: (200, b'{"data":[{"id":"a"},{"id":"b"}]}')}, BadInputError, "serves a, b; name one"),
        ({"classify": lambda _: (404, b'{"detail":"Not Found"}')}, BackendError, "start it with --runner pooling"),
    ],
)
def test_a_server_that_is_not_the_right_one_is_refused_at_once(
    tiny_reward_model: Path, routes: dict[str, Answer], error: type[Exception], message: str
) -> None:
    with elsewhere(vllm_routes(**routes)) as server, pytest.raises(error, match=message):
        opened(tiny_reward_model, server)


def test_a_server_that_is_not_there(tiny_reward_model: Path) -> None:
    with elsewhere({}) as gone:
        pass
    with pytest.raises(BackendError, match="cannot be reached"):
        opened(tiny_reward_model, gone)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs the server's address"),
        ({"url": "gpu:8000"}, "not an http"),
        ({"url": "http://gpu", "temperature": 1}, "no option 'temperature'"),
        ({"url": "http://gpu", "concurrency": 0}, "positive"),
        ({"url": "http://gpu", "rows_per_request": 1.5}, "whole number"),
        ({"url": "http://gpu", "retries": -1}, "negative"),
        ({"url": "http://gpu", "timeout": True}, "positive number"),
    ],
)
def test_options_of_a_remote_engine_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        RemoteSettings.from_options(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trust_remote_code": True}, "no option 'trust_remote_code'"),
        ({"max_num_seqs": "64"}, "max_num_seqs is int"),
        ({"max_num_seqs": True}, "max_num_seqs is int"),
        ({"enforce_eager": 1}, "enforce_eager is bool"),
    ],
)
def test_options_of_vllm_in_process_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        checked_options(options)
    assert checked_options({"gpu_memory_utilization": 1}) == {"gpu_memory_utilization": 1}


def test_engines_and_what_they_cannot_run(tiny_reward_model: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no engine 'tensorrt'; there are transformers, vllm"):
        ModelPlan(str(tiny_reward_model), engine="tensorrt").open()
    with pytest.raises(BadInputError, match="has no options"):
        ModelPlan(str(tiny_reward_model), engine_options={"url": "http://gpu"}).open()
    with pytest.raises(BadInputError, match="plans its own passes"):
        ModelPlan(str(tiny_reward_model), engine="vllm", token_budget=64).open()
    ensemble = tmp_path / "ensemble.yaml"
    ensemble.write_text("members: []\n")
    with pytest.raises(BadInputError, match="serve its models with that engine"):
        load_engine(str(ensemble), engine="vllm")
    with pytest.raises(BadInputError, match="without a reward head"):
        load_engine("tiny", engine="vllm-http", engine_options={"url": "http://gpu"})


def test_without_vllm_the_engine_says_where_it_lives(tiny_reward_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "vllm", None)  # as where it is not installed
    with pytest.raises(BackendError, match=r"vLLM is not in this environment .* docs/serving/engines.md"):
        load_engine(str(tiny_reward_model), engine="vllm")


# -------------------------------------------------------------------- versions


def test_versions_and_their_words(caplog: pytest.LogCaptureFixture) -> None:
    assert parse_version("0.32.0+cpu") == (0, 32, 0)
    assert parse_version("v0.11.1rc2.dev3") == (0, 11, 1)
    assert parse_version("dev") is None
    assert [flags_for(v).activation for v in ("0.10.1.1", "0.11.0", "0.11.1", "0.32.0")] == [
        "activation",
        "activation",
        "use_activation",
        "use_activation",
    ]
    assert not caplog.records
    assert flags_for("0.99.0").raw() == {"use_activation": False}
    assert "newer than those known" in caplog.text
    with pytest.raises(BackendError, match=r"0\.9\.2 is not supported: known are 0\.10\.1 to"):
        flags_for("0.9.2")


def test_answers_are_taken_for_rewards_only_where_activation_changes_them() -> None:
    require_raw([23.0, 3.6], [1.0, 0.973], regression=False, where="x")
    require_raw([23.0, 3.6], [23.0, 3.6], regression=True, where="x")
    with pytest.raises(BackendError, match="may be probabilities"):
        require_raw([23.0, 3.6], [23.0, 3.6], regression=False, where="x")


# -------------------------------------------------------- vLLM, language models

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
            engine = VllmServer.connect(RemoteSettings(server.url))
            assert engine.next_logps(rows, tokens) == expected
            assert len(server.posted) == requests
            engine.close()


def test_a_server_that_lists_nothing_of_use_gives_faults() -> None:
    nothing = NAMED.replace(b"token_id:259", b"token_id:1").replace(b"token_id:260", b"token_id:2")
    for reply, said in ((nothing, "lists no log-prob"), (WRITTEN, "1 results for 2 rows")):
        with elsewhere(completion_routes(lambda _, reply=reply: (200, reply))) as server:  # type: ignore[misc]
            engine = VllmServer.connect(RemoteSettings(server.url))
            found = engine.next_logps([[1, 2, 3, 4], [5, 6, 7]], (259, 260))
            assert all(isinstance(fault, Fault) and fault.code == "backend" for fault in found)
            assert said in str(found[0])
            engine.close()


def test_written_tokens_are_read_with_their_end() -> None:
    with elsewhere(completion_routes(lambda _: (200, WRITTEN))) as server:
        engine = VllmServer.connect(RemoteSettings(server.url))
        drawing = Drawing(6, 0.0, 1.0)
        assert engine.generate([[1, 2, 3, 4]], drawing, samples=1, ends=[258], seed=0) == [[Sampled((4,) * 6, False)]]
        assert engine.generate([[1, 2, 3, 4]], drawing, samples=1, ends=[4], seed=0) == [[Sampled((4,) * 5, True)]]
        sampled = engine.generate([[1], [2]], Drawing(6, 0.5, 0.9), samples=2, ends=[258], seed=7)
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


# ---------------------------------------------------------------------- SGLang


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


def test_the_opening_says_what_it_is_for() -> None:
    with pytest.raises(BadInputError, match="not one of scalar, principle, generative"):
        Opening("tiny", "vllm").open("ensemble")
