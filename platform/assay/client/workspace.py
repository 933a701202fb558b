"""The client: one blocking connection to one web server.

Every request may be sent again, for pushing the same pairs and adding the same items twice changes nothing: replies
that pass by themselves (429, 502, 503, 504) and broken connections are retried within `patience_s`. Leaves out: voting.
"""

import json
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from assay.client.records import PulledDecision, PulledVote, PushedRecords, QueueStanding, RecordError, of
from assay.errors import (
    AssayError,
    BackendError,
    BadInputError,
    BusyError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    RateLimitError,
)
from assay.system.closable import Closable

RECORDS, BYTES = 500, 2 << 20  #: of one request
PASSING = frozenset((429, 502, 503, 504))
_ERRORS: dict[int, type[AssayError]] = {
    400: BadInputError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: BadInputError,
    422: BadInputError,
    429: RateLimitError,
    503: BusyError,
}


class WorkspaceClient(Closable):
    """`token`: an API token of the page (a name alone, on a server that was started with `--open`). Methods raise
    ForbiddenError, NotFoundError, BadInputError, ConflictError, BusyError (it did not pass within `patience_s`), and
    BackendError where the server failed or is none of ours."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        name: str | None = None,
        ca: str | None = None,
        timeout_s: float = 60.0,
        patience_s: float = 120.0,
    ) -> None:
        if (token is None) == (name is None):
            raise BadInputError("give a token, or for a server without accounts a name")
        self.url = url.rstrip("/")
        self._patience_s = patience_s
        verify: Any = True
        if ca is not None:
            import ssl

            verify = ssl.create_default_context(cafile=ca)
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self._client = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s, verify=verify)
        if name is not None:
            session = self._send("POST", "/api/session", {"name": name})
            self._client.headers["X-CSRF-Token"] = session["csrf"]

    def push(
        self,
        records: Iterable[Mapping[str, Any]],
        *,
        source: str,
        queue: str | None = None,
        principles: Iterable[str] = (),
        reason: str = "",
        **queue_settings: Any,
    ) -> PushedRecords:
        """Pairs into the workspace, and into a queue where one is named, which is made if it is not there yet.

        A record has `prompt` (text or messages), `response_a` and `response_b` (or `chosen` and `rejected`), and where
        known `label` (A, B or tie), `id`, `category`, `metadata` (an object). What cannot be taken is in the report;
        the rest is stored. `queue_settings`: of a new queue: overlap, guideline, gold_checks, project, ...
        """
        if queue_settings and queue is None:
            raise BadInputError(f"{next(iter(queue_settings))} is of a queue: name one", field="queue")
        ids: list[str | None] = []
        rejected: list[RecordError] = []
        runs: list[str] = []
        new = queued = 0
        question = {"principles": list(principles), "reason": reason}
        for part in _parts(records):
            reply = self._send("POST", "/api/records", {"source": source, "records": part})
            rejected += [of(RecordError, {**each, "index": len(ids) + each["index"]}) for each in reply["rejected"]]
            ids += reply["comparison_ids"]
            new += reply["new"]
            runs.append(reply["run"])
            accepted = list(dict.fromkeys(each for each in reply["comparison_ids"] if each is not None))
            if queue is not None and accepted:
                queued += self._enqueue(queue, accepted, question, queue_settings)
        return PushedRecords(tuple(ids), new, tuple(rejected), queued, tuple(runs))

    def queues(self) -> list[QueueStanding]:
        """Of one's projects, newest first."""
        return [of(QueueStanding, each) for each in self._send("GET", "/api/queues")]

    def queue(self, name: str) -> QueueStanding:
        return of(QueueStanding, self._send("GET", f"/api/queues/{quote(name, safe='')}"))

    def votes(
        self, queue: str, *, after: str | None = None, follow_s: float | None = None, page: int = 500
    ) -> Iterator[PulledVote]:
        """Votes in the order in which they were cast or taken back, a page in memory at a time. `after`: the `cursor`
        of the last one that was pulled before. `follow_s`: seconds between looks for more, without an end; None: end
        with the last vote there is."""
        path = f"/api/records/queues/{quote(queue, safe='')}/votes"
        for each, cursor in self._pages(path, "votes", after, follow_s, page):
            yield of(PulledVote, each, cursor=cursor)

    def decisions(
        self, *, after: str | None = None, follow_s: float | None = None, page: int = 500
    ) -> Iterator[PulledDecision]:
        """What was decided, in order; as `votes`."""
        for each, cursor in self._pages("/api/records/decisions", "decisions", after, follow_s, page):
            yield of(PulledDecision, each, cursor=cursor)

    def close(self) -> None:
        self._client.close()

    def _enqueue(self, queue: str, ids: list[str], question: dict[str, Any], settings: dict[str, Any]) -> int:
        items = {"comparison_ids": ids, **question}
        path = f"/api/queues/{quote(queue, safe='')}/items"
        try:
            return int(self._send("POST", path, items)["added"])
        except NotFoundError:
            created = self._send("POST", "/api/queues", {"name": queue, "gold_checks": 0.0, **items, **settings})
            return len(ids) if created["counts"] is None else int(created["counts"]["items"])

    def _pages(
        self, path: str, what: str, after: str | None, follow_s: float | None, page: int
    ) -> Iterator[tuple[dict[str, Any], str]]:
        """Entries, each with a cursor after it: all but a page's last have that of the page before, so that who goes on
        from there gets some again and none is missed."""
        while True:
            query = {"most": page} | ({"after": after} if after is not None else {})
            reply = self._send("GET", path, query=query)
            entries = reply[what]
            for number, entry in enumerate(entries, 1):
                yield entry, reply["cursor"] if number == len(entries) else (after or "")
            after = reply["cursor"]
            if not reply["more"]:
                if follow_s is None:
                    return
                time.sleep(follow_s)

    def _send(self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None) -> Any:
        deadline, pause = time.monotonic() + self._patience_s, 0.25
        while True:
            error: AssayError
            wait: float | None = None
            try:
                reply = self._client.request(method, path, json=body, params=query)
            except httpx.HTTPError as fault:
                error = BackendError(f"{self.url} cannot be reached: {fault}")
            else:
                if reply.is_success:
                    return _payload(reply, self.url)
                error = _error_of(reply)
                wait = getattr(error, "retry_after", None)
                if reply.status_code not in PASSING:
                    raise error
            wait = (wait or 0.0) + random.uniform(pause / 2, pause)
            if time.monotonic() + wait > deadline:
                raise error
            time.sleep(wait)
            pause = min(2 * pause, 10.0)


def _parts(records: Iterable[Mapping[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Records as requests carry them: at most RECORDS, and BYTES unless one alone has more."""
    held: list[dict[str, Any]] = []
    size = 0
    for record in records:
        plain = dict(record)
        grown = len(json.dumps(plain, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        if held and (len(held) >= RECORDS or size + grown > BYTES):
            yield held
            held, size = [], 0
        held.append(plain)
        size += grown
    if held:
        yield held


def _payload(reply: httpx.Response, url: str) -> Any:
    try:
        return reply.json()
    except ValueError:
        raise BackendError(f"{url} did not answer as assay web does") from None


def _error_of(reply: httpx.Response) -> AssayError:
    try:
        problem = reply.json()
        detail = str(problem["detail"])
        fields = [f"{each['field']}: {each['message']}" for each in problem.get("errors", []) if "message" in each]
        detail = "; ".join([detail, *fields])
    except (ValueError, KeyError, TypeError):
        detail = f"HTTP {reply.status_code}"
    kind = _ERRORS.get(reply.status_code, BackendError)
    if issubclass(kind, BusyError):
        seconds = reply.headers.get("retry-after", "")
        return kind(detail, retry_after=float(seconds) if seconds.isdecimal() else None)
    return kind(detail)
