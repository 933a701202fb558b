"""What makes two scores the same score: the content address of an item under one engine.

Covers: which engines give an item the same score every time, the key (SHA-256) of an item under such an engine. Leaves
out: where scores are kept (`score_cache`, `stored_scores`).

A key holds the checkpoint's version, calibration, template, length, dtype, attention and kind of device, the engine's
own settings (`Repeatable.score_identity`: a sampling model's seed among them), and all of the item that the engine
reads. It does not hold the name that the model is served under: the same model under two names has the same scores.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from assay.domain import Prompt
from assay_serving.scorer import Rendered, Repeatable, ScoreItem, Scorer

_FORMAT = 1  #: of keys; scores stored under another format are never found
#: Kinds of models that read neither label nor references, which then may differ between equal scores.
_MODELS_ALONE = ("scalar", "principle", "generative")


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
        self._begun = hashlib.sha256(json.dumps(parts).encode() + b"\n")
        self._reads_labels = reads_labels(scorer)

    @classmethod
    def of_engine(cls, scorer: Scorer) -> ScoreKeys | None:
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
                begun = self._begun.copy()
                begun.update("".join([f"{m.role}{_told(m.content)}" for m in prompt]).encode("utf-8", "surrogatepass"))
            key = begun.copy()
            # Every part says its own length, so that no two items spell the same bytes.
            rest = f";{_told(item.response)}{_told(item.principle)}"
            if self._reads_labels:
                rest += f"{_told(item.label)}{len(item.references)}" + "".join(map(_told, item.references))
            key.update(rest.encode("utf-8", "surrogatepass"))
            if item.rendered is not None:
                key.update(_rendered(item.rendered))
            keys.append(key.digest())
        return keys


def reads_labels(scorer: Any) -> bool:
    """Whether label and references can matter to a score: not to models, but to what is composed of them."""
    inner = getattr(scorer, "scorer", None)
    parts = [*getattr(scorer, "members", ()), *([inner] if inner is not None else [])]
    return scorer.info.kind not in _MODELS_ALONE or any(reads_labels(part) for part in parts if hasattr(part, "info"))


def _told(text: str | None) -> str:
    return "-" if text is None else f"{len(text)}:{text}"


def _rendered(rendered: Rendered) -> bytes:
    """All fields, those of a later version too."""
    others = [getattr(rendered, field.name) for field in fields(rendered) if field.name != "ids"]
    return repr(others).encode() + array("q", rendered.ids).tobytes()
