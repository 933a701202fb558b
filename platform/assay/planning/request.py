"""That a command is asked for its plan instead of being run (`assay plan`), and with what.

Leaves out: the plan itself (`plan`). Imports nothing heavy.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from assay.errors import BadInputError
from assay.runs.progress_bar import progress_bar
from assay.settings import Help, check_settings

PROMPT_TOKENS = 512


@dataclass(frozen=True)
class PlanRequest:
    """Lengths are of what is made up where the command names no data."""

    card: Annotated[str, Help("a100-40, a100-80, h100, h200, 4090, or this: the machine that it runs on.")] = "this"
    ranks: Annotated[int, Ge(1), Help("Processes, each with a card: fully sharded (FSDP2).")] = 1
    prompt_tokens: Annotated[
        int | None, Ge(1), Help(f"Of a made-up prompt. Default: of rl the longest of --prompts, else {PROMPT_TOKENS}.")
    ] = None
    response_tokens: Annotated[int, Ge(1), Help("Of a made-up response.")] = 512
    changes: Annotated[bool, Help("Where it does not fit, plan what would.", "--changes/--no-changes")] = True

    def __post_init__(self) -> None:
        check_settings(self, "--")

    @property
    def prompt_length(self) -> int:
        return self.prompt_tokens or PROMPT_TOKENS

    def division(self, asked: str) -> str:
        """How its processes train. `asked`: `--parallel` of the command. Raises BadInputError for another one."""
        if self.ranks > 1 and asked not in ("auto", "fsdp"):
            text = f"processes are planned under fsdp; with {asked} each holds what one does"
            raise BadInputError(text, field="--ranks")
        return "fsdp" if self.ranks > 1 else "none"


@contextmanager
def plan_progress() -> Iterator[Callable[[int], None]]:
    """On standard error: what planning does and about how long it takes, and its measurements so far."""
    print(
        "planning: the training's step is run without its numbers, 5 to 50 s for each size of micro-batch: two sizes, "
        "and more where it does not fit (--no-changes: fewer)",
        file=sys.stderr,
        flush=True,
    )
    with progress_bar("planning", unit="measured sizes") as advance:
        yield advance


_requests: list[PlanRequest] = []


def requested() -> PlanRequest | None:
    return _requests[-1] if _requests else None


@contextmanager
def planning(request: PlanRequest) -> Iterator[None]:
    """Until the end of the block training commands plan; one that has no plan is refused before it begins a run."""
    from assay.runs.record import without_runs

    _requests.append(request)
    try:
        with without_runs("there is no plan of this method: nothing was run"):
            yield
    finally:
        _requests.pop()
