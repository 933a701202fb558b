"""The wire of `/v1/score` as the client sees it, without any input or output.

Covers: cutting items into requests, bodies, reading replies, errors of the hierarchy for what went wrong. Leaves
out: sending (`blocking`, `asynchronous`), tries (`retries`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx

from assay.conversation import check_unicode
from assay.domain import Message, Prompt
from assay.errors import AssayError, BackendError, BadInputError, BusyError, NotFoundError
from assay.score import ScoreFailure, ScoreResult, score_from_dict
from assay_serving.client.retries import retry_after_of
from assay_serving.scorer import ModelInfo, ScoreItem

SCORE, MODELS, READY = "/v1/score", "/v1/models", "/readyz"
CHARACTERS_PER_REQUEST = 2_000_000  #: keeps bodies far below the server's limit even as escaped UTF-8


def as_prompt(prompt: str | Prompt) -> Prompt:
    """A text is one user turn."""
    return (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)


def unsendable(item: ScoreItem) -> ScoreFailure | None:
    """The failure of an item whose text no JSON in UTF-8 can hold; the items beside it are sent."""
    try:
        for text in (item.response, item.principle or "", *(m.content for m in item.prompt)):
            check_unicode(text, "text")
    except BadInputError as error:
        return ScoreFailure("bad_input", str(error))
    return None


def put_in_place(refused: Sequence[ScoreFailure | None], results: Sequence[ScoreResult]) -> list[ScoreResult]:
    """Results of all items from the failures of those not sent and the results of the others."""
    rest = iter(results)
    return [failure if failure is not None else next(rest) for failure in refused]


def cut(items: Sequence[ScoreItem], most: int) -> list[Sequence[ScoreItem]]:
    """Consecutive runs of at most `most` items and about CHARACTERS_PER_REQUEST characters, at least one item each."""
    runs: list[Sequence[ScoreItem]] = []
    start = characters = 0
    for place, item in enumerate(items):
        size = item.characters
        if place > start and (place - start >= most or characters + size > CHARACTERS_PER_REQUEST):
            runs.append(items[start:place])
            start, characters = place, 0
        characters += size
    if start < len(items):
        runs.append(items[start:])
    return runs


def score_body(items: Sequence[ScoreItem], model: str | None) -> dict[str, Any]:
    """The request's JSON; items of one prompt share it."""
    body: dict[str, Any] = {} if model is None else {"model": model}
    first = items[0]
    if len(items) > 1 and all(i.prompt == first.prompt and i.principle == first.principle for i in items):
        body |= {"prompt": [m.to_dict() for m in first.prompt], "responses": [i.response for i in items]}
        return body if first.principle is None else body | {"principle": first.principle}
    entries = []
    for item in items:
        entry: dict[str, Any] = {"prompt": [m.to_dict() for m in item.prompt], "response": item.response}
        entries.append(entry if item.principle is None else entry | {"principle": item.principle})
    return body | {"items": entries}


def read_scores(response: httpx.Response, expected: int) -> list[ScoreResult]:
    """Results of a 200 reply. Raises BackendError for anything that is not exactly one result per item."""
    try:
        results = [score_from_dict(entry) for entry in response.json()["results"]]
    except (ValueError, KeyError, TypeError) as error:
        raise BackendError(f"{response.url} did not answer as a reward server: {type(error).__name__}") from error
    if len(results) != expected:
        raise BackendError(f"{response.url} answered {len(results)} results for {expected} items")
    return results


def read_models(response: httpx.Response) -> list[ModelInfo]:
    try:
        return [ModelInfo.from_dict(entry) for entry in response.json()["data"]]
    except (ValueError, KeyError, TypeError) as error:
        raise BackendError(f"{response.url} did not answer as a reward server: {type(error).__name__}") from error


def error_of(response: httpx.Response, tries: int) -> AssayError:
    """The hierarchy's error for a reply that is not 200."""
    try:
        payload = response.json()
        detail = str(payload["detail"])
    except (ValueError, KeyError, TypeError):
        detail = response.reason_phrase
    status = response.status_code
    text = f"{response.url}: {status} {detail}" + (f" ({tries} tries)" if tries > 1 else "")
    if status == 404:
        return NotFoundError(text)
    if status in (429, 503):
        return BusyError(text, retry_after=retry_after_of(response))
    if 400 <= status < 500:
        return BadInputError(text)
    return BackendError(text)


def error_of_fault(error: httpx.TransportError, url: str, tries: int) -> BackendError:
    """The hierarchy's error for a connection that failed."""
    reason = "no answer in time" if isinstance(error, httpx.TimeoutException) else (str(error) or type(error).__name__)
    return BackendError(f"{url}: {reason}" + (f" ({tries} tries)" if tries > 1 else ""))


def failures_of(error: AssayError, count: int, model: str | None) -> list[ScoreResult]:
    """The error in place of each score, for callers that mask what is missing."""
    return [ScoreFailure(error.code, str(error), model)] * count
