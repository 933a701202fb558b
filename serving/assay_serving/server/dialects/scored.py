"""Items of a dialect's request scored, for replies that have a place for numbers and none for a failure.

One item that fails fails the request, with the item's number and the reason: a peer's client would take any stand-in
for a reward. Every dialect's requests go behind what people wait for (`Priority.BULK`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from fastapi import Request, Response
from pydantic_core import to_json

from assay.http.problems import ProblemError
from assay.score import Score, ScoreFailure
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.scoring_backend import Priority
from assay_serving.server.http.handler import answer
from assay_serving.server.http.state import Service

#: Failures that another try may not meet.
_PASSING = frozenset({"backend", "timeout", "busy", "rate_limited", "unavailable"})


class Scored(NamedTuple):
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
        """The payload as JSON. Headers say what the format has no place for."""
        headers = {
            "X-Assay-Model": quote(self.model),
            "X-Assay-Version": quote(self.version),
            "X-Assay-Truncated": str(sum(score.truncated for score in self.scores)),
        }
        return Response(to_json(payload), headers=headers, media_type="application/json")


async def scored(
    service: Service,
    request: Request,
    items: Sequence[ScoreItem],
    *,
    model: str | None = None,
    uncut: bool = False,
) -> Scored:
    """Scores of all items. `uncut`: a conversation whose older turns do not fit is a failure too.

    Raises ProblemError (422, or 503 where another try may help) for the first item that has no score, and what
    `scoring.answer` raises.
    """
    found = await answer(service, request, items, model=model, priority=Priority.BULK)
    scores: list[Score] = []
    for number, result in enumerate(found.results):
        if isinstance(result, Score) and result.truncated and uncut:
            result = ScoreFailure("too_long", "the conversation does not fit in the model's length")
        if isinstance(result, ScoreFailure):
            raise _problem(result, number if len(found.results) > 1 else None)
        scores.append(result)
    return Scored(found.model, found.version, tuple(scores))


def _problem(failure: ScoreFailure, number: int | None) -> ProblemError:
    where = "" if number is None else f"item {number}: "
    again = failure.code in _PASSING
    return ProblemError(
        503 if again else 422,
        f"{where}{failure.code}: {failure.message}",
        code=failure.code,
        headers={"Retry-After": "1"} if again else None,
    )
