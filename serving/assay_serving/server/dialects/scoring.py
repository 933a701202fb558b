"""Scoring the items of a dialect's request, for reply formats without a place for failures.

One failed item fails the request, with its number and the reason: the format's clients would take any other value for
a reward. Requests of dialects have the priority `Priority.BULK`; where one model is served it answers to any name, as
some clients send a fixed one.
"""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from fastapi import Request, Response
from pydantic_core import to_json

from assay.http.problems import ProblemError
from assay.score import Score, ScoreFailure
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.scoring_backend import Priority
from assay_serving.server.http.service import ScoringService

#: Failures that a retry may not meet.
_TRANSIENT = frozenset({"backend", "timeout", "busy", "rate_limited", "unavailable"})


class DialectScores(NamedTuple):
    """`model`: the name it is served under."""

    model: str
    version: str
    scores: tuple[Score, ...]

    @property
    def rewards(self) -> list[float]:
        return [score.reward for score in self.scores]

    @property
    def tokens(self) -> int:
        return sum(score.tokens for score in self.scores)

    def reply(self, payload: object) -> Response:
        """The payload as JSON. Headers hold what the format has no field for."""
        headers = {
            "X-Assay-Model": quote(self.model),
            "X-Assay-Version": quote(self.version),
            "X-Assay-Truncated": str(sum(score.truncated for score in self.scores)),
        }
        return Response(to_json(payload), headers=headers, media_type="application/json")


async def score_all(
    service: ScoringService,
    request: Request,
    items: Sequence[ScoreItem],
    *,
    model: str | None = None,
    uncut: bool = False,
) -> DialectScores:
    """Scores of all items. `uncut`: a conversation whose older turns do not fit is a failure too.

    Raises ProblemError (422, or 503 where a retry may help) for the first item without a score, and what
    `ScoringService.score` raises.
    """
    response = await service.score(request, items, model=model, priority=Priority.BULK, any_name=True)
    scores: list[Score] = []
    for number, result in enumerate(response.results):
        if isinstance(result, Score) and result.truncated and uncut:
            result = ScoreFailure("too_long", "the conversation does not fit in the model's length")
        if isinstance(result, ScoreFailure):
            raise _problem(result, number if len(response.results) > 1 else None)
        scores.append(result)
    return DialectScores(response.model, response.version, tuple(scores))


def _problem(failure: ScoreFailure, number: int | None) -> ProblemError:
    prefix = "" if number is None else f"item {number}: "
    retry = failure.code in _TRANSIENT
    return ProblemError(
        503 if retry else 422,
        f"{prefix}{failure.code}: {failure.message}",
        code=failure.code,
        headers={"Retry-After": "1"} if retry else None,
    )
