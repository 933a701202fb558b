"""The client's side of the native routes, without I/O.

Covers: splitting items into requests, bodies, reading replies, errors of the hierarchy. Leaves out: sending
(`blocking`, `asynchronous`), retries (`retries`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, TypeVar

import httpx

from assay.data.conversation import check_unicode
from assay.domain import Message, Prompt
from assay.errors import (
    AssayError,
    BackendError,
    BadInputError,
    BusyError,
    LateError,
    NotFoundError,
    RateLimitError,
)
from assay.score import ScoreFailure, ScoreResult, score_from_dict
from assay_serving.client.connection import ConnectionSettings
from assay_serving.client.principles import PrincipleUse
from assay_serving.client.retries import retry_after_of
from assay_serving.preference import Preference
from assay_serving.scorer import ModelInfo, ScoreItem

SCORE, COMPARE, PRINCIPLES, MODELS, READY = "/v1/score", "/v1/compare", "/v1/principles", "/v1/models", "/readyz"
CHARACTERS_PER_REQUEST = 2_000_000  #: keeps bodies far below the server's limit even as escaped UTF-8


T = TypeVar("T")


def as_prompt(prompt: str | Prompt) -> Prompt:
    """A text is one user turn."""
    return (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)


def group_items(
    prompt: str | Prompt,
    responses: Sequence[str],
    *,
    principle: str | None = None,
    references: Sequence[str] = (),
    label: str | None = None,
) -> list[ScoreItem]:
    """Items of several responses to one prompt."""
    shared, reference_texts = as_prompt(prompt), tuple(references)
    return [ScoreItem(shared, response, principle, label=label, references=reference_texts) for response in responses]


def by_principle(
    items: Sequence[ScoreItem], principles: Sequence[str], results: Sequence[ScoreResult]
) -> dict[str, list[ScoreResult]]:
    """Results of `judged_by` all principles, in its order."""
    each = len(items)
    return {principle: list(results[n * each : (n + 1) * each]) for n, principle in enumerate(principles)}


def judged_by(items: Sequence[ScoreItem], principles: Sequence[str]) -> list[ScoreItem]:
    """Every item by every principle, the first principle's items first. Raises BadInputError for a duplicate."""
    if len(set(principles)) < len(principles):
        raise BadInputError("a principle is given twice", field="principles")
    return [
        ScoreItem(item.prompt, item.response, principle, label=item.label, references=item.references)
        for principle in principles
        for item in items
    ]


def unsendable(item: ScoreItem) -> ScoreFailure | None:
    """The failure of an item whose text is not valid Unicode; other items are sent."""
    if item.rendered is not None:
        return ScoreFailure("bad_input", "/v1/score takes prompts and responses, not rendered text")
    if not item.prompt:
        return ScoreFailure("bad_input", "a prompt needs at least one message")
    texts = (item.response, item.principle or "", item.label or "", *item.references)
    try:
        for text in (*texts, *(m.content for m in item.prompt)):
            check_unicode(text, "text")
    except BadInputError as error:
        return ScoreFailure("bad_input", str(error))
    return None


def put_in_place(refused: Sequence[ScoreFailure | None], results: Sequence[ScoreResult]) -> list[ScoreResult]:
    """Results of all items: failures of those not sent, results of the others."""
    remaining = iter(results)
    return [failure if failure is not None else next(remaining) for failure in refused]


def cut(items: Sequence[ScoreItem], most: int) -> list[Sequence[ScoreItem]]:
    """Consecutive runs of at most `most` items and about CHARACTERS_PER_REQUEST characters, at least one item each."""
    return _cut(items, most, lambda item: item.characters)


def _cut(entries: Sequence[T], most: int, size_of: Callable[[T], int]) -> list[Sequence[T]]:
    runs: list[Sequence[T]] = []
    start = characters = 0
    for index, entry in enumerate(entries):
        size = size_of(entry)
        if index > start and (index - start >= most or characters + size > CHARACTERS_PER_REQUEST):
            runs.append(entries[start:index])
            start, characters = index, 0
        characters += size
    if start < len(entries):
        runs.append(entries[start:])
    return runs


def pair_items(
    pairs: Sequence[tuple[str | Prompt, str, str]], principle: str | None
) -> list[tuple[ScoreItem, ScoreItem]]:
    """The two items of each (prompt, a, b)."""
    shared = [(as_prompt(prompt), a, b) for prompt, a, b in pairs]
    return [(ScoreItem(prompt, a, principle), ScoreItem(prompt, b, principle)) for prompt, a, b in shared]


def refused_pair(pair: tuple[ScoreItem, ScoreItem]) -> Preference | None:
    """The failure of a pair that cannot be sent: of both sides, since neither can be compared."""
    failure = unsendable(pair[0]) or unsendable(pair[1])
    return Preference(failure, failure) if failure is not None else None


def failed_pairs(error: AssayError, count: int, model: str | None) -> list[Preference]:
    """As `failures_of`, of pairs."""
    failure = ScoreFailure(error.code, str(error), model)
    return [Preference(failure, failure)] * count


def cut_pairs(pairs: Sequence[tuple[ScoreItem, ScoreItem]], most: int) -> list[Sequence[tuple[ScoreItem, ScoreItem]]]:
    """As `cut`, of pairs: at most `most` items, but at least one pair, a run."""
    return _cut(pairs, max(1, most // 2), lambda pair: pair[0].characters + pair[1].characters)


def score_body(items: Sequence[ScoreItem], settings: ConnectionSettings) -> dict[str, Any]:
    """The request's JSON. Items of one prompt that follow each other share it."""
    groups = [list(group) for _, group in groupby(items, key=_shared)]
    if len(groups) == len(items) > 1:
        return _options(settings) | {"items": [_shared_fields(i) | {"response": i.response} for i in items]}
    bodies = [_shared_fields(group[0]) | {"responses": [i.response for i in group]} for group in groups]
    return _options(settings) | (bodies[0] if len(bodies) == 1 else {"groups": bodies})


def compare_body(pairs: Sequence[tuple[ScoreItem, ScoreItem]], settings: ConnectionSettings) -> dict[str, Any]:
    """The request's JSON. Raises BadInputError where the two sides of a pair differ in more than their response."""
    if any(_shared(a) != _shared(b) for a, b in pairs):
        raise BadInputError("a pair shares its prompt and its principle")
    return _options(settings) | {"pairs": [_shared_fields(a) | {"a": a.response, "b": b.response} for a, b in pairs]}


def _options(settings: ConnectionSettings) -> dict[str, Any]:
    """Options of every scoring request."""
    body = {"model": settings.model, "priority": settings.priority}
    return {name: value for name, value in body.items() if value is not None}


def _shared(item: ScoreItem) -> tuple[Any, ...]:
    return item.prompt, item.principle, item.label, item.references


def _shared_fields(item: ScoreItem) -> dict[str, Any]:
    """The shared fields of a group, as JSON."""
    fields: dict[str, Any] = {"prompt": [m.to_dict() for m in item.prompt]}
    if item.principle is not None:
        fields["principle"] = item.principle
    if item.label is not None:
        fields["label"] = item.label
    if item.references:
        fields["references"] = list(item.references)
    return fields


def read_scores(response: httpx.Response, expected: int) -> list[ScoreResult]:
    """Results of a 200 reply. Raises BackendError for anything that is not exactly one result per item."""
    return _results(response, "results", score_from_dict, expected)


def read_preferences(response: httpx.Response, expected: int) -> list[Preference]:
    """As `read_scores`, of `/v1/compare`."""
    return _results(response, "results", Preference.from_dict, expected)


def read_models(response: httpx.Response) -> list[ModelInfo]:
    return _results(response, "data", ModelInfo.from_dict)


def read_principles(response: httpx.Response) -> list[PrincipleUse]:
    return _results(response, "data", PrincipleUse.from_dict)


def _results(
    response: httpx.Response, field: str, read: Callable[[dict[str, Any]], T], expected: int | None = None
) -> list[T]:
    try:
        results = [read(entry) for entry in response.json()[field]]
    except (ValueError, KeyError, TypeError) as error:
        raise BackendError(f"{response.url} did not answer as a reward server: {type(error).__name__}") from error
    if expected is not None and len(results) != expected:
        raise BackendError(f"{response.url} answered {len(results)} results for {expected} items")
    return results


#: Added to the server's message, which is for any client.
_HOW_TO_GIVE_A_KEY = (
    "give a key with --api-key or $ASSAY_API_KEY (in Python: api_key=...); "
    "`assay keys create NAME` makes one in the server's workspace"
)


def error_of(response: httpx.Response, tries: int) -> AssayError:
    """The hierarchy's error for a reply other than 200. It names the request id, as the server's log does."""
    try:
        detail = str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = response.reason_phrase
    status = response.status_code
    more = [f"{tries} tries"] if tries > 1 else []
    if (request_id := response.headers.get("x-request-id")) is not None:
        more.append(f"request {request_id}")
    text = f"{response.url}: {status} {detail}" + (f" ({', '.join(more)})" if more else "")
    if status == 401:
        text += f"; {_HOW_TO_GIVE_A_KEY}"
    if status == 404:
        return NotFoundError(text)
    if status == 429:
        return RateLimitError(text, retry_after=retry_after_of(response))
    if status == 503:
        return BusyError(text, retry_after=retry_after_of(response))
    if status in (408, 504):
        return LateError(text)
    return BadInputError(text) if 400 <= status < 500 else BackendError(text)


def error_of_fault(error: httpx.TransportError | None, url: str, tries: int) -> BackendError:
    """The hierarchy's error for a connection that failed; None for an open circuit (`circuit`)."""
    kind: type[BackendError] = BackendError
    if error is None:
        reason = "has not answered for some time, and is retried only occasionally"
    elif isinstance(error, httpx.TimeoutException):
        kind, reason = LateError, "no answer in time"
    else:
        reason = str(error) or type(error).__name__
    return kind(f"{url}: {reason}" + (f" ({tries} tries)" if tries > 1 else ""))


def failures_of(error: AssayError, count: int, model: str | None) -> list[ScoreResult]:
    """The error in place of each score, for callers that mask missing scores."""
    return [ScoreFailure(error.code, str(error), model)] * count
