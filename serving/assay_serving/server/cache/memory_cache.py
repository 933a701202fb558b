"""Scores by content address: the latest in memory, and all of them on disk where a folder is given.

Covers: the bounds in memory (entries and bytes, the least recently used go first), what goes to disk. Leaves out: keys
(`score_keys`), the file (`stored_scores`), who asks (`cached_scoring`). Only scores are kept, never failures.

Used on the event loop only; the disk has threads of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path

from assay.score import Score
from assay_serving.server.cache.disk_cache import StoredScores
from assay_serving.server.core.settings import ServerSettings

#: Bytes in memory of a score and its entry besides its own texts: measured, rounded up.
_ENTRY = 500


class ScoreCache:
    """`entries` 0: nothing is kept in memory."""

    def __init__(self, *, entries: int, max_bytes: int, stored: StoredScores | None = None) -> None:
        self._entries = entries
        self._max_bytes = max_bytes
        self._stored = stored
        self._scores: OrderedDict[bytes, Score] = OrderedDict()
        self._bytes = 0

    @classmethod
    def of(cls, settings: ServerSettings) -> ScoreCache:
        """Raises what `StoredScores.open` raises."""
        stored = None
        if settings.cache_path is not None:
            stored = StoredScores.open(Path(settings.cache_path), max_rows=settings.cache_rows)
        return cls(entries=settings.cache_entries, max_bytes=settings.cache_bytes, stored=stored)

    def __len__(self) -> int:
        return len(self._scores)

    @property
    def size(self) -> int:
        """Bytes of what is in memory, estimated."""
        return self._bytes

    def get(self, key: bytes) -> Score | None:
        """The score in memory."""
        score = self._scores.get(key)
        if score is not None:
            self._scores.move_to_end(key)
        return score

    def put(self, key: bytes, score: Score) -> None:
        """Keep a score that an engine has just given."""
        self._remember(key, score)
        if self._stored is not None:
            self._stored.keep(key, score)

    def on_disk(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those of `keys` that `fetch` may find."""
        return [] if self._stored is None else [key for key in keys if self._stored.may_have(key)]

    async def fetch(self, keys: Sequence[bytes]) -> dict[bytes, Score]:
        """Those of `keys` that are on disk; they are then in memory too."""
        found = await self._stored.find(keys) if self._stored is not None else {}
        for key, score in found.items():
            self._remember(key, score)
        return found

    def close(self) -> None:
        """Write what waits to be written. Blocks for as long as that takes."""
        if self._stored is not None:
            self._stored.close()

    def _remember(self, key: bytes, score: Score) -> None:
        before = self._scores.pop(key, None)
        if before is not None:
            self._bytes -= _size(before)
        self._scores[key] = score
        self._bytes += _size(score)
        while len(self._scores) > self._entries or self._bytes > self._max_bytes:
            _, oldest = self._scores.popitem(last=False)
            self._bytes -= _size(oldest)


def _size(score: Score) -> int:
    """Bytes. Model, version and hashes are texts that all scores of a model share."""
    return _ENTRY + 4 * len(score.principle or "") + _ENTRY * len(score.parts)
