"""The client's side of the native routes, without I/O.

Covers: splitting items into requests, bodies, reading replies, errors of the hierarchy. Leaves out: retries
(`exchange`), sending (`blocking`, `asynchronous`).
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Generic, TypeAlias, TypeVar

import httpx

from assay.conversation.message import response_form, response_text
from assay.data.conversation import check_unicode
from assay.domain import Message, Prompt, Response
from assay.errors import (
    AssayError,
    BackendError,
    BadInputError,
    BusyError,
    LateError,
    NotFoundError,
    RateLimitError,
)
from assay.score import Score, ScoreFailure, ScoreResult, score_from_dict
from assay_serving.client.connection import ConnectionSettings
from assay_serving.client.principles import PrincipleUse
from assay_serving.client.retries import retry_after_of
from assay_serving.preference import Preference
from assay_serving.routing import preference, prompt_key
from assay_serving.scorer import ModelInfo, ScoreItem

SCORE, COMPARE, PRINCIPLES, MODELS, READY = "/v1/score", "/v1/compare", "/v1/principles", "/v1/models", "/readyz"
CHARACTERS_PER_REQUEST = 2_000_000  #: keeps bodies far below the server's limit even as escaped UTF-8
_TRIES_OF_A_GROUP = 3  # after the first

T = TypeVar("T")
Entry: TypeAlias = tuple[ScoreItem, ...]  #: one item, or the two of a pair


@dataclass
class BatchCall(Generic[T]):
    """A call for one result per entry, in several requests. `failed`: the result of an entry with this failure.
    `version_of`: of a result that may only be compared with those of the same version; None: of no result."""

    path: str
    entries: Sequence[Entry]
    settings: ConnectionSettings
    body: Callable[[Sequence[Entry]], dict[str, Any]]
    read_result: Callable[[dict[str, Any]], T]
    failed: Callable[[ScoreFailure], T]
    version_of: Callable[[T], str | None] = lambda result: None

    def __post_init__(self) -> None:
        self._refused = [next(filter(None, map(unsendable, entry)), None) for entry in self.entries]
        sent = [n for n, failure in enumerate(self._refused) if failure is None]
        self.refused_count = len(self.entries) - len(sent)
        most = max(1, self.settings.max_items_per_request // max((len(self.entries[n]) for n in sent), default=1))
        urls, by_home = self.settings.urls, dict[int, list[int]]()
        for n in sent:
            home = preference(prompt_key(self.entries[n][0]), urls)[0] if len(urls) > 1 else 0
            by_home.setdefault(home, []).append(n)

        def size(n: int) -> int:
            return sum(item.characters for item in self.entries[n])

        cuts = [run for of in by_home.values() for run in _cut(of, most, size, lambda n: self.entries[n][0].prompt)]
        self._order = [n for each in cuts for n in each]
        #: The entries of each request.
        self.runs = [[self.entries[n] for n in each] for each in cuts]

    def key(self, run: Sequence[Entry]) -> bytes:
        """What decides which server a request goes to."""
        return prompt_key(run[0][0]) if len(self.settings.urls) > 1 else b""

    def read(self, response: httpx.Response, run: Sequence[Entry]) -> list[T]:
        """Results of a 200 reply. Raises BackendError for anything that is not exactly one result per entry."""
        results = _results(response, "results", self.read_result)
        if len(results) != len(run):
            raise BackendError(f"{response.url} answered {len(results)} results for {len(run)} items")
        return results

    def failures(self, error: AssayError, run: Sequence[Entry]) -> list[T]:
        """The error in place of each result, for callers that mask missing scores; else it is raised."""
        if not self.settings.failures_in_place:
            raise error
        return [self.failed(ScoreFailure(error.code, str(error), self.settings.model))] * len(run)

    def rounds(self) -> Generator[list[int], list[list[T]], list[T]]:
        """Yields numbers of runs to send, for whose results it waits. Returns one result per entry.

        A group (the responses to one prompt) that needed several requests, during which the server's model was replaced
        or another server took over, is sent again: its scores are of one version, or failures.
        """
        results = dict(enumerate((yield list(range(len(self.runs))))))
        for _ in range(_TRIES_OF_A_GROUP if len(self.runs) > 1 else 0):
            if not (mixed := self._mixed(results)):
                break
            results |= zip(mixed, (yield mixed), strict=True)
        else:
            for number in self._mixed(results) if len(self.runs) > 1 else ():
                error = BackendError("the responses to one prompt were scored by several versions of the model")
                results[number] = self.failures(error, self.runs[number])
        by_entry = dict(zip(self._order, (result for n in sorted(results) for result in results[n]), strict=True))
        return [by_entry[n] if failure is None else self.failed(failure) for n, failure in enumerate(self._refused)]

    def _mixed(self, results: Mapping[int, list[T]]) -> list[int]:
        """Numbers of the runs with a group that has scores of several versions."""
        groups: dict[Prompt, dict[str, set[int]]] = {}
        for number, of_run in results.items():
            for entry, result in zip(self.runs[number], of_run, strict=True):
                if (version := self.version_of(result)) is not None:
                    groups.setdefault(entry[0].prompt, {}).setdefault(version, set()).add(number)
        return sorted({n for of in groups.values() if len(of) > 1 for numbers in of.values() for n in numbers})


def score_call(items: Sequence[ScoreItem], settings: ConnectionSettings) -> BatchCall[ScoreResult]:
    def body(run: Sequence[Entry]) -> dict[str, Any]:
        return score_body([item for (item,) in run], settings)

    def version(result: ScoreResult) -> str | None:
        return result.version if isinstance(result, Score) else None

    entries = [(item,) for item in items]
    return BatchCall(SCORE, entries, settings, body, score_from_dict, lambda failure: failure, version)


def compare_call(
    pairs: Sequence[tuple[str | Prompt, Response, Response]], principle: str | None, settings: ConnectionSettings
) -> BatchCall[Preference]:
    """Preferences of pairs (prompt, a, b). Neither side of a pair with one that cannot be sent can be compared."""
    entries = [tuple(group_items(prompt, sides, principle=principle)) for prompt, *sides in pairs]

    def body(run: Sequence[Entry]) -> dict[str, Any]:
        shared = [_shared_fields(a) | {"a": response_form(a.response), "b": response_form(b.response)} for a, b in run]
        return _options(settings) | {"pairs": shared}

    def failed(failure: ScoreFailure) -> Preference:
        return Preference(failure, failure)

    return BatchCall(COMPARE, entries, settings, body, Preference.from_dict, failed)


def as_prompt(prompt: str | Prompt) -> Prompt:
    """A text is one user turn."""
    return (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)


def group_items(
    prompt: str | Prompt,
    responses: Sequence[Response],
    *,
    principle: str | None = None,
    references: Sequence[str] = (),
    label: str | None = None,
) -> list[ScoreItem]:
    """Items of several responses to one prompt."""
    shared, reference_texts = as_prompt(prompt), tuple(references)
    return [ScoreItem(shared, response, principle, label=label, references=reference_texts) for response in responses]


def unsendable(item: ScoreItem) -> ScoreFailure | None:
    """The failure of an item whose text is not valid Unicode; other items are sent."""
    if item.rendered is not None:
        return ScoreFailure("bad_input", "/v1/score takes prompts and responses, not rendered text")
    if not item.prompt:
        return ScoreFailure("bad_input", "a prompt needs at least one message")
    texts = (
        response_text(item.response),
        item.principle or "",
        item.label or "",
        *item.references,
        *(item.steps or ()),
    )
    try:
        for text in (*texts, *(m.text for m in item.prompt)):
            check_unicode(text, "text")
    except BadInputError as error:
        return ScoreFailure("bad_input", str(error))
    return None


def cut(items: Sequence[ScoreItem], most: int) -> list[Sequence[ScoreItem]]:
    """Consecutive runs of at most `most` items and about CHARACTERS_PER_REQUEST characters, at least one item each.
    Items of one prompt that follow each other stay together where they fit into one run."""
    return _cut(items, most, lambda item: item.characters, lambda item: item.prompt)


def _cut(
    entries: Sequence[T], most: int, size_of: Callable[[T], int], group_of: Callable[[T], Prompt]
) -> list[Sequence[T]]:
    runs: list[Sequence[T]] = []
    start = group = characters = of_group = 0  # the run, and the group that is its last one
    for index, entry in enumerate(entries):
        size = size_of(entry)
        if index == 0 or group_of(entry) != group_of(entries[index - 1]):
            group, of_group = index, 0
        while index > start and (index - start >= most or characters + size > CHARACTERS_PER_REQUEST):
            end = group if group > start else index
            runs.append(entries[start:end])
            start, characters = end, of_group if end < index else 0
        characters, of_group = characters + size, of_group + size
    if start < len(entries):
        runs.append(entries[start:])
    return runs


def score_body(items: Sequence[ScoreItem], settings: ConnectionSettings) -> dict[str, Any]:
    """The request's JSON. Items of one prompt that follow each other share it."""
    groups = [list(group) for _, group in groupby(items, key=_shared)]
    if len(groups) == len(items) > 1 or any(item.steps is not None for item in items):
        return _options(settings) | {"items": [_shared_fields(i) | _response_fields(i) for i in items]}
    bodies = [_shared_fields(group[0]) | {"responses": [response_form(i.response) for i in group]} for group in groups]
    return _options(settings) | (bodies[0] if len(bodies) == 1 else {"groups": bodies})


def _options(settings: ConnectionSettings) -> dict[str, Any]:
    """Options of every scoring request."""
    body = {"model": settings.model, "priority": settings.priority}
    return {name: value for name, value in body.items() if value is not None}


def _response_fields(item: ScoreItem) -> dict[str, Any]:
    return {"response": response_form(item.response)} if item.steps is None else {"steps": list(item.steps)}


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


def read_models(response: httpx.Response) -> list[ModelInfo]:
    return _results(response, "data", ModelInfo.from_dict)


def read_principles(response: httpx.Response) -> list[PrincipleUse]:
    return _results(response, "data", PrincipleUse.from_dict)


def _results(response: httpx.Response, field: str, read: Callable[[dict[str, Any]], T]) -> list[T]:
    try:
        return [read(entry) for entry in response.json()[field]]
    except (ValueError, KeyError, TypeError) as error:
        raise BackendError(f"{response.url} did not answer as a reward server: {type(error).__name__}") from error


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
