"""A server elsewhere for tests of remote engines: real HTTP, recorded answers.

vLLM's replies are those of its 0.32 server on a CPU, byte for byte.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from assay.domain import Message
from assay.score import ScoreFailure, ScoreResult
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem, Scorer

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
            recorded_server.posted.append((self.path, body))
            recorded_server.keys.append(self.headers.get("Authorization"))
            self.answer(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        recorded_server = Elsewhere(f"http://127.0.0.1:{server.server_port}", routes)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield recorded_server
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
    return load_scorer(
        ModelConfig(str(folder), served_as="rm", engine=engine, engine_options={"url": server.url, **options})
    )


def codes(results: list[ScoreResult]) -> list[str]:
    return [result.code if isinstance(result, ScoreFailure) else "score" for result in results]
