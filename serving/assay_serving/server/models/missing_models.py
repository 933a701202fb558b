"""A model that should be served and is not: the engine process started again, and could not load it any more.

Covers: what is kept of it, what callers are told, an error as one line. Leaves out: trying to load it
(`engine_process.engine`, `lifecycle`), the names of all models (`roster`).
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.errors import AssayError, BusyError
from assay_serving.model_config import ModelConfig

RETRY_S = 30.0  #: after which a caller of an absent model may ask again: somebody has to do something first
_LONGEST = 200


@dataclass(frozen=True)
class AbsentModel:
    """`plan`: how it would be loaded. `reason`: why that failed, in one line."""

    name: str
    plan: ModelConfig
    reason: str


def absent_error(name: str, reason: str) -> BusyError:
    """The answer to whoever asks for an absent model."""
    return BusyError(f"{name} is not ready: it could not be loaded again: {reason}", retry_after=RETRY_S)


def reason_of(error: BaseException) -> str:
    """One line for people; of an error that is none of ours with its type."""
    if isinstance(error, AssayError):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0][:_LONGEST]}" if said else type(error).__name__
