"""Actors of this process as forks of one that has imported torch and what reads a policy: a new process takes 5 s of
CPU time for it. All else of an actor is as it is: its pipe, its end, what it may be killed in.

Actors that are started as users start them: `tests/unit/platform/test_actors.py`, and those of the driver that
`async_training.py` is.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from assay.compute import actors

if TYPE_CHECKING:
    import pytest

#: With what transformers imports once a model is read.
IMPORTED = [
    "assay_policy_training.rollouts.actor",
    "transformers.convert_slow_tokenizer",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.tokenization_utils_tokenizers",
]


class ForkingContext:
    """In place of `multiprocessing`'s context that starts processes anew."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(IMPORTED)
        self.Pipe = self._context.Pipe

    def Process(self, target: Callable[..., None], args: tuple[Any, ...], daemon: bool) -> BaseProcess:
        return self._context.Process(target=_below_the_forked, args=(target, *args), daemon=daemon)


def _below_the_forked(serve: Callable[..., None], pipe: Any, _: int, *arguments: Any) -> None:
    """The process that it ends with is the one that was forked, which ends with the actor's maker."""
    serve(pipe, os.getppid(), *arguments)


def fork_actors(patch: pytest.MonkeyPatch) -> None:
    """Until `patch` is undone. The process that is forked stays: it ends with this one."""
    context = ForkingContext()
    patch.setattr(actors, "get_context", lambda method: context)
