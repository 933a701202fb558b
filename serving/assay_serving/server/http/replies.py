"""Replies of the native routes for OpenAPI: an example of each, from which its schema follows, and what fields mean.

Routes write plain dictionaries, because validating a reply costs more than building it; a test checks every reply
against its schema.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict

from assay_serving.server.http.json_route import examples

_Json = dict[str, Any]
_SCORE: _Json = {
    "reward": 1.25,
    "model": "helpful",
    "version": "4c1f0a9be2d47a55",
    "template_hash": "9f2c4e1d77a0b3c8",
    "tokens": 31,
    "truncated": False,
    "probability": (0.71, None),
    "uncertainty": (None, 0.25),
    "principle": (None, "The response is short."),
    "calibration": ("k-0d9b7d1c2f3a4e5b", None),
}
_LOWER: _Json = _SCORE | {"reward": -0.5, "probability": (0.34, None), "tokens": 32}
_FAILED: _Json = {
    "error": {"code": "too_long", "message": "the response does not fit in 512 tokens", "model": ("helpful", None)}
}
_RESULT = (_SCORE, _FAILED)
_HEAD: _Json = {
    "model": "helpful",
    "version": "4c1f0a9be2d47a55",
    "usage": {"items": 2, "failed": 1, "tokens": 31, "cached": 0},
    "request_id": ("b1946ac92492d234", None),
}
_SHORT = "The response is short."
_BY_PRINCIPLE: _Json = {"principle": _SHORT, "results": [_SCORE | {"principle": _SHORT}, _FAILED]}
#: One result per item (or response), in the order of the request, groups one after the other. A request with
#: `principles` is answered in `by_principle` instead, and `results` is empty.
SCORE_REPLY = (
    {**_HEAD, "results": [_SCORE, _FAILED]},
    {**_HEAD, "results": [], "by_principle": [_BY_PRINCIPLE]},
)
#: One result per pair; all but its results is null where one of the two has no score.
COMPARE_REPLY: _Json = {
    **_HEAD,
    "results": [
        {
            "a": _RESULT,
            "b": (_LOWER, _FAILED),
            "preferred": ("a", None),
            "margin": (1.75, None),
            "probability": (0.83, None),
            "basis": ("calibration", None),
            "uncertainty": (None, 0.25),
        }
    ],
}
RANK_REPLY: _Json = {**_HEAD, "order": [1, 0, 2], "ranks": [2, 1, None], "results": [_LOWER, _SCORE, _FAILED]}
#: Its name as `id`, and what `assay_serving.scorer.ModelInfo` holds.
MODEL: _Json = {
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
#: With `not_ready` where a model could not be loaded again after the engine process was restarted.
MODELS_REPLY: _Json = {"object": "list", "data": [MODEL]}
PRINCIPLES_REPLY: _Json = {
    "object": "list",
    "data": [
        {
            "model": "principled",
            "version": "4c1f0a9be2d47a55",
            "kind": "principle",
            "use": "required",
            "question": ("Does the response fulfil this principle: {principle} Answer Yes or No.", None),
            "examples": ["The response answers the question that was asked."],
            "reason": (None, "its training principles are not recorded"),
        }
    ],
}
HEALTH_REPLY = {"status": "ok"}
READY_REPLY: _Json = {"status": "ready", "models": ["helpful"]}

#: What a field of these replies says, wherever it stands.
FIELDS = {
    "reward": "The model's raw output, comparable within one prompt.",
    "probability": "Calibrated, of beating a typical response; of a pair P(a is preferred); null without one.",
    "uncertainty": "Standard deviation of the reward where the model gives one; of a pair, that of the margin as if "
    "the errors of the two rewards were independent.",
    "version": "Content hash of the checkpoint that answered.",
    "truncated": "Whether older turns were cut to the model's length.",
    "calibration": "Identity of the calibration that gave the probability.",
    "error": "Why there is no score: bad_input, too_long, non_finite, unparsable, backend, ...",
    "cached": "Results that no engine had to compute for this request.",
    "preferred": "a, b or tie, by the rewards.",
    "margin": "Reward of a - reward of b.",
    "basis": "What the probability rests on: calibration (fitted on pairs), or bradley_terry (the logistic function "
    "that the model was trained with, uncalibrated).",
    "order": "Places of the responses, best first, failed ones last.",
    "ranks": "In the request's order: 1 is the best, equal ranks are ties, null has no score.",
    "use": "How the model uses principles: required, optional or refused.",
    "question": "The wording the model was trained with, where it is known.",
    "examples": "Principles to try; any other text works as well.",
    "reason": "Given without examples.",
}


class ProblemBody(BaseModel):
    """An error as problem details (RFC 9457). `code` is for programs, `detail` for people. Newer servers may add
    fields."""

    model_config = ConfigDict(extra="allow") | examples(
        {
            "type": "urn:assay:problem:bad_input",
            "title": "Unprocessable Content",
            "status": 422,
            "code": "bad_input",
            "detail": "items.0.response: Field required",
            "request_id": "b1946ac92492d234",
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
