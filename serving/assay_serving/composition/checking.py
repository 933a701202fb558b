"""Constraints that a program checks, as a `Scorer`: one kind of part of a composed reward.

Covers: constraints of the file or of each item's label, the share that holds or whether all hold, the identity of the
checking code. Leaves out: the checks (`assay_serving.verifiers`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Literal

from assay.errors import BadInputError
from assay.progress import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.scorer import ModelInfo, ScoreItem
from assay_serving.verifiers import Constraint, constraint_from_dict, verify

KIND = "verifier"
NAME = "constraints"
UNLIMITED = 1 << 30  #: tokens: nothing is cut


class ConstraintScorer:
    """A verdict has no uncertainty: 0, and not None as where a model gives none."""

    def __init__(self, constraints: Sequence[Constraint] | None, measure: Literal["fraction", "passed"]) -> None:
        """`constraints`: None takes each item's own, from its label."""
        self.constraints, self.measure = constraints, measure
        fixed = [constraint.to_dict() for constraint in constraints] if constraints is not None else "label"
        identity = json.dumps([fixed, measure, _code_digest()], sort_keys=True)
        self._info = ModelInfo(
            name=NAME,
            version=hashlib.sha256(identity.encode()).hexdigest()[:16],
            kind=KIND,
            template_hash="",
            max_length=UNLIMITED,
            calibrated=False,
            parity="passed",
            dtype="",
            device="",
        )

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def score_identity(self) -> str:
        """See `Repeatable`."""
        return ""

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`."""
        results = [self._result(item) for item in items]
        on_progress(len(items))
        return results

    def _result(self, item: ScoreItem) -> ScoreResult:
        if item.rendered is not None:
            return ScoreFailure("bad_input", "a rendered conversation does not say which of it is the response", NAME)
        try:
            constraints = self.constraints if self.constraints is not None else constraints_of(item.label)
            verification = verify(constraints, item.response)
        except BadInputError as error:
            return ScoreFailure("bad_input", str(error), NAME)
        reward = verification.fraction if self.measure == "fraction" else float(verification.passed)
        return Score(reward, NAME, self._info.version, "", tokens=0, truncated=False, uncertainty=0.0)


def constraints_of(label: str | None) -> tuple[Constraint, ...]:
    """Those that a label states as JSON: a list of constraints, one constraint, or an object with `constraints`.

    Raises BadInputError where there are none, or one that there is not.
    """
    if label is None:
        raise BadInputError("the item has no label to take its constraints from", field="label")
    try:
        payload: Any = json.loads(label)
    except (ValueError, RecursionError) as error:
        raise BadInputError("constraints are JSON, and this is not", field="label") from error
    if isinstance(payload, Mapping):
        payload = payload.get("constraints", [payload])
    if not isinstance(payload, list) or not payload or not all(isinstance(c, Mapping) for c in payload):
        raise BadInputError("must be a list of constraints, and not an empty one", field="label")
    return tuple(constraint_from_dict(constraint) for constraint in payload)


@cache
def _code_digest() -> str:
    """Of the checking code: a verdict of other code is another reward."""
    hasher = hashlib.sha256()
    folder = resources.files("assay_serving.verifiers")
    for file in sorted((entry for entry in folder.iterdir() if entry.name.endswith(".py")), key=lambda e: e.name):
        hasher.update(file.name.encode() + b"\0" + file.read_bytes())
    return hasher.hexdigest()[:16]
