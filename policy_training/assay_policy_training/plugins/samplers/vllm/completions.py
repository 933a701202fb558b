"""What is asked of a vLLM engine, wherever it runs, and what it answers.

Leaves out: rollouts made of it (`policy_engine`, `turns`), talking to the engine (`server`, `in_process`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from assay_policy_training.core.sampling import Sampling, min_p
from assay_policy_training.core.stop_strings import StopStrings

MOST_STOPS = 4  #: texts that a server takes; rows run on past others, and are cut here


@dataclass(frozen=True)
class VllmCompletion:
    """The tokens of one row, its end token included, and their log-probs under the distribution sampled."""

    ids: tuple[int, ...]
    logps: tuple[float, ...]


@dataclass(frozen=True)
class PublishedWeights:
    """What an engine is given after an update: all weights under the names of a checkpoint, or those of an adapter
    under PEFT's. `tensors` may be gone through once; of a divided model, by all processes together."""

    key: str  #: no other weights have it
    tensors: Iterable[tuple[str, Tensor]]
    adapter: Mapping[str, Any] | None = None  #: its configuration: rank, alpha, layers


class PolicyEngine(Protocol):
    """A vLLM engine whose weights can be replaced."""

    @property
    def where(self) -> str:
        """For messages."""
        ...

    @property
    def max_length(self) -> int | None:
        """Tokens of prompt and answer; None: unknown."""
        ...

    @property
    def at_once(self) -> int:
        """Calls of `complete` that may be under way at the same time."""
        ...

    def complete(
        self, rows: Sequence[Sequence[int]], n: int, fields: Mapping[str, Any], seeds: Sequence[int]
    ) -> Iterator[list[VllmCompletion]]:
        """`n` completions of each row, in order; vLLM counts up from a row's seed for each of them. `fields`: see
        `request_fields`. Raises BackendError."""
        ...

    def confirm(self) -> None:
        """Called after completions: raises BackendError where they are not of the weights that were given last."""
        ...

    def load(self, weights: PublishedWeights) -> None:
        """Wake, take the weights and forget what was cached of the old ones. Raises BackendError."""
        ...

    def sleep(self) -> None:
        """Give the GPU's memory back until weights are loaded again, where the engine was started so."""
        ...


def ended(row: VllmCompletion, stops: StopStrings) -> VllmCompletion:
    """The row up to the token that completes a stop text, wherever the engine ended it."""
    if not stops or len(row.logps) != len(row.ids):
        return row
    length = stops.length(row.ids)
    return VllmCompletion(row.ids[:length], row.logps[:length])


def request_fields(sampling: Sampling, ends: Sequence[int]) -> dict[str, Any]:
    """Fields of `SamplingParams` and of a completion request alike, every default of a server overridden."""
    by_text = {
        "stop": list(sampling.stop[:MOST_STOPS]),
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
    }
    return {
        **(by_text if sampling.stop else {}),
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": -1,
        "min_p": min_p(sampling.prune_log_ratio),
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logprobs": 0,  # of the sampled token alone
        "stop_token_ids": list(ends),
        "ignore_eos": True,  # `ends` has them all
    }
