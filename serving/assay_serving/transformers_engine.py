"""Scoring with transformers: the reference engine, for scalar reward models on any device.

Covers: items that begin alike computed together without padding (`assay.models.packing`) where the model allows it,
length-bucketed padded rows where not, typed failures, memory that runs out. Leaves out: batching across callers
(`assay_serving.server`), generative and principle models.

A score depends on the item alone: not on its neighbours, their order, the padding side or the pad token.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.conversation import check_unicode
from assay.errors import BackendError, BadInputError
from assay.models.devices import pick_device, pick_dtype
from assay.models.loading import load_scalar_model, load_tokenizer, spec_of
from assay.models.packing import attention_of, can_pack, forward, group_of
from assay.models.pooling import HEAD, apply_head, pooled_rewards
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
_UNLIMITED = 1 << 30


class TransformersScorer:
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
        """`model`: a sequence classifier with one label and a `score` head, which is put into eval mode.

        `token_budget`: positions of one forward pass, padding included. `layout` changes no score (the parity gate
        checks it); a model that cannot be packed gets rows padded on the right.
        """
        if spec.kind != "scalar":
            raise BadInputError(f"{name} is a {spec.kind} reward model; this engine scores scalar ones")
        if not hasattr(model, HEAD) or not hasattr(model, model.base_model_prefix):
            raise BadInputError(f"{name} ({type(model).__name__}) has no '{HEAD}' head on a decoder; not supported")
        if spec.template_hash != renderer.template_hash:
            raise BackendError(
                f"{name} was trained with chat template {spec.template_hash}, "
                f"its tokenizer now gives {renderer.template_hash}: its scores would mean nothing"
            )
        self.spec = spec
        self.renderer = renderer
        self.token_budget = token_budget
        #: Of the last call, for reports: tokens of all conversations in full, positions computed, padding among them.
        self.last_tokens = self.last_computed = self.last_padding = 0
        self.model = model.eval()  # type: ignore[no-untyped-call]
        self._pad = model.config.pad_token_id or 0
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

    @classmethod
    def load(
        cls,
        name: str,
        *,
        served_as: str | None = None,
        device: str = "auto",
        dtype: str = "float32",
        token_budget: int = TOKEN_BUDGET,
        max_length: int | None = None,
        layout: Layout = "packed",
        allow_failed_parity: bool = False,
    ) -> TransformersScorer:
        """Load a folder or hub id; `served_as` is the name its scores carry (default: the folder's name).

        float32 by default even where bfloat16 is faster: bfloat16 moves scores by about 5 % of their spread.
        `max_length` (tokens) can only shorten what the model was trained with. Raises BadInputError for a
        checkpoint that failed its parity check (unless allowed), BackendError for another chat template than it
        was trained with, and what `assay.models.loading` raises.
        """
        chosen = pick_device(device)
        tokenizer = load_tokenizer(name)
        template_hash = Renderer(tokenizer, max_length=_UNLIMITED).template_hash
        spec = spec_of(name, template_hash=template_hash)
        if spec.parity.startswith("failed") and not allow_failed_parity:
            raise BadInputError(
                f"{name} does not give the scores it was trained to (parity {spec.parity}); "
                "it is not served unless that is allowed explicitly"
            )
        length = min(spec.trained_length, max_length or spec.trained_length)
        model = load_scalar_model(name, tokenizer, dtype=pick_dtype(chosen, dtype), device=chosen)
        if is_soft_capped(model.config):
            model.set_attn_implementation("eager")  # fused kernels leave the cap out
        return cls(
            model,
            Renderer(tokenizer, max_length=length),
            spec,
            name=served_as or default_name(name),
            token_budget=token_budget,
            layout=layout,
        )

    @property
    def info(self) -> ModelInfo:
        return self._info

    def other_ways(self) -> Iterator[tuple[str, TransformersScorer]]:
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
                    results[places[i]] = self.result(encoded[i], reward)
                on_progress(len(numbers))
        return [result for result in results if result is not None]

    def encode(self, item: ScoreItem) -> Encoded | ScoreFailure:
        """The item's tokens, or why it cannot be scored."""
        if item.principle is not None:
            return self._failure("bad_input", "this model takes no principle")
        try:
            for message in item.prompt:
                check_unicode(message.content, "prompt")
            check_unicode(item.response, "response")
            encoded = self.renderer.encode(item.prompt, item.response)
        except BadInputError as error:
            return self._failure("bad_input", str(error))
        if not encoded.ids:
            return self._failure("bad_input", "the conversation has no tokens")
        if encoded.response_cut:
            limit = self.renderer.max_length
            return self._failure("too_long", f"the response alone does not fit in {limit} tokens")
        return encoded

    def result(self, row: Encoded, reward: float | None) -> ScoreResult:
        """The score of a conversation with this reward; None is one that did not fit in the memory."""
        if reward is None:
            return self._failure("backend", f"out of memory on a conversation of {len(row)} tokens")
        if not math.isfinite(reward):
            return self._failure("non_finite", f"the model answered {reward}")
        calibration = self.spec.calibration
        return Score(
            reward=reward,
            model=self._info.name,
            version=self._info.version,
            template_hash=self._info.template_hash,
            tokens=len(row),
            truncated=row.truncated,
            probability=calibration.probability(reward) if calibration else None,
            calibration=self._info.calibration,
        )

    def _failure(self, code: str, message: str) -> ScoreFailure:
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
            if self._layout == "packed":
                hidden = forward(self.model, [group_of([rows[i].ids for i in group]) for group in batch])
                self.last_computed += hidden.computed
                self.last_padding += hidden.padding
                rewards = apply_head(getattr(self.model, HEAD), hidden.last())
                return rewards.tolist()
            ids, mask = self._padded([rows[i] for group in batch for i in group])
            self.last_computed += ids.numel()
            self.last_padding += int((mask == 0).sum())
            return pooled_rewards(self.model, ids, mask).tolist()

    def _padded(self, rows: Sequence[Encoded]) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and attention mask, both [rows, longest row]."""
        import torch

        width = max(len(row) for row in rows)
        ids, mask = [], []
        for row in rows:
            gap = width - len(row)
            tokens, ones = list(row.ids), [1] * len(row)
            left = self._layout == "left"
            ids.append([self._pad] * gap + tokens if left else tokens + [self._pad] * gap)
            mask.append([0] * gap + ones if left else ones + [0] * gap)
        device = self.model.device
        return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


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
