"""The synchronous reward client: the same requests as the asynchronous one, from a few threads."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar, cast

import httpx

from assay.domain import Prompt, Response
from assay.errors import AssayError
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreResult
from assay.system.closable import Closable
from assay_serving.client import protocol
from assay_serving.client.base import ClientBase, Exchange
from assay_serving.client.connection import Pools
from assay_serving.client.principles import PrincipleUse
from assay_serving.preference import Preference, Ranking, rank
from assay_serving.scorer import ModelInfo, ScoreItem

S = TypeVar("S")
T = TypeVar("T")


class RewardClient(ClientBase, Closable):
    """Scores through a reward server. Use as a context manager, or call `close`. Safe to share between threads.

    Can be pickled and used after a fork: connections belong to one process, and a copy opens its own.
    """

    def _begin(self) -> None:
        self._opened: tuple[int, Pools[httpx.Client]] | None = None

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """One result per item, in order: a `Score`, or a `ScoreFailure` where the server could not give one.

        Large inputs are cut into requests that run side by side. Raises BadInputError (request or key refused),
        NotFoundError (unknown model), BusyError (full or draining to the end; RateLimitError for this key's own limit),
        BackendError (gone, broken; LateError when not in time).
        """
        return self._batch(protocol.score_call(items, self.settings), on_progress)

    def score_group(
        self,
        prompt: str | Prompt,
        responses: Sequence[Response],
        *,
        principle: str | None = None,
        references: Sequence[str] = (),
        label: str | None = None,
    ) -> list[ScoreResult]:
        """Scores of several responses to one prompt. `references`, `label`: see `ScoreItem`."""
        return self.score(
            protocol.group_items(prompt, responses, principle=principle, references=references, label=label)
        )

    def score_steps(self, responses: Sequence[tuple[str | Prompt, Sequence[str]]]) -> list[ScoreResult]:
        """Scores of (prompt, steps) each, by a process reward model: `Score.steps` are the log-odds of each step."""
        return self.score([ScoreItem.of_steps(protocol.as_prompt(prompt), steps) for prompt, steps in responses])

    def compare(self, prompt: str | Prompt, a: Response, b: Response, *, principle: str | None = None) -> Preference:
        """Which of two responses is preferred, by how much and how surely."""
        (pair,) = self.compare_pairs([(prompt, a, b)], principle=principle)
        return pair

    def compare_pairs(
        self, pairs: Sequence[tuple[str | Prompt, Response, Response]], *, principle: str | None = None
    ) -> list[Preference]:
        """As `compare`, of (prompt, a, b) each, in order. Errors as `score`; a pair that cannot be sent or, with
        `failures_in_place`, got no answer has two failures."""
        return self._batch(protocol.compare_call(pairs, principle, self.settings))

    def rank(
        self,
        prompt: str | Prompt,
        responses: Sequence[Response],
        *,
        principle: str | None = None,
        tie_margin: float = 0.0,
    ) -> Ranking:
        """The responses in order, those without a score last; see `assay_serving.preference.rank`."""
        return rank(self.score_group(prompt, responses, principle=principle), tie_margin)

    def principles(self) -> list[PrincipleUse]:
        """What each served model does with principles."""
        return protocol.read_principles(self._send(self._exchange("GET", protocol.PRINCIPLES)))

    def models(self, server: int | None = None) -> list[ModelInfo]:
        """What the server serves; `server`: the index of the one to ask in `urls`."""
        return protocol.read_models(self._send(self._exchange("GET", protocol.MODELS, server=server)))

    def post(self, path: str, body: dict[str, Any], *, key: bytes = b"") -> httpx.Response:
        """The 200 reply of any route of the server, under the same limits, tries and errors as the client's own.
        `key`: requests with the same one go to the same of several servers."""
        return self._send(self._exchange("POST", path, body, key=key))

    def wait_until_ready(self, timeout: float = 300.0, *, unreachable: float | None = None) -> None:
        """Return once the server would score; raises BackendError after `timeout` seconds, and after `unreachable`
        where nothing has answered at the address."""
        self._send(self._until_ready(timeout, unreachable))

    def close(self) -> None:
        """Close the connections of this process. The client can be used again; it then opens new ones."""
        opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            for client in opened[1].clients:
                client.close()

    @property
    def _pools(self) -> Pools[httpx.Client]:
        """This process's connections. Those from before a fork belong to the parent process."""
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            opened = self._opened = (os.getpid(), self.settings.pools(httpx.Client))
        return opened[1]

    def _batch(self, call: protocol.BatchCall[T], on_progress: Advance = silent) -> list[T]:
        """All requests of a call, from a few threads."""

        def ask(run: Sequence[protocol.Entry], advance: Advance = silent) -> list[T]:
            try:
                results = call.read(self.post(call.path, call.body(run), key=call.key(run)), run)
            except AssayError as error:
                results = call.failures(error, run)
            advance(len(run))
            return results

        on_progress(call.refused_count)
        rounds = call.rounds()
        numbers, send = next(rounds), partial(ask, advance=on_progress)
        while True:
            try:
                numbers = rounds.send(self._side_by_side(send, [call.runs[number] for number in numbers]))
            except StopIteration as end:
                return cast(list[T], end.value)
            send = partial(ask)  # a second time is no progress

    def _side_by_side(self, ask: Callable[[S], T], runs: Sequence[S]) -> list[T]:
        if len(runs) < 2:
            return [ask(run) for run in runs]
        with ThreadPoolExecutor(min(len(runs), self.settings.max_concurrency)) as pool:
            futures = [pool.submit(copy_context().run, ask, run) for run in runs]  # with the span around it
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:  # after one error the others are not needed
                    future.cancel()
                raise

    def _send(self, steps: Exchange) -> httpx.Response:
        outcome: httpx.Response | httpx.TransportError | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                return cast(httpx.Response, end.value)
            if not isinstance(step, dict):
                time.sleep(step)
                continue
            try:
                with self._pools.least_busy() as client:
                    outcome = client.request(**step)
            except httpx.TransportError as error:
                outcome = error
