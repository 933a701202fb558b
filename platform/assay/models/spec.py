"""The one description of a reward model: `assay.json` in the checkpoint's folder.

Covers: kind, base, template identity, trained length, principle support, calibration, parity, where it came from.
Leaves out: the weights, which are a stock transformers checkpoint that any engine loads; what a calibration computes
(`calibration.py`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from assay.errors import BadInputError
from assay.models.calibration import Calibration

__all__ = ["FILE", "FORMAT", "Calibration", "Kind", "ParityCheck", "RewardModelSpec", "weights_digest"]

FILE = "assay.json"
FORMAT = 1
Kind = Literal["scalar", "principle", "generative"]


@dataclass(frozen=True, slots=True)
class ParityCheck:
    """One equality of scores that was measured: `largest` |difference| of rewards over `compared` responses."""

    name: str  #: e.g. "saved = loaded", "batch 1 = batch N"
    passed: bool
    largest: float
    compared: int
    detail: str = ""  #: what differs, where it failed


@dataclass(frozen=True, slots=True)
class RewardModelSpec:
    """What a checkpoint is and how its scores are to be read."""

    kind: Kind
    base: str
    template_hash: str
    trained_length: int  #: tokens; scoring cuts conversations here
    version: str  #: digest of weights, config and tokenizer (`weights_digest`)
    principles: bool = False
    question: str | None = None  #: of a principle model: the wording it was trained with, `{principle}` in it
    yes_token: int | None = None  #: of a principle model: its reward is logit(yes) - logit(no) at the answer
    no_token: int | None = None
    calibration: Calibration | None = None
    snapshot: str | None = None
    run_id: str | None = None
    parity: str = "unchecked"  #: "passed" where every check held, "failed: ..." otherwise
    parity_checks: tuple[ParityCheck, ...] = ()

    def write(self, folder: Path) -> None:
        """Write `assay.json` into the checkpoint's folder, atomically."""
        scratch = folder / (FILE + ".tmp")
        scratch.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n", encoding="utf-8")
        scratch.replace(folder / FILE)

    @classmethod
    def read(cls, folder: Path) -> RewardModelSpec | None:
        """The folder's spec, None where it has none (a checkpoint from elsewhere). Raises BadInputError if broken."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            payload: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if (found := payload.pop("format", None)) != FORMAT:
                raise BadInputError(f"spec format {found}, this Assay reads {FORMAT}", file=path)
            calibration = payload.pop("calibration", None)
            checks = tuple(ParityCheck(**check) for check in payload.pop("parity_checks", ()))
            return cls(**payload, calibration=Calibration.from_dict(calibration) if calibration else None, parity_checks=checks)
        except (ValueError, TypeError) as error:
            raise BadInputError(f"not a reward-model spec: {error}", file=path) from error

    def calibrated(self, calibration: Calibration) -> RewardModelSpec:
        return replace(self, calibration=calibration)


def weights_digest(folder: Path) -> str:
    """Content hash of a checkpoint: every file but Assay's own (`assay.*`) and the model card, so that calibrating or
    describing it does not change the version."""
    hasher = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith(("assay.", "README"))):
        hasher.update(path.name.encode() + b"\0")
        with path.open("rb") as stream:
            hasher.update(hashlib.file_digest(stream, "sha256").digest())
    return hasher.hexdigest()[:16]

