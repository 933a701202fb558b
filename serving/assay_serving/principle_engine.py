"""Scoring with principle reward models: one question for each item, answered in one token; reward = the log-odds.

Covers: any causal language model asked by the frozen question (`assay.models.principle_renderer`), the items that begin
alike computed together (several principles on one response share all but the principle; several responses share their
prompt), typed failures, memory that runs out. Leaves out: batching across callers (`assay_serving.server`).

A reward depends on its item alone. Rewards under different principles have different scales (the base rates differ):
compare them within one principle, or calibrate.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.conversation import check_unicode
from assay.errors import BackendError, BadInputError
from assay.models.answer_logits import log_odds
from assay.models.devices import pick_device, pick_dtype
from assay.models.loading import load_causal_lm, load_tokenizer, resolve_model, spec_of
from assay.models.packing import attention_of, can_pack, forward, forward_rows, group_of
from assay.models.principle_renderer import QUESTION, PrincipleRenderer
from assay.models.renderer import Encoded, Renderer
from assay.models.spec import RewardModelSpec
from assay.progress import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.batching import plan_batches, plan_groups
from assay_serving.scorer import ModelInfo, ScoreItem
from assay_serving.transformers_engine import TOKEN_BUDGET, Layout, default_name, is_soft_capped

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_UNLIMITED = 1 << 30


class PrincipleScorer:
    """Scores with a loaded language model. Safe to call from several threads: they take turns."""

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
        """`model`: a causal language model, which is put into eval mode. `token_budget`: positions of one forward pass.

        `layout` changes no score (the parity gate checks it); a model that cannot be packed gets padded rows.
        """
        if spec.kind != "principle":
            raise BadInputError(f"{name} is a {spec.kind} reward model; this engine asks principle models")
        if model.get_output_embeddings() is None:  # type: ignore[no-untyped-call]
            raise BadInputError(f"{name} ({type(model).__name__}) has no language head to answer with")
        self.asked = PrincipleRenderer(renderer, spec.question or QUESTION)
        if spec.template_hash != self.asked.template_hash:
            raise BackendError(
                f"{name} was trained with chat template and question {spec.template_hash}, its tokenizer now gives "
                f"{self.asked.template_hash}: its scores would mean nothing"
            )
        found = (self.asked.answers.yes, self.asked.answers.no)
        stated = (spec.yes_token, spec.no_token)
        if None not in stated and stated != found:
            raise BackendError(f"{name} was trained to answer with tokens {stated}, its tokenizer now gives {found}")
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
        question: str | None = None,
        allow_failed_parity: bool = False,
    ) -> PrincipleScorer:
        """Load a folder or hub id. A language model without a spec of ours is asked too: by `question`, the wording it
        was trained with (`{principle}` in it), else by ours. The other options as `TransformersScorer.load`.

        Raises BadInputError for a reward model of another kind, for another question than the spec's, and for a
        checkpoint that failed its parity check (unless allowed).
        """
        chosen = pick_device(device)
        tokenizer = load_tokenizer(name)
        spec = principle_spec(name, Renderer(tokenizer, max_length=_UNLIMITED), question)
        if spec.parity.startswith("failed") and not allow_failed_parity:
            raise BadInputError(
                f"{name} does not give the scores it was trained to (parity {spec.parity}); "
                "it is not served unless that is allowed explicitly"
            )
        model = load_causal_lm(name, tokenizer, dtype=pick_dtype(chosen, dtype), device=chosen)
        if is_soft_capped(model.config):
            model.set_attn_implementation("eager")  # fused kernels leave the cap out
        length = min(spec.trained_length, max_length or spec.trained_length)
        return cls(
            model,
            Renderer(tokenizer, max_length=length),
            spec,
            name=served_as or default_name(name),
            token_budget=token_budget,
        )

    @property
    def info(self) -> ModelInfo:
        return self._info

    def other_ways(self) -> Iterator[tuple[str, PrincipleScorer]]:
        """The same weights read in ways that must not change a score; the parity gate compares them with this one."""
        ways: tuple[tuple[str, Layout], ...] = (("packed = padded", "right"), ("left = right padding", "left"))
        for name, layout in ways:
            other = copy(self)
            other._layout = layout
            yield name, other

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`. Failure codes: bad_input (also: no principle), too_long, non_finite, backend (memory)."""
        results: list[ScoreResult | None] = [None] * len(items)
        with self._lock:
            encoded: list[Encoded] = []
            places: list[int] = []
            for place, item in enumerate(items):
                made = self._encode(item)
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
                    results[places[i]] = self._result(items[places[i]], encoded[i], reward)
                on_progress(len(numbers))
        return [result for result in results if result is not None]

    def _encode(self, item: ScoreItem) -> Encoded | ScoreFailure:
        if item.principle is None or not item.principle.strip():
            return self._failure("bad_input", "this model judges by a principle, and none was given")
        try:
            for text, field in ((item.principle, "principle"), (item.response, "response")):
                check_unicode(text, field)
            for message in item.prompt:
                check_unicode(message.content, "prompt")
            encoded = self.asked.encode(item.prompt, item.response, item.principle)
        except BadInputError as error:
            return self._failure("bad_input", str(error))
        if encoded.response_cut:
            limit = self.renderer.max_length
            return self._failure("too_long", f"the response and the question do not fit in {limit} tokens")
        return encoded

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
            if len(batch[0]) == 1:
                return [None]
            batch = [[i] for i in batch[0]]
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
            answers = self.asked.answers
            return log_odds(self.model, passed.last(), yes=answers.yes, no=answers.no).tolist()

    def _result(self, item: ScoreItem, row: Encoded, reward: float | None) -> ScoreResult:
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
            # Without a calibration: P(Yes | Yes or No), the model's own.
            probability=calibration.probability(reward) if calibration else _sigmoid(reward),
            principle=item.principle,
            calibration=self._info.calibration,
        )

    def _failure(self, code: str, message: str) -> ScoreFailure:
        return ScoreFailure(code, message, self._info.name)


def principle_spec(name: str, renderer: Renderer, question: str | None = None) -> RewardModelSpec:
    """The checkpoint's own spec; for a language model without one, a spec made for `question` (default: ours).

    Raises BadInputError where the spec is of another kind or names another question.
    """
    folder = Path(resolve_model(name))
    own = RewardModelSpec.read(folder) if folder.is_dir() else None
    if own is None:
        asked = PrincipleRenderer(renderer, question or QUESTION)
        made = spec_of(name, template_hash=asked.template_hash)
        return replace(made, kind="principle", **asked_fields(asked))
    if own.kind != "principle":
        raise BadInputError(f"{name} is a {own.kind} reward model, not a principle model")
    if question is not None and question != (own.question or QUESTION):
        raise BadInputError(f"{name} was trained with the question {own.question!r}; leave --question out")
    return spec_of(name, template_hash=own.template_hash)  # checks that the files are the spec's


def asked_fields(asked: PrincipleRenderer) -> dict[str, Any]:
    """What a spec says of a model that is asked like this."""
    return {
        "principles": True,
        "template_hash": asked.template_hash,
        "question": asked.question,
        "yes_token": asked.answers.yes,
        "no_token": asked.answers.no,
    }


def _sigmoid(x: float) -> float:
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    e = math.exp(x)
    return e / (1.0 + e)
