"""Scores by content address: the latest in memory, and all of them on disk where a folder is configured.

Covers: which engines give an item the same score every time, the key (SHA-256) of an item under such an engine, the
bounds in memory (entries and bytes, least recently used first out). Leaves out: the file (`disk_cache`). Only scores
are cached, never failures. Used on the event loop only; the disk has threads of its own.

A key covers the checkpoint's version, calibration, template, length, dtype, attention and kind of device, the engine's
own settings (`Repeatable.score_identity`, e.g. a sampling model's seed), and everything of the item that the engine
reads. It does not cover the name under which the model is served: one model under two names shares its scores.
"""

import hashlib
import json
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from assay.domain import Message, Prompt, Response
from assay.ids import conversation_json
from assay.score import Score
from assay_serving.scorer import Rendered, Repeatable, ScoreItem, Scorer
from assay_serving.server.cache.disk_cache import DiskScoreCache
from assay_serving.server.core.settings import ServerSettings

_FORMAT = 1  #: of keys; scores stored under another format are never found
#: Kinds of models that read neither label nor references (but see `reads_labels`), which then may differ between
#: equal scores.
_MODELS_ALONE = ("scalar", "principle", "generative", "implicit")
#: Bytes in memory of a score and its entry besides its own texts: measured, rounded up.
_ENTRY = 500


class ScoreCache:
    """`entries` 0: nothing is kept in memory."""

    def __init__(self, *, entries: int, max_bytes: int, disk: DiskScoreCache | None = None) -> None:
        self._entries = entries
        self._max_bytes = max_bytes
        self._disk = disk
        self._scores: OrderedDict[bytes, Score] = OrderedDict()
        self._bytes = 0

    @classmethod
    def of(cls, settings: ServerSettings) -> "ScoreCache":
        """Raises what `DiskScoreCache.open` raises."""
        disk = None
        if settings.cache_path is not None:
            disk = DiskScoreCache.open(Path(settings.cache_path), max_rows=settings.cache_rows)
        return cls(entries=settings.cache_entries, max_bytes=settings.cache_bytes, disk=disk)

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
        """Add a score that an engine has just computed."""
        self._put_in_memory(key, score)
        if self._disk is not None:
            self._disk.keep(key, score)

    def on_disk(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those of `keys` that `fetch` may find."""
        return [] if self._disk is None else [key for key in keys if self._disk.may_have(key)]

    async def fetch(self, keys: Sequence[bytes]) -> dict[bytes, Score]:
        """Those of `keys` that are on disk; they are then in memory too."""
        scores = await self._disk.find(keys) if self._disk is not None else {}
        for key, score in scores.items():
            self._put_in_memory(key, score)
        return scores

    def close(self) -> None:
        """Write what waits to be written. Blocks for as long as that takes."""
        if self._disk is not None:
            self._disk.close()

    def _put_in_memory(self, key: bytes, score: Score) -> None:
        before = self._scores.pop(key, None)
        if before is not None:
            self._bytes -= _size(before)
        self._scores[key] = score
        self._bytes += _size(score)
        while len(self._scores) > self._entries or self._bytes > self._max_bytes:
            _, oldest = self._scores.popitem(last=False)
            self._bytes -= _size(oldest)


class ScoreKeys:
    """Makes the keys of one engine's items."""

    def __init__(self, scorer: Scorer, identity: str) -> None:
        info = scorer.info
        parts = [
            _FORMAT,
            identity,
            info.version,
            info.kind,
            info.template_hash,
            info.max_length,
            info.dtype,
            info.attention,
            info.device.partition(":")[0],
            info.calibration,
        ]
        self._prefix = hashlib.sha256(json.dumps(parts).encode() + b"\n")
        self._reads_labels = reads_labels(scorer)

    @classmethod
    def of_engine(cls, scorer: Scorer) -> "ScoreKeys | None":
        """None for an engine whose scores must not be used again: one that does not say that it is repeatable (a
        sampling model without a fixed seed, a model behind somebody else's server), or whose version nobody knows."""
        identity = scorer.score_identity if isinstance(scorer, Repeatable) else None
        if identity is None or scorer.info.version in ("", "unknown"):
            return None
        return cls(scorer, identity)

    def of(self, items: Sequence[ScoreItem]) -> list[bytes]:
        """One key of 32 bytes per item, in order. A prompt that several items share is hashed once."""
        keys: list[bytes] = []
        prompt: Prompt | None = None
        for item in items:
            if item.prompt is not prompt:
                prompt = item.prompt
                prompt_hash = self._prefix.copy()
                prompt_hash.update("".join([f"{m.role}{_content(m)}" for m in prompt]).encode("utf-8", "surrogatepass"))
            key = prompt_hash.copy()
            # Every part says its own length, so that no two items spell the same bytes.
            tail = f";{_response(item.response)}{_sized(item.principle)}"
            if self._reads_labels:
                tail += f"{_sized(item.label)}{len(item.references)}" + "".join(map(_sized, item.references))
            if item.steps is not None:
                tail += f"s{len(item.steps)}" + "".join(map(_sized, item.steps))
            key.update(tail.encode("utf-8", "surrogatepass"))
            if item.rendered is not None:
                key.update(_rendered(item.rendered))
            keys.append(key.digest())
        return keys


def reads_labels(scorer: Any) -> bool:
    """Whether label and references can matter to a score: not to models, but to what is composed of them, and to a
    judge that is shown the label as reference answer."""
    if getattr(getattr(scorer, "form", None), "with_reference", ""):
        return True
    inner = getattr(scorer, "scorer", None)
    parts = [*getattr(scorer, "members", ()), *([inner] if inner is not None else [])]
    return scorer.info.kind not in _MODELS_ALONE or any(reads_labels(part) for part in parts if hasattr(part, "info"))


def _sized(text: str | None) -> str:
    return "-" if text is None else f"{len(text)}:{text}"


def _content(message: Message) -> str:
    return _sized(message.content) if isinstance(message.content, str) else f"t{_sized(conversation_json((message,)))}"


def _response(response: Response) -> str:
    return _sized(response) if isinstance(response, str) else f"t{_sized(conversation_json(response))}"


def _rendered(rendered: Rendered) -> bytes:
    """All fields, so that a field added later counts too."""
    values = [getattr(rendered, field.name) for field in fields(rendered) if field.name != "ids"]
    return repr(values).encode() + array("q", rendered.ids).tobytes()


def _size(score: Score) -> int:
    """Bytes. Model, version and hashes are texts that all scores of a model share."""
    return _ENTRY + 4 * len(score.principle or "") + _ENTRY * len(score.parts)
