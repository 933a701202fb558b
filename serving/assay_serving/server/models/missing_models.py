"""A model that should be served and is missing: the engine process restarted and could not load it again.

Covers: what is kept of it, what callers are told, an error as one line. Leaves out: trying to load it
(`engine_process.engine`, `lifecycle`), the names of all models (`registry`).
"""

from dataclasses import dataclass

from assay.errors import AssayError, BusyError
from assay_serving.model_config import ModelConfig

RETRY_S = 30.0  #: after which a client of a missing model may retry: an administrator has to act first
_LONGEST = 200


@dataclass(frozen=True)
class MissingModel:
    """`plan`: how it would be loaded. `reason`: why that failed, in one line."""

    name: str
    plan: ModelConfig
    reason: str


def missing_model_error(name: str, reason: str) -> BusyError:
    """The error for requests to a missing model."""
    return BusyError(f"{name} is not ready: it could not be loaded again: {reason}", retry_after=RETRY_S)


def reason_of(error: BaseException) -> str:
    """One line for people; with its type for an error of another library."""
    if isinstance(error, AssayError):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:_LONGEST]}" if lines else type(error).__name__
