"""The differences between versions of vLLM that matter to Assay, in one place.

Covers: how to request the raw logit, how memory is set on a CPU, which versions are known. Leaves out: what is the same
in all of them, and what an object itself shows (`logprob_token_ids`).

vLLM applies a sigmoid to a classifier's one logit unless the request switches it off, and that field was renamed:
`softmax` (which classifiers ignored), then `activation`, then `use_activation`. Its HTTP server ignores a wrong name
without an error, so that rewards of 23 and 3.6 both come back as 1.0: `require_raw` compares answers when an engine
starts.
Sources: vLLM's API pages of 0.10.1.1 to 0.12.0, pull requests 20538 (activation a request), 21470 (`--task` replaced by
`--runner` and `--convert`), 32243 (`normalize` gone); 0.32's own code.
"""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.errors import BackendError

log = logging.getLogger(__name__)

Version = tuple[int, int, int]
NEWEST_READ: Version = (0, 33, 0)  #: the newest whose sources or documentation were read


@dataclass(frozen=True, slots=True)
class VllmFlags:
    """Names and flags of the versions from `since` on."""

    since: Version
    activation: str  #: field of a request and of PoolingParams that switches the sigmoid off
    #: Arguments of `LLM` and options of the server that make it a classifier.
    classifying: Mapping[str, str] = field(default_factory=lambda: {"runner": "pooling", "convert": "classify"})
    generating: Mapping[str, str] = field(default_factory=lambda: {"runner": "generate"})
    cache_bytes: bool = True  #: whether `LLM` takes `kv_cache_memory_bytes`; else VLLM_CPU_KVCACHE_SPACE says it

    def raw(self) -> dict[str, Any]:
        """Fields that request the logit itself."""
        return {self.activation: False}

    def activated(self) -> dict[str, Any]:
        """Fields that request vLLM's default."""
        return {self.activation: True}


#: Oldest first; a version is described by the last row that is not newer than it.
TABLE: tuple[VllmFlags, ...] = (
    VllmFlags((0, 10, 1), "activation", cache_bytes=False),
    VllmFlags((0, 11, 1), "use_activation"),
)


def parse_version(text: str) -> Version | None:
    """Parses "0.32.0+cpu" or "0.11.1rc2.dev3"; None for text without a version ("dev")."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text.strip())
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def flags_for(text: str) -> VllmFlags:
    """The flags of a version as vLLM reports it. A newer one than is known is used like the newest, with a warning.

    Raises BackendError for an older one, and for text without a version.
    """
    version = parse_version(text)
    if version is None or version < TABLE[0].since:
        raise BackendError(
            f"vLLM {text} is not supported: known are {_dotted(TABLE[0].since)} to {_dotted(NEWEST_READ)}"
        )
    if version[:2] > NEWEST_READ[:2]:
        log.warning("vLLM %s is newer than those known (up to %s): used like that one", text, _dotted(NEWEST_READ))
    return [flags for flags in TABLE if flags.since <= version][-1]


def require_raw(raw: Sequence[float], activated: Sequence[float], *, regression: bool, where: str) -> None:
    """Refuse an engine that answers with probabilities to a request for logits.

    `raw`, `activated`: its answers for the same rows without and with activation. They may be equal only where the
    checkpoint's config has `problem_type: "regression"` (then vLLM's activation is the identity).
    Raises BackendError; warns where only the config supports it.
    """
    alike = all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-4) for a, b in zip(raw, activated, strict=True))
    inside = all(0.0 <= value <= 1.0 for value in raw)
    if not alike:
        return
    if not regression:
        raise BackendError(
            f"{where} gives the same answers with and without activation: they may be probabilities, not rewards; "
            'put "problem_type": "regression" into the config.json that it was started with, and into this one'
        )
    if inside and len(raw) > 1:
        log.warning("all first rewards of %s lie between 0 and 1 (%s): they may be probabilities", where, list(raw))


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
