"""Scoring answered items a second time, by another model, in the background.

Covers: which prompts belong to the share, the bounded backlog, when it may use the engine. Leaves out: comparing the
pairs of scores (`agreement`), the responses to clients (`swap`).

Live traffic always goes first: a small call starts only while neither model has a request in flight, and items that do
not fit in the backlog are dropped and counted. Live requests that arrive during such a call share the machine with it.
A server that is never idle compares nothing, which the number of dropped items shows.
"""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Sequence

from assay.errors import AssayError
from assay.score import ScoreFailure, ScoreResult
from assay_serving.routing import prompt_key, response_bytes
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.scoring_backend import Client, Priority, ScoreRequest
from assay_serving.server.models.served_model import ServedModel

logger = logging.getLogger("assay.serving")

BACKLOG_ITEMS = 4096
BACKLOG_CHARACTERS = 16 << 20
CALL_ITEMS = 16  #: per call, so that live requests wait only briefly
CALL_S = 120.0
_LOOK_S = 0.005  # between checks whether the server is idle

#: Item, the result that its client got, the other model's result.
Compared = Callable[[ScoreItem, ScoreResult, ScoreResult], None]


def in_share(item: ScoreItem, salt: str, share: float) -> bool:
    """Whether the item's prompt is among the `share` of all prompts: the same answer for the same prompt and salt."""
    digest = hashlib.blake2b(prompt_key(item), digest_size=8, key=salt.encode()[:64]).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def group_key(item: ScoreItem) -> bytes:
    """Equal for items whose rewards are comparable: one prompt, one principle."""
    digest = hashlib.blake2b(prompt_key(item), digest_size=16)
    digest.update(f";{item.principle}".encode("utf-8", "surrogatepass"))
    return digest.digest()


def item_key(item: ScoreItem) -> bytes:
    """Equal for items that are the same to a model."""
    return hashlib.blake2b(group_key(item) + response_bytes(item.response), digest_size=16).digest()


class ShadowScorer:
    """The backlog of one comparison and the worker that empties it. `busy`: the number of live requests in flight."""

    def __init__(self, busy: Callable[[], int], compared: Compared) -> None:
        self._busy = busy
        self._compared = compared
        self._backlog: deque[tuple[ServedModel, ScoreItem, ScoreResult]] = deque()
        self._characters = 0
        self._arrived = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self.dropped = 0  #: items that did not fit in the backlog
        self.in_call = 0  #: own requests in progress

    def start(self) -> None:
        self._worker = asyncio.create_task(self._work(), name="shadow")

    async def stop(self) -> None:
        """Clear the backlog and cancel the call in progress."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        self._backlog.clear()
        self._characters = 0

    @property
    def waiting(self) -> int:
        return len(self._backlog)

    def offer(self, model: ServedModel, items: Sequence[ScoreItem], results: Sequence[ScoreResult]) -> None:
        """Have `model` score items that were answered with `results`; all of them, or none if they do not fit."""
        characters = sum(item.characters for item in items)
        if len(self._backlog) + len(items) > BACKLOG_ITEMS or self._characters + characters > BACKLOG_CHARACTERS:
            self.dropped += len(items)
            return
        self._backlog.extend((model, item, result) for item, result in zip(items, results, strict=True))
        self._characters += characters
        self._arrived.set()

    async def _work(self) -> None:
        while True:
            if not self._backlog:
                self._arrived.clear()
                await self._arrived.wait()
            while self._busy():
                await asyncio.sleep(_LOOK_S)
            await self._score(self._take())

    def _take(self) -> list[tuple[ServedModel, ScoreItem, ScoreResult]]:
        model = self._backlog[0][0]
        batch: list[tuple[ServedModel, ScoreItem, ScoreResult]] = []
        while self._backlog and len(batch) < CALL_ITEMS and self._backlog[0][0] is model:
            batch.append(self._backlog.popleft())
            self._characters -= batch[-1][1].characters
        return batch

    async def _score(self, batch: list[tuple[ServedModel, ScoreItem, ScoreResult]]) -> None:
        model, items = batch[0][0], tuple(item for _, item, _ in batch)
        request = ScoreRequest(items, priority=Priority.BULK, timeout_s=CALL_S, client=Client("shadow"))
        results: Sequence[ScoreResult]
        self.in_call += 1
        try:
            results = (await model.score(request)).results
        except AssayError as error:
            results = [ScoreFailure(error.code, "the whole call failed", model.name)] * len(items)
        except Exception as error:
            logger.error("shadow scoring by %s failed: %s", model.name, type(error).__name__)
            results = [ScoreFailure("backend", "the whole call failed", model.name)] * len(items)
        finally:
            self.in_call -= 1
        for (_, item, result), other in zip(batch, results, strict=True):
            self._compared(item, result, other)
