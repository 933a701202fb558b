"""Hidden states of a backbone whose weights are not trained: what a linear head on it reads, one vector a response.

Covers: loading the backbone of a language model or of a reward model (whose own head is not used), the identity of its
weights, vectors of responses by the passes of every other engine (`packed`). Leaves out: keeping vectors
(`assay_rm_training.methods.hidden_states`), heads (`heads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from assay.models.loading import has_reward_head, load_scalar_model, load_tokenizer, resolve_model
from assay.models.spec import weights_digest
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreFailure
from assay_serving.engines.packed import PackedScorer
from assay_serving.engines.token import Reading, ScalarReader
from assay_serving.scorer import ScoreItem

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

Vector: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Features:
    """The hidden state of one response. `vector`: [H]. `tokens`, `truncated`: of the conversation, as in a score."""

    vector: Vector
    tokens: int
    truncated: bool


FeatureResult: TypeAlias = Features | ScoreFailure


class FeatureReader(ScalarReader, PackedScorer):
    """Reads the hidden state at a conversation's last token, where a scalar head would."""

    def head(self, states: torch.Tensor) -> torch.Tensor:
        """The states themselves, in float32."""
        return states.float()

    def features(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[FeatureResult]:
        """Of each response, or its failure (those of a score), in order."""
        results: list[FeatureResult] = []
        with self._lock:
            readings = [self.read(item) for item in items]
            outputs = self.outputs(readings, on_progress)
        for reading, output in zip(readings, outputs, strict=True):
            if isinstance(output, ScoreFailure):
                results.append(output)
            else:
                assert isinstance(reading, Reading)  # a failed one keeps its failure
                row = reading.conversation
                results.append(Features(output[-1].numpy(), len(row), row.truncated))
        return results


def load_backbone(base: str, *, dtype: torch.dtype, device: torch.device) -> tuple[PreTrainedModel, Any]:
    """The stock classifier (with a new head on a language model) and its tokenizer. Raises NotFoundError for an unknown
    model."""
    tokenizer = load_tokenizer(base)
    new_head = not has_reward_head(base)
    return load_scalar_model(base, tokenizer, dtype=dtype, device=device, new_head=new_head), tokenizer


def backbone_version(base: str) -> str:
    """Digest of its files; "hub" for a model that is only known by its hub id."""
    folder = Path(resolve_model(base))
    return weights_digest(folder) if folder.is_dir() else "hub"
