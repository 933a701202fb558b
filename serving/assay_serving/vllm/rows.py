"""The protocols of an engine: rows of token ids in, one answer per row out, in order.

Leaves out: the engines (`in_process`, `vllm_server`, `sglang_server`), what rows stand for (`scorers`, `writer`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from assay.runs.progress_bar import Advance
from assay_serving.generative.generation import Sampled, SamplingParams

Row = Sequence[int]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a row has no answer; `code` is one of `ScoreFailure`'s."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class RunningModel:
    """The model that an engine runs. `max_length`: tokens, with the answer's; None: unknown.

    `identity`: which weights a server reports; empty where they are the checkpoint's own files.
    """

    dtype: str
    device: str
    max_length: int | None = None
    identity: str = ""


class Classifier(Protocol):
    """A sequence classifier with one label."""

    @property
    def running(self) -> RunningModel: ...

    def logits(self, rows: Sequence[Row], on_progress: Advance) -> list[float | Fault]:
        """The raw logit at each row's last token: no sigmoid, no soft-max."""
        ...


class LanguageModel(Protocol):
    @property
    def running(self) -> RunningModel: ...

    def next_logps(
        self, rows: Sequence[Row], tokens: Sequence[int], on_progress: Advance
    ) -> list[dict[int, float] | Fault]:
        """Log-probs of each of `tokens` after each row, at temperature 1."""
        ...


class TextModel(LanguageModel, Protocol):
    """A causal language model that also generates."""

    def generate(
        self, rows: Sequence[Row], sampling: SamplingParams, *, samples: int, ends: Sequence[int], seed: int
    ) -> list[list[Sampled] | Fault]:
        """`samples` continuations of each row."""
        ...


def sampled(ids: Sequence[int], ends: Sequence[int]) -> Sampled:
    """From generated ids that include the end token where the model ended its turn."""
    tokens = tuple(int(token) for token in ids)
    ended = bool(tokens) and tokens[-1] in ends
    return Sampled(tokens[:-1] if ended else tokens, ended)


def by_row(generated: Sequence[Sampled | Fault], samples: int) -> list[list[Sampled] | Fault]:
    """Groups of `samples` per row; a row with a failed sample has failed."""
    rows: list[list[Sampled] | Fault] = []
    for start in range(0, len(generated), samples):
        of_row = generated[start : start + samples]
        fault = next((sample for sample in of_row if isinstance(sample, Fault)), None)
        rows.append(fault or [sample for sample in of_row if not isinstance(sample, Fault)])
    return rows
