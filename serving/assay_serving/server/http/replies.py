"""Replies of the native routes: their shapes for OpenAPI, with an example of each.

The models here only describe. Routes write plain dictionaries, because validating a reply costs more than building it;
a test checks every reply against its model.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from assay_serving.server.http.json_route import examples

_Json = dict[str, Any]
_SCORE: _Json = {
    "reward": 1.25,
    "model": "helpful",
    "version": "4c1f0a9be2d47a55",
    "template_hash": "9f2c4e1d77a0b3c8",
    "tokens": 31,
    "truncated": False,
    "probability": 0.71,
    "uncertainty": None,
    "principle": None,
    "calibration": "k-0d9b7d1c2f3a4e5b",
}
_LOWER: _Json = _SCORE | {"reward": -0.5, "probability": 0.34, "tokens": 32}
_FAILED: _Json = {
    "error": {"code": "too_long", "message": "the response does not fit in 512 tokens", "model": "helpful"}
}
_USAGE: _Json = {"items": 2, "failed": 1, "tokens": 31, "cached": 0}
_HEAD: _Json = {"model": "helpful", "version": "4c1f0a9be2d47a55"}
_MODEL: _Json = {
    "id": "helpful",
    "object": "model",
    "name": "helpful",
    "version": "4c1f0a9be2d47a55",
    "kind": "scalar",
    "template_hash": "9f2c4e1d77a0b3c8",
    "max_length": 2048,
    "calibrated": True,
    "parity": "passed",
    "dtype": "float32",
    "device": "cpu",
    "bradley_terry": True,
}
_PRINCIPLES: _Json = {
    "model": "principled",
    "version": "4c1f0a9be2d47a55",
    "kind": "principle",
    "use": "required",
    "question": "Does the response fulfil this principle: {principle} Answer Yes or No.",
    "examples": ["The response answers the question that was asked."],
    "reason": None,
}
_ID: _Json = {"request_id": "b1946ac92492d234"}


class Reply(BaseModel):
    """Newer servers may add fields."""

    model_config = ConfigDict(extra="allow")


class FailureBody(Reply):
    code: str = Field(description="bad_input, too_long, non_finite, unparsable, backend, ...")
    message: str
    model: str | None


class PartBody(Reply):
    """One part of a composed reward. `skipped` says why it was not evaluated."""

    name: str
    reward: float | None = None
    value: float | None = Field(None, description="After its shaping: what was combined.")
    weight: float | None = None
    model: str | None = None
    version: str | None = None
    skipped: str | None = None


class ResultBody(Reply):
    """A score, or `error` and nothing else: a failed score is never a number."""

    reward: float | None = Field(None, description="The model's raw output, comparable within one prompt.")
    probability: float | None = Field(None, description="Calibrated, of beating a typical response; null without one.")
    uncertainty: float | None = Field(None, description="Standard deviation of the reward where the model gives one.")
    model: str | None = None
    version: str | None = Field(None, description="Content hash of the checkpoint that answered.")
    template_hash: str | None = None
    tokens: int | None = None
    truncated: bool | None = Field(None, description="Whether older turns were cut to the model's length.")
    principle: str | None = None
    calibration: str | None = Field(None, description="Identity of the calibration that gave the probability.")
    parts: list[PartBody] | None = Field(None, description="Of a composed reward.")
    error: FailureBody | None = None


class UsageBody(Reply):
    items: int
    failed: int
    tokens: int
    cached: int = Field(description="Results that no engine had to compute for this request.")


class ScoringReply(Reply):
    model: str
    version: str
    usage: UsageBody
    request_id: str | None


class PrincipleResults(Reply):
    """One result per item (or response), in the order of the request."""

    principle: str
    results: list[ResultBody]


class ScoreReply(ScoringReply):
    """`results`: one per item (or response), in the order of the request, groups one after the other. A request with
    `principles` is answered in `by_principle` instead, and `results` is empty."""

    model_config = examples(
        {**_HEAD, "results": [_SCORE, _FAILED], "usage": _USAGE, **_ID},
        {
            **_HEAD,
            "results": [],
            "by_principle": [
                {
                    "principle": "The response is short.",
                    "results": [_SCORE | {"principle": "The response is short."}],
                }
            ],
            "usage": {"items": 1, "failed": 0, "tokens": 31, "cached": 1},
            **_ID,
        },
    )

    results: list[ResultBody]
    by_principle: list[PrincipleResults] | None = None


class PreferenceBody(Reply):
    """All but the results is null where one of the two has no score."""

    a: ResultBody
    b: ResultBody
    preferred: str | None = Field(description="a, b or tie, by the rewards.")
    margin: float | None = Field(description="Reward of a - reward of b.")
    probability: float | None = Field(description="P(a is preferred); null where nothing supports one.")
    basis: str | None = Field(
        description="What the probability rests on: calibration (fitted on pairs), or bradley_terry (the logistic "
        "function that the model was trained with, uncalibrated)."
    )
    uncertainty: float | None = Field(
        description="Standard deviation of the margin as if the errors of the two rewards were independent."
    )


class CompareReply(ScoringReply):
    """One result per pair, in the order of the request."""

    model_config = examples(
        {
            **_HEAD,
            "results": [
                {
                    "a": _SCORE,
                    "b": _LOWER,
                    "preferred": "a",
                    "margin": 1.75,
                    "probability": 0.83,
                    "basis": "calibration",
                    "uncertainty": None,
                }
            ],
            "usage": {"items": 2, "failed": 0, "tokens": 63, "cached": 0},
            **_ID,
        }
    )

    results: list[PreferenceBody]


class RankReply(ScoringReply):
    """`order`: places of the responses, best first, failed ones last. `ranks` and `results` are in the request's order:
    rank 1 is the best, equal ranks are ties, null has no score."""

    model_config = examples(
        {
            **_HEAD,
            "order": [1, 0, 2],
            "ranks": [2, 1, None],
            "results": [_LOWER, _SCORE, _FAILED],
            "usage": {"items": 3, "failed": 1, "tokens": 63, "cached": 0},
            **_ID,
        }
    )

    order: list[int]
    ranks: list[int | None]
    results: list[ResultBody]


class ModelBody(Reply):
    """One served model: its name as `id`, and what `assay_serving.scorer.ModelInfo` holds."""

    model_config = examples(_MODEL)

    id: str
    object: str = "model"
    kind: str
    version: str


class NotReadyBody(Reply):
    """A model that could not be loaded again when the engine process was restarted; requests for it are 503."""

    id: str
    reason: str


class ModelsReply(Reply):
    model_config = examples({"object": "list", "data": [_MODEL]})

    object: str = "list"
    data: list[ModelBody]
    not_ready: list[NotReadyBody] | None = Field(None, description="Only where there is one.")


class PrinciplesBody(Reply):
    """How one served model uses principles: `required`, `optional` or `refused`; `reason` is given without examples."""

    model_config = examples(_PRINCIPLES)

    model: str
    version: str
    kind: str
    use: str
    question: str | None = Field(description="The wording the model was trained with, where it is known.")
    examples: list[str] = Field(description="Principles to try; any other text works as well.")
    reason: str | None


class PrinciplesReply(Reply):
    model_config = examples({"object": "list", "data": [_PRINCIPLES]})

    object: str = "list"
    data: list[PrinciplesBody]


class HealthReply(Reply):
    model_config = examples({"status": "ok"})

    status: str


class ReadyReply(Reply):
    model_config = examples({"status": "ready", "models": ["helpful"]})

    status: str
    models: list[str]
    not_ready: list[NotReadyBody] | None = Field(None, description="Only where there is one.")


class ProblemBody(Reply):
    """An error as problem details (RFC 9457). `code` is for programs, `detail` for people."""

    model_config = examples(
        {
            "type": "urn:assay:problem:bad_input",
            "title": "Unprocessable Content",
            "status": 422,
            "code": "bad_input",
            "detail": "items.0.response: Field required",
            **_ID,
            "errors": [{"field": "items.0.response", "message": "Field required"}],
        }
    )

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str | None
    errors: list[dict[str, Any]] | None = None
