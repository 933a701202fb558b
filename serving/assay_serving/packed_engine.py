"""What the engines share that read one state of each conversation: plan, pass, memory, typed failures, the score.

Covers: items that begin alike computed together without padding (`assay.models.packing`) where the model allows it,
length-bucketed padded rows where not, passes halved where the memory runs out. Leaves out: what is asked and how the
state becomes a reward (`transformers_engine`, `principle_engine`), batching across callers (`assay_serving.server`).

A score depends on the item alone: not on its neighbours, their order, the padding side or the pad token.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from assay.errors import BadInputError
from assay.models.packing import attention_of, can_pack, forward, forward_rows, group_of
from assay.models.renderer import Encoded, Renderer
from assay.models.spec import RewardModelSpec
from assay.progress import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.batching import plan_batches, plan_groups
from assay_serving.scorer import ModelInfo, ScoreItem

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

TOKEN_BUDGET = 8192
#: How conversations lie in a pass: common beginnings once and nothing padded, or rows of their own padded on one side.
Layout = Literal["packed", "right", "left"]
UNLIMITED = 1 << 30  #: tokens, of a renderer that only names its template


class PackedScorer(ABC):
    """Scores with a loaded model. Safe to call from several threads: they take turns."""

    def __init__(
        self,
        model: PreTrainedModel,
        renderer: Renderer,
        spec: RewardModelSpec,
        *,
        name: str,
        token_budget: int = TOKEN_BUDGET,
        layout: Layout = "packed",
    ) -> None:
        """`model` is put into eval mode. `token_budget`: positions of one forward pass, padding included. `layout`
        changes no score (the parity gate checks it); a model that cannot be packed gets rows padded on the right.
        """
        self.spec = spec
        self.renderer = renderer
        self.token_budget = token_budget
        #: Of the last call, for reports: tokens of all conversations in full, positions computed, padding among them.
        self.last_tokens = self.last_computed = self.last_padding = 0
        self.model = model.eval()  # type: ignore[no-untyped-call]
        self._layout: Layout = layout
        self._lock = threading.Lock()
        self._info = ModelInfo(
            name=name,
            version=spec.version,
            kind=spec.kind,
            template_hash=spec.template_hash,
            max_length=renderer.max_length,
            calibrated=spec.calibration is not None,
            parity=spec.parity,
            dtype=str(model.dtype).removeprefix("torch."),
            device=str(model.device),
            attention=attention_of(model),
            calibration=spec.calibration.id if spec.calibration is not None else None,
        )

    @abstractmethod
    def encode(self, item: ScoreItem) -> Encoded | ScoreFailure:
        """The item's tokens, or why it cannot be scored."""

    @abstractmethod
    def rewards(self, hidden: torch.Tensor) -> torch.Tensor:
        """Float32 rewards [n] of the hidden states [n, H] at the conversations' last tokens."""

    def probability(self, reward: float) -> float | None:
        """The calibrated one; None where there is no calibration."""
        return self.spec.calibration.probability(reward) if self.spec.calibration is not None else None

    @property
    def info(self) -> ModelInfo:
        return self._info

    def other_ways(self) -> Iterator[tuple[str, Self]]:
        """The same weights read in ways that must not change a score; the parity gate compares them with this one."""
        ways: tuple[tuple[str, Layout], ...] = (("packed = padded", "right"), ("left = right padding", "left"))
        for name, layout in ways:
            other = copy(self)
            other._layout = layout
            yield name, other

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`. Failure codes: bad_input, too_long, non_finite, backend (memory)."""
        results: list[ScoreResult | None] = [None] * len(items)
        with self._lock:
            encoded: list[Encoded] = []
            places: list[int] = []
            for place, item in enumerate(items):
                made = self.encode(item)
                if isinstance(made, ScoreFailure):
                    results[place] = made
                else:
                    encoded.append(made)
                    places.append(place)
            if len(places) < len(items):
                on_progress(len(items) - len(places))
            self.last_tokens, self.last_computed, self.last_padding = sum(map(len, encoded)), 0, 0
            for batch in self._plan(encoded):
                numbers = [i for group in batch for i in group]
                for i, reward in zip(numbers, self._rewards(batch, encoded), strict=True):
                    results[places[i]] = self.result(encoded[i], reward, items[places[i]].principle)
                on_progress(len(numbers))
        return [result for result in results if result is not None]

    def result(self, row: Encoded, reward: float | None, principle: str | None = None) -> ScoreResult:
        """The score of a conversation with this reward; None is one that did not fit in the memory."""
        if reward is None:
            return self.failure("backend", f"out of memory on a conversation of {len(row)} tokens")
        if not math.isfinite(reward):
            return self.failure("non_finite", f"the model answered {reward}")
        return Score(
            reward=reward,
            model=self._info.name,
            version=self._info.version,
            template_hash=self._info.template_hash,
            tokens=len(row),
            truncated=row.truncated,
            probability=self.probability(reward),
            principle=principle,
            calibration=self._info.calibration,
        )

    def failure(self, code: str, message: str) -> ScoreFailure:
        return ScoreFailure(code, message, self._info.name)

    def _plan(self, rows: Sequence[Encoded]) -> list[list[list[int]]]:
        """Forward passes: lists of groups of row numbers that are computed together."""
        if self._layout == "packed" and can_pack(self.model, max(map(len, rows), default=0)):
            return plan_groups([row.ids for row in rows], self.token_budget)
        return [[[i] for i in batch] for batch in plan_batches([len(row) for row in rows], self.token_budget)]

    def _rewards(self, batch: list[list[int]], rows: Sequence[Encoded]) -> list[float | None]:
        """One reward a row of the batch, in its order; None where not even a row alone fits in the memory."""
        import torch

        try:
            return list(self._forward(batch, rows))
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
        # Outside the handler, so that the failed pass's tensors are free.
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        if len(batch) == 1:
            (group,) = batch
            if len(group) == 1:
                return [None]
            middle = len(group) // 2
            batch = [group[:middle], group[middle:]]
        middle = len(batch) // 2
        return self._rewards(batch[:middle], rows) + self._rewards(batch[middle:], rows)

    def _forward(self, batch: list[list[int]], rows: Sequence[Encoded]) -> list[float]:
        import torch

        with torch.inference_mode():
            groups = [group_of([rows[i].ids for i in group]) for group in batch]
            if self._layout == "packed":
                passed = forward(self.model, groups)
            else:
                passed = forward_rows(self.model, groups, left=self._layout == "left")
            self.last_computed += passed.computed
            self.last_padding += passed.padding
            found: list[float] = self.rewards(passed.last()).tolist()
        return found


def require_parity(name: str, spec: RewardModelSpec, *, allowed: bool) -> None:
    """Raises BadInputError for a checkpoint that failed its parity check, unless that is allowed."""
    if spec.parity.startswith("failed") and not allowed:
        raise BadInputError(
            f"{name} does not give the scores it was trained to (parity {spec.parity}); "
            "it is not served unless that is allowed explicitly"
        )


def default_name(name: str) -> str:
    """What a model is called when nobody names it: a folder's own name, or the hub id as it is."""
    path = Path(name).expanduser()
    return path.resolve().name if path.is_dir() else name


def is_soft_capped(config: Any) -> bool:
    """True for models that cap attention logits (Gemma 2), as nested text configurations may too."""
    return any(
        getattr(part, "attn_logit_softcapping", None) is not None
        for part in (config, getattr(config, "text_config", None))
    )
