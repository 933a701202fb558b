"""The native routes beyond single scores: groups, conversations, principles, comparisons, ranks, and the OpenAPI
description, which every reply is held to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from assay.domain import Message
from assay.models.calibration import Calibration
from assay.models.spec import RewardModelSpec
from assay.score import Score
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.settings import ServerSettings

METAL, GAS = "Name a metal.", "Name a gas."
TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": METAL}]


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


@pytest.fixture(scope="module")
def calibrated(tiny_reward_model: Path, tmp_path_factory: pytest.TempPathFactory) -> TransformersScorer:
    import shutil

    folder = tmp_path_factory.mktemp("calibrated") / "rm"
    shutil.copytree(tiny_reward_model, folder)
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    spec.calibrated(Calibration(0.5, 0.1, "gold", 100)).write(folder)
    return TransformersScorer.load(ModelConfig(str(folder), device="cpu", served_as="calibrated"))


@pytest.fixture(scope="module")
def judge(tiny_principle_model: Path) -> PrincipleScorer:
    return PrincipleScorer.load(ModelConfig(str(tiny_principle_model), device="cpu", served_as="judge"))


@pytest.fixture(scope="module")
def server(
    scorer: TransformersScorer, calibrated: TransformersScorer, judge: PrincipleScorer
) -> Iterator[RunningServer]:
    served = {"rm": scorer, "calibrated": calibrated, "judge": judge}
    with running_server(served, settings=ServerSettings(max_items=40)) as running:
        yield running


@pytest.fixture
def http_client(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=240) as client:
        yield client


def told(client: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    reply = client.post(path, json={"model": "rm"} | body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def offline(scorer: TransformersScorer, prompt: str, *responses: str) -> list[float]:
    found = scorer.score([ScoreItem((Message("user", prompt),), response) for response in responses])
    assert all(isinstance(result, Score) for result in found)
    return [result.reward for result in found if isinstance(result, Score)]


def rewards(body: dict[str, Any]) -> list[float]:
    return [result["reward"] for result in body["results"]]


def test_groups_and_conversations_mean_the_same_items(http_client: httpx.Client, scorer: TransformersScorer) -> None:
    expected = [*offline(scorer, METAL, "Gold.", "Glass."), *offline(scorer, GAS, "Neon.")]
    groups = [
        {"prompt": METAL, "responses": ["Gold.", "Glass."]},
        {"prompt": [{"role": "user", "content": GAS}], "responses": ["Neon."], "label": {"is": ["Neon"]}},
    ]
    assert rewards(told(http_client, "/v1/score", groups=groups)) == pytest.approx(expected, abs=1e-5)
    turns = [(METAL, "Gold."), (METAL, "Glass."), (GAS, "Neon.")]
    items = [
        {"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]}
        for prompt, response in turns
    ]
    assert rewards(told(http_client, "/v1/score", items=items, priority="bulk", timeout=240)) == pytest.approx(
        expected, abs=1e-5
    )
    long = [*TALK, {"role": "assistant", "content": "Gold."}]
    [one] = rewards(told(http_client, "/v1/score", items=[{"messages": long}]))
    [other] = rewards(told(http_client, "/v1/score", prompt=TALK, responses=["Gold."]))
    assert one == pytest.approx(other, abs=1e-5)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/score", {"items": [{"messages": TALK}]}, "messages end with the assistant's"),
        ("/v1/score", {"items": [{"prompt": "a", "response": "b", "messages": TALK}]}, "either messages, or prompt"),
        (
            "/v1/score",
            {"groups": [{"prompt": "a", "responses": ["b"]}], "items": [{"prompt": "a", "response": "b"}]},
            "give items, or groups",
        ),
        ("/v1/score", {"items": [{"prompt": "a", "response": "b"}], "label": "x"}, "go into each of the items"),
        ("/v1/score", {"prompt": "a", "responses": ["b"], "principles": []}, "principles: "),
        ("/v1/score", {"prompt": "a", "responses": ["b"], "principles": ["p", "p"]}, "a principle is given twice"),
        (
            "/v1/score",
            {"prompt": "a", "responses": ["b"], "principles": ["p"], "principle": "q"},
            "either principle or",
        ),
        ("/v1/score", {"prompt": "a", "responses": ["b"], "priority": "high"}, "priority: "),
        ("/v1/score", {"prompt": "a", "responses": ["b"], "timeout": 0}, "timeout: "),
        ("/v1/compare", {"pairs": [{"prompt": "a", "a": "b"}]}, "pairs.0.b: "),
        ("/v1/compare", {"pairs": [{"prompt": [], "a": "b", "b": "c"}]}, "at least one message"),
        ("/v1/rank", {"prompt": "a", "responses": ["b"], "tie_margin": -1}, "tie_margin: "),
        ("/v1/rank", {"prompt": "a"}, "responses: "),
        ("/v1/rank", {"prompt": "a", "responses": ["b"], "repsonses": []}, "no such field; did you mean responses"),
        ("/v1/rank", {"prompt": 3, "responses": ["b"]}, "prompt: must be a text; or: must be"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    http_client: httpx.Client, path: str, body: dict[str, Any], said: str
) -> None:
    reply = http_client.post(path, json=body)
    assert reply.status_code == 422, reply.text
    assert said in reply.json()["detail"]


def test_a_short_time_limit_of_the_caller_is_kept(http_client: httpx.Client) -> None:
    body = {"model": "rm", "prompt": "A new question.", "responses": [f"{n} " * 200 for n in range(40)]}
    reply = http_client.post("/v1/score", json=body | {"timeout": 1e-4})
    assert (reply.status_code, reply.json()["code"]) == (504, "timeout")


def test_comparisons_say_what_their_probability_rests_on(
    http_client: httpx.Client, scorer: TransformersScorer, calibrated: TransformersScorer
) -> None:
    pairs = [{"prompt": METAL, "a": "Gold.", "b": "Glass."}, {"prompt": METAL, "a": "x" * 3000, "b": "Glass."}]
    gold, glass = offline(scorer, METAL, "Gold.", "Glass.")
    for model, basis in (("rm", "bradley_terry"), ("calibrated", "calibration")):
        body = told(http_client, "/v1/compare", model=model, pairs=pairs)
        first, second = body["results"]
        assert first["a"]["reward"] == pytest.approx(gold, abs=1e-5)
        assert first["margin"] == pytest.approx(gold - glass, abs=1e-5)
        scale = 1.0 if basis == "bradley_terry" else 0.5
        expected = Calibration(scale, 0.0, "", 0).pair_probability(gold, glass)
        assert (first["basis"], first["probability"]) == (basis, pytest.approx(expected, abs=1e-5))
        assert first["preferred"] == ("a" if gold > glass else "b")
        assert second["a"]["error"]["code"] == "too_long"
        assert second["b"]["reward"] == pytest.approx(glass, abs=1e-5)
        assert {second[name] for name in ("preferred", "margin", "probability", "basis", "uncertainty")} == {None}
        assert (body["usage"]["items"], body["usage"]["failed"]) == (4, 1)
    # A principle model's probability is of one response, and gives none for a pair.
    asked = [{"prompt": METAL, "a": "Gold.", "b": "Glass.", "principle": "It is short."}]
    [judged] = told(http_client, "/v1/compare", model="judge", pairs=asked)["results"]
    assert (judged["probability"], judged["basis"]) == (None, None)
    assert judged["margin"] == pytest.approx(judged["a"]["reward"] - judged["b"]["reward"])


def test_ranks_put_the_best_first_and_failures_last(http_client: httpx.Client, scorer: TransformersScorer) -> None:
    responses = ["x" * 3000, "Gold.", "Glass is no metal.", "Gold."]
    body = told(http_client, "/v1/rank", prompt=METAL, responses=responses)
    gold, glass = offline(scorer, METAL, "Gold.", "Glass is no metal.")
    assert body["order"] == ([1, 3, 2, 0] if gold > glass else [2, 1, 3, 0])
    assert body["ranks"] == ([None, 1, 3, 1] if gold > glass else [None, 2, 1, 2])
    assert body["results"][0]["error"]["code"] == "too_long"
    assert "reward" not in body["results"][0]
    assert told(http_client, "/v1/rank", prompt=METAL, responses=responses, tie_margin=1e3)["ranks"][1:] == [1, 1, 1]


def test_several_principles_count_as_items(http_client: httpx.Client) -> None:
    body = {"model": "judge", "prompt": METAL, "responses": ["a"] * 21}
    assert http_client.post("/v1/score", json=body | {"principles": ["p"]}).status_code == 200
    reply = http_client.post("/v1/score", json=body | {"principles": ["p", "q"]})
    assert (reply.status_code, reply.json()["code"]) == (413, "too_many_items")


def test_principles_and_models_are_told(http_client: httpx.Client, judge: PrincipleScorer) -> None:
    uses = {each["model"]: each for each in http_client.get("/v1/principles").json()["data"]}
    assert {name: use["use"] for name, use in uses.items()} == {
        "rm": "refused",
        "calibrated": "refused",
        "judge": "required",
    }
    assert "takes no principle" in uses["rm"]["reason"]
    assert uses["judge"]["question"] == judge.info.question
    [one] = http_client.get("/v1/principles", params={"model": "judge"}).json()["data"]
    assert one == uses["judge"]
    model = http_client.get("/v1/models/judge").json()
    assert model == {"id": "judge", "object": "model", **judge.info.to_dict()}
    for path in ("/v1/models/other", "/v1/principles?model=other", "/v1/models/..%2Fjudge", "/v1/models/%00"):
        reply = http_client.get(path)
        assert (reply.status_code, reply.json()["code"]) == (404, "not_found"), path


def test_a_model_of_the_hub_has_a_slash_in_its_name(scorer: TransformersScorer) -> None:
    with running_server({"owner/name": scorer}) as running:
        reply = httpx.get(f"{running.url}/v1/models/owner/name")
        assert (reply.status_code, reply.json()["id"]) == (200, "owner/name")
        assert httpx.get(f"{running.url}/v1/models/owner").status_code == 404


@pytest.fixture(scope="module")
def described(server: RunningServer) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(server.url + "/openapi.json", timeout=240).json()
    return found


@pytest.mark.slow
def test_the_description_is_valid(described: dict[str, Any]) -> None:
    validate(described)


NATIVE = {"/v1/score", "/v1/compare", "/v1/rank", "/v1/principles", "/v1/models", "/v1/models/{name}"} | {
    "/healthz",
    "/readyz",
    "/metrics",
}


def test_every_native_route_has_an_example_of_each_request_and_reply(described: dict[str, Any]) -> None:
    assert set(described["paths"]) >= NATIVE
    for path in NATIVE:
        for method, operation in described["paths"][path].items():
            bodies = [operation["requestBody"]] if method == "post" else []
            assert len(operation["responses"]) > 1
            for body in (*bodies, *operation["responses"].values()):
                for media, content in body["content"].items():
                    examples = [each["value"] for each in content.get("examples", {}).values()]
                    examples += [content["example"]] if "example" in content else []
                    assert examples, (path, method, media)
                    for example in examples:
                        check(described, content["schema"], example)
            for status, reply in operation["responses"].items():
                wanted = "application/problem+json" if int(status) >= 400 else None
                assert wanted is None or list(reply["content"]) == [wanted], (path, status)


def check(described: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    whole = {**schema, "components": described["components"]}
    errors = [f"{error.json_path}: {error.message}" for error in OAS31Validator(whole).iter_errors(value)]
    assert not errors, errors


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("post", "/v1/score", {"prompt": METAL, "responses": ["Gold.", "x" * 3000]}),
        ("post", "/v1/score", {"model": "judge", "prompt": METAL, "responses": ["Gold."], "principles": ["p", "q"]}),
        ("post", "/v1/score", {"items": [{"prompt": METAL}]}),
        ("post", "/v1/score", {"model": "none", "items": [{"prompt": METAL, "response": "Gold."}]}),
        ("post", "/v1/compare", {"pairs": [{"prompt": METAL, "a": "Gold.", "b": "x" * 3000}]}),
        ("post", "/v1/rank", {"prompt": METAL, "responses": ["Gold.", "x" * 3000]}),
        ("get", "/v1/principles", None),
        ("get", "/v1/models", None),
        ("get", "/healthz", None),
        ("get", "/readyz", None),
    ],
)
def test_replies_are_as_described(
    http_client: httpx.Client, described: dict[str, Any], method: str, path: str, body: Any
) -> None:
    reply = http_client.request(method, path, json={"model": "rm"} | body if body is not None else None)
    media = reply.headers["content-type"].partition(";")[0]
    content = described["paths"][path][method]["responses"][str(reply.status_code)]["content"][media]
    check(described, content["schema"], reply.json())
    assert reply.headers["x-request-id"]
