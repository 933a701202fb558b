"""JSON requests to an inference server with token ids: bounded concurrency, retries, typed faults.

Covers: settings of a remote engine, one request, many requests at once, a refused batch halved until the refused row is
alone. Leaves out: the routes (`vllm_server`, `sglang_server`), chat completions (`assay_serving.chat.client`).
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Annotated, Any, Self, TypeVar

import httpx
import msgspec
from annotated_types import Ge, Gt

from assay.errors import BackendError, BadInputError
from assay.runs.progress_bar import Advance
from assay.settings import check_settings
from assay_serving.chat.faults import problem_in
from assay_serving.client.connection import check_address, uses_proxy
from assay_serving.client.retries import RETRYABLE_FAULTS, RETRYABLE_STATUSES, Attempts, RetryPolicy, retry_after_of
from assay_serving.vllm.rows import Fault

KEY_VARIABLE = "ASSAY_ENGINE_API_KEY"
CONNECT_S = 5.0
SHOWN = 200  #: characters of a server's own message that are passed on

A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True)
class RemoteSettings:
    """`url`: of the server, without a route. `model`: the name the server has for it, needed where it serves
    several. `api_key`: sent as bearer token (default: $ASSAY_ENGINE_API_KEY). `timeout`: seconds of one
    request; `deadline`: of one with its retries. `rows_per_request`: rows of one request; `concurrency`: requests at
    once.
    """

    url: str
    model: str | None = None
    api_key: str | None = None
    timeout: Annotated[float, Gt(0)] = 60.0
    deadline: Annotated[float, Gt(0)] = (
        100.0  #: below what a server gives an engine call, so that a late answer is a typed failure
    )
    retries: Annotated[int, Ge(0)] = 4
    concurrency: Annotated[int, Gt(0)] = 4
    rows_per_request: Annotated[int, Gt(0)] = 32

    def __post_init__(self) -> None:
        check_settings(self)
        check_address(self.url, "url")

    @property
    def key(self) -> str | None:
        return self.api_key or os.environ.get(KEY_VARIABLE)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Raises BadInputError for an unknown option or one of another type, and without an address."""
        names = [field.name for field in fields(cls)]
        unknown = sorted(set(options) - set(names))
        if unknown:
            raise BadInputError(
                f"a remote engine has no option {unknown[0]!r}: {', '.join(names)}", field="engine_options"
            )
        if "url" not in options:
            raise BadInputError("a remote engine needs the server's address: url=http://host:port", field="url")
        try:
            return msgspec.convert(dict(options), cls)
        except msgspec.ValidationError as error:
            raise BadInputError(str(error), field="engine_options") from None


class Connection:
    """A pool of connections to one server. Safe to use from several threads."""

    def __init__(self, settings: RemoteSettings) -> None:
        self.settings = settings
        key = settings.key
        self._client = httpx.Client(
            base_url=settings.url.rstrip("/"),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(settings.timeout, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=settings.concurrency),
            trust_env=uses_proxy(settings.url),
        )
        self._workers = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="remote-engine")

    def close(self) -> None:
        self._workers.shutdown(cancel_futures=True)
        self._client.close()

    def get(self, path: str) -> Any:
        """The JSON of a GET route, None where the server has no such route.

        Raises BackendError where it cannot be reached, refuses, or does not answer JSON.
        """
        try:
            response = self._client.get(path)
        except httpx.HTTPError as error:
            raise BackendError(f"{self.settings.url} cannot be reached: {type(error).__name__} {error}") from error
        if response.status_code == 404:
            return None
        if response.status_code != 200:
            raise BackendError(f"{self.settings.url}{path} answers status {response.status_code}{_message(response)}")
        try:
            return response.json()
        except ValueError as error:
            raise BackendError(f"{self.settings.url}{path} does not answer JSON") from error

    def healthy(self) -> bool:
        """Whether /health answers 200."""
        try:
            return self._client.get("/health", timeout=CONNECT_S).status_code == 200
        except httpx.HTTPError:
            return False

    def post(self, path: str, body: Mapping[str, Any]) -> Any | Fault:
        """The JSON of the reply, or why there is none. Codes: timeout, bad_input (refused as it is), backend."""
        attempts = Attempts(RetryPolicy(retries=self.settings.retries, deadline=self.settings.deadline))
        while True:
            retry_after = None
            try:
                response = self._client.post(path, json=body)
            except RETRYABLE_FAULTS as error:
                fault, again = Fault("backend", f"{type(error).__name__}: {error}"), True
            except httpx.TimeoutException:
                return Fault("timeout", f"no reply in {self.settings.timeout:g} s")
            except httpx.HTTPError as error:
                return Fault("backend", f"{type(error).__name__}: {error}")
            else:
                if response.status_code == 200:
                    try:
                        return response.json()
                    except ValueError:
                        return Fault("backend", "the reply is not JSON")
                code = "bad_input" if response.status_code in (400, 413, 422) else "backend"
                fault = Fault(code, f"the server answers status {response.status_code}{_message(response)}")
                again, retry_after = response.status_code in RETRYABLE_STATUSES, retry_after_of(response)
            pause = attempts.next_pause(retryable=again, retry_after=retry_after)
            if pause is None:
                return fault
            time.sleep(pause)

    def ask(self, path: str, body: Mapping[str, Any], read: Callable[[Any], A | Fault], refusal: str) -> A | Fault:
        """What `read` makes of the reply; where it cannot read it, a fault that begins with `refusal`."""
        reply = self.post(path, body)
        if isinstance(reply, Fault):
            return reply
        try:
            return read(reply)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            return Fault("backend", f"{refusal}: {type(error).__name__} {error}")

    def for_each_row(
        self,
        rows: Sequence[R],
        ask: Callable[[Sequence[R]], Sequence[A | Fault] | Fault],
        on_progress: Advance,
        *,
        at_once: int | None = None,
    ) -> list[A | Fault]:
        """`ask` for the rows in parts of `at_once` (default: the settings'), at most `concurrency` parts at a time;
        answers are in the order of the rows.

        `ask` returns one answer per row, or one fault for all. A refused part (bad_input) is halved and sent again, so
        that a row that does not fit does not cost the others their scores.
        """
        telling = threading.Lock()

        def answer_part(part: Sequence[R]) -> list[A | Fault]:
            answers = halved(part)
            with telling:
                on_progress(len(part))
            return answers

        def halved(part: Sequence[R]) -> list[A | Fault]:
            answers = ask(part)
            if not isinstance(answers, Fault):
                if len(answers) != len(part):
                    return [Fault("backend", f"{len(answers)} results for {len(part)} rows")] * len(part)
                return list(answers)
            if answers.code != "bad_input" or len(part) == 1:
                return [answers] * len(part)
            middle = len(part) // 2
            return halved(part[:middle]) + halved(part[middle:])

        size = at_once or self.settings.rows_per_request
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        return [answer for part_answers in self._workers.map(answer_part, parts) for answer in part_answers]


def number(value: Any) -> float:
    """A JSON number as it is, NaN included (a failure of its own). Raises TypeError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _message(response: httpx.Response) -> str:
    """The server's own message, short."""
    message = problem_in(response)[1]
    return f": {message[:SHOWN]}" if message else ""
