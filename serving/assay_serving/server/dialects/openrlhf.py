"""OpenRLHF's remote reward model: `POST /get_reward`, `--reward.remote_url http://HOST:PORT/get_reward`.

`query` holds conversations as decoded from the policy's tokens, with special tokens; they are read unchanged, or
converted from the policy's template. Its client retries errors five times, a second apart, and then leaves the sample
without a reward.
"""

import json
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from assay.errors import BadInputError
from assay.http.body_lists import ListOf
from assay_serving.scorer import Rendered, ScoreItem
from assay_serving.server.dialects.scoring import score_all
from assay_serving.server.dialects.texts import OpenBody
from assay_serving.server.http.json_route import JsonRoute, described, examples
from assay_serving.server.http.service import SCORING_STATUSES, ScoringService

#: For formats whose body has no model name.
MODEL_PARAMETER: dict[str, Any] = {
    "name": "model",
    "in": "query",
    "required": False,
    "description": "Name of the served model; needed only where there are several.",
    "schema": {"type": "string"},
}
_TEXT = "<|im_start|>user\nName a metal.<|im_end|>\n<|im_start|>assistant\nGold.<|im_end|>"


class GetRewardBody(OpenBody):
    """Lists of equal length; empty lists get empty replies."""

    model_config = examples({"query": [_TEXT], "prompts": [""], "labels": [None]})

    query: str | ListOf[str]
    prompts: list[Any] | None = Field(None, description="Not needed: the query holds the prompt.")
    labels: list[Any] | None = Field(None, description="Ground truths for verifiers, text or JSON; models ignore them.")

    def items(self) -> list[ScoreItem]:
        """Raises BadInputError for labels of another number than queries."""
        queries = [self.query] if isinstance(self.query, str) else self.query
        labels = self.labels or [None] * len(queries)
        if len(labels) != len(queries):
            raise BadInputError(f"{len(labels)} labels for {len(queries)} queries", field="labels")
        return [
            ScoreItem((), "", rendered=Rendered(query, complete=True), label=label_of(label))
            for query, label in zip(queries, labels, strict=True)
        ]


#: `scores`, for dynamic filtering: calibrated probabilities where the model gives them, else the rewards.
_REPLY = {"rewards": [1.25], "scores": [0.71], "extra_logs": {}}


def openrlhf_routes(service: ScoringService) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post(
        "/get_reward",
        responses=described(_REPLY, *SCORING_STATUSES),
        openapi_extra={"parameters": [MODEL_PARAMETER]},
    )
    async def get_reward(body: GetRewardBody, request: Request) -> Response:
        """OpenRLHF's remote reward model. `?model=NAME` in its URL names one of several."""
        scores = await score_all(service, request, body.items(), model=model_parameter(request))
        probabilities = [score.probability for score in scores.scores if score.probability is not None]
        calibrated = len(probabilities) == len(scores.scores)
        logs = {"reward_tokens": [float(score.tokens) for score in scores.scores]}
        return scores.reply(
            {
                "rewards": scores.rewards,
                "scores": probabilities if calibrated else scores.rewards,
                "extra_logs": logs if scores.scores else {},
            }
        )

    return router


def model_parameter(request: Request) -> str | None:
    """The model of the query string."""
    return request.query_params.get("model")


def label_of(label: Any) -> str | None:
    """A ground truth as items carry it: text as it is, anything else as JSON."""
    return label if label is None or isinstance(label, str) else json.dumps(label)
