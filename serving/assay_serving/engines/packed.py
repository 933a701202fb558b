"""What the engines that run a transformers model on this machine share: batches, the forward pass, memory.

Covers: items with a common beginning computed together without padding (`assay.models.attention.packing`) where the
model allows it, length-bucketed padded rows where not, passes halved where the memory runs out. Leaves out: how
hidden states become a reward (`transformers`, `principle`, `process_reward`, `ratings`), items and scores (`token`),
batching across callers (`assay_serving.server`).

A score depends on the item alone: not on its neighbours, their order, the padding side or the pad token.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from assay.errors import BadInputError
from assay.models.attention.packing import attention_of, can_pack, forward, forward_ends, forward_rows, group_of
from assay.models.chat.image_reader import ImageReader
from assay.models.chat.renderer import Renderer
from assay.models.devices import free_memory, is_out_of_memory
from assay.models.loading import context_length
from assay.models.spec import RewardModelSpec
from assay.models.vision import image_token_of
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScorePart, ScoreResult
from assay_serving.engines.batching import plan_batches, plan_groups
from assay_serving.engines.token import Reading, TokenScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

TOKEN_BUDGET = 8192
#: Positions of a pass on a CPU, where the activations of larger ones leave the caches; a group may exceed it.
CPU_PASS = 2048
#: How conversations lie in a pass: common beginnings once and nothing padded, or rows of their own padded on one side.
Layout = Literal["packed", "right", "left"]


class PackedScorer(TokenScorer):
    """Scores with a loaded model. Safe to call from several threads: they take turns."""

    def __init__(
        self,
        model: PreTrainedModel,
        renderer: Renderer,
        spec: RewardModelSpec,
        *,
        name: str,
        token_budget: int | None = None,
        layout: Layout = "packed",
    ) -> None:
        """`model` is put into eval mode. `token_budget`: positions of one forward pass at most, padding included (None:
        TOKEN_BUDGET). `layout` changes no score (the parity gate checks it); a model that cannot be packed gets rows
        padded on the right. Raises what `check` raises.
        """
        from assay.models.attention.prepacked import number_format  # imports torch

        self.token_budget = token_budget or TOKEN_BUDGET
        #: Of the last call, for reports: tokens of all conversations in full, positions computed, padding among them.
        self.last_tokens = self.last_computed = self.last_padding = 0
        self.model = model.eval()  # type: ignore[no-untyped-call]
        self._layout: Layout = layout
        super().__init__(
            renderer,
            spec,
            name=name,
            dtype=number_format(model),
            device=str(model.device),
            attention=attention_of(model),
        )

    @classmethod
    def of_model(
        cls,
        model: PreTrainedModel,
        tokenizer: Any,
        spec: RewardModelSpec,
        config: ModelConfig,
        *,
        images: ImageReader | None = None,
        **options: Any,
    ) -> Self:
        """Of a model that was loaded as `config` says; it can be neither trained nor saved any more."""
        length = config.length(spec.trained_length, context_length(model.config))
        renderer = Renderer(tokenizer, max_length=length, images=images)
        return cls(for_scoring(model), renderer, spec, name=config.name, token_budget=config.token_budget, **options)

    @abstractmethod
    def head(self, states: torch.Tensor) -> torch.Tensor:
        """Float32 outputs [P, K] of hidden states [P, H]."""

    def read_states(self, states: torch.Tensor, readings: Sequence[Reading]) -> torch.Tensor:
        """Outputs [P, K] of the hidden states [P, H] at the positions of these readings, in their order."""
        return self.head(states)

    def reward(self, outputs: torch.Tensor) -> float:
        """From the head's outputs [positions, K] of one item; by default the first output at the last position."""
        return float(outputs[-1, 0])

    def parts(self, outputs: torch.Tensor) -> tuple[ScorePart, ...]:
        """Named ratings or steps of one item from its outputs, where its score has any."""
        return ()

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `TokenScorer.score`; with the parts of each score."""
        results: list[ScoreResult] = []
        with self._lock:
            readings = [self.read(item) for item in items]
            outputs = self.outputs(readings, on_progress)
        for item, reading, output in zip(items, readings, outputs, strict=True):
            if isinstance(output, ScoreFailure) or isinstance(reading, ScoreFailure):
                results.append(output if isinstance(output, ScoreFailure) else reading)  # type: ignore[arg-type]
                continue
            result = self.result(reading.conversation, self.reward(output), item.principle)
            parts = self.parts(output)
            results.append(replace(result, parts=parts) if parts and isinstance(result, Score) else result)
        return results

    def other_ways(self) -> Iterator[tuple[str, Self]]:
        """The same weights read in ways that must not change a score; the parity gate compares them with this one."""
        ways: tuple[tuple[str, Layout], ...] = (("packed = padded", "right"), ("left = right padding", "left"))
        for name, layout in ways:
            other = copy(self)
            other._layout = layout
            yield name, other

    def rewards(
        self, readings: Sequence[Reading | ScoreFailure], on_progress: Advance = silent
    ) -> list[float | ScoreFailure]:
        with self._lock:
            outputs = self.outputs(readings, on_progress)
        return [output if isinstance(output, ScoreFailure) else self.reward(output) for output in outputs]

    def outputs(
        self, readings: Sequence[Reading | ScoreFailure], on_progress: Advance = silent
    ) -> list[torch.Tensor | ScoreFailure]:
        """The head's outputs [positions, K] of each reading, float32 on the CPU, or its failure. Not thread-safe."""
        if (token := image_token_of(self.model.config)) is not None:
            readings = [self._with_its_images(reading, token) for reading in readings]
        by_reading: list[torch.Tensor | ScoreFailure | None] = [
            reading if isinstance(reading, ScoreFailure) else None for reading in readings
        ]
        good = [(i, reading) for i, reading in enumerate(readings) if isinstance(reading, Reading)]
        rows = [reading for _, reading in good]
        if len(rows) < len(readings):
            on_progress(len(readings) - len(rows))
        self.last_tokens, self.last_computed, self.last_padding = sum(len(r.conversation) for r in rows), 0, 0
        for batch in self._plan(rows):
            numbers = [i for group in batch for i in group]
            for i, output in zip(numbers, self._outputs(batch, rows), strict=True):
                if output is None:
                    tokens = len(rows[i].conversation)
                    by_reading[good[i][0]] = self.failure(
                        "backend", f"out of memory on a conversation of {tokens} tokens"
                    )
                elif not all(map(math.isfinite, output.flatten().tolist())):
                    by_reading[good[i][0]] = self.failure("non_finite", "the model's answer is not finite")
                else:
                    by_reading[good[i][0]] = output
            on_progress(len(numbers))
        return [output for output in by_reading if output is not None]

    def _with_its_images(self, reading: Reading | ScoreFailure, token: int) -> Reading | ScoreFailure:
        """The reading; a failure where it has places of images and no images, as texts that a caller rendered may."""
        if isinstance(reading, ScoreFailure) or reading.conversation.images:
            return reading
        if token not in reading.conversation.ids:
            return reading
        return self.failure("bad_input", "the text has places of images and no images: send messages with them")

    def _plan(self, rows: Sequence[Reading]) -> list[list[list[int]]]:
        """Forward passes: lists of groups of row numbers that are computed together."""
        lengths = [len(row.conversation) for row in rows]
        if len(rows) == 1:
            return [[[0]]]
        if self._layout == "packed" and can_pack(self.model, max(lengths, default=0)):
            preferred = CPU_PASS if self.model.device.type == "cpu" else None
            return plan_groups([row.conversation.ids for row in rows], self.token_budget, preferred=preferred)
        return [[[i] for i in batch] for batch in plan_batches(lengths, self.token_budget)]

    def _outputs(self, batch: list[list[int]], rows: Sequence[Reading]) -> list[torch.Tensor | None]:
        """For each row of the batch, in order; None where even a single row does not fit in the memory."""
        try:
            return list(self._forward(batch, rows))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        free_memory(self.model.device)  # outside the handler, so that the failed pass's tensors are free
        if len(batch) == 1:
            (group,) = batch
            if len(group) == 1:
                return [None]
            middle = len(group) // 2
            batch = [group[:middle], group[middle:]]
        middle = len(batch) // 2
        return self._outputs(batch[:middle], rows) + self._outputs(batch[middle:], rows)

    def _forward(self, batch: list[list[int]], rows: Sequence[Reading]) -> list[torch.Tensor]:
        import torch

        readings = [rows[i] for group in batch for i in group]
        places = [reading.places for reading in readings]
        with torch.inference_mode():
            read = [[rows[i].conversation for i in group] for group in batch]
            groups = [group_of([each.ids for each in some], [each.images for each in some]) for some in read]
            images = self.renderer.images
            if self._layout == "packed" and all(each.places == (len(each.conversation) - 1,) for each in readings):
                states, computed, padding = forward_ends(self.model, groups, images)
            else:
                if self._layout == "packed":
                    passed = forward(self.model, groups, images)
                else:
                    passed = forward_rows(self.model, groups, pad_left=self._layout == "left", images=images)
                states, computed, padding = passed.at(places), passed.computed, passed.padding
            self.last_computed += computed
            self.last_padding += padding
            outputs = self.read_states(states, readings).cpu()
        return list(torch.split(outputs, [len(positions) for positions in places]))


def require_parity(config: ModelConfig, spec: RewardModelSpec) -> None:
    """Raises BadInputError for a checkpoint that failed its parity check, unless the config allows it."""
    if spec.parity.startswith("failed") and not config.allow_failed_parity:
        raise BadInputError(
            f"{config.reference} does not give the scores it was trained to (parity {spec.parity}); "
            "allow it explicitly to serve it all the same"
        )


def for_scoring(model: PreTrainedModel) -> PreTrainedModel:
    """The loaded model, in place, as engines run it; it can be neither trained nor saved any more."""
    from assay.models.attention.decoder_pass import DecoderPass
    from assay.models.attention.packing import backbone
    from assay.models.attention.prepacked import prepack

    prepack(model)
    if can_pack(model):
        DecoderPass.attach(backbone(model))
    return model
