"""Engines without a model, for measuring and wearing out what lies around one.

Covers: `ScriptedScorer`, whose reward is a function of the text, so that every reply can be checked without the engine,
and which does what its items say: fail, raise, take its time. Leaves out: the servers that hold it (`servers`).
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence

from assay.domain import response_text
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.scorer import ModelInfo, ScoreItem

FAIL = "<fail>"  #: this item has no score
BREAK = "<break>"  #: the engine raises on the whole call
SLOW = "<slow>"  #: the call takes SLOW_S longer
SLOW_S = 0.05


def text_of(item: ScoreItem) -> str:
    """All that the reward depends on."""
    if item.rendered is not None:
        return item.rendered.text
    return "\n".join([*(message.text for message in item.prompt), response_text(item.response)])


def reward_of(text: str) -> float:
    """A number in [0, 1) that another text has by a chance of 2^-32."""
    return zlib.crc32(text.encode()) / 2**32


class ScriptedScorer:
    """See the module. `nothing`: do not even look at the text; every reward is 0.5. `item_s`: seconds that it sleeps
    for each item."""

    score_identity = ""  #: a text has one reward, always: scores may be kept

    def __init__(
        self, name: str = "scripted", *, nothing: bool = False, version: str = "1", item_s: float = 0.0
    ) -> None:
        self._nothing = nothing
        self._item_s = item_s
        self._info = ModelInfo(
            name=name,
            version=version,
            kind="scalar",
            template_hash="none",
            max_length=1 << 20,
            calibrated=False,
            parity="unchecked",
            dtype="float64",
            device="cpu",
        )

    @property
    def info(self) -> ModelInfo:
        return self._info

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`."""
        info = self._info
        time.sleep(self._item_s * len(items))
        if self._nothing:
            return [Score(0.5, info.name, info.version, info.template_hash, 1, False)] * len(items)
        texts = [text_of(item) for item in items]
        if any(SLOW in text for text in texts):
            time.sleep(SLOW_S)
        if any(BREAK in text for text in texts):
            raise RuntimeError("broken by an item")
        return [self._result(text) for text in texts]

    def _result(self, text: str) -> ScoreResult:
        info = self._info
        if FAIL in text:
            return ScoreFailure("bad_input", "the text asks for a failure", info.name)
        return Score(reward_of(text), info.name, info.version, info.template_hash, len(text), False)
