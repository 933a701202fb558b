"""Verifiable constraints as a `Scorer`: a part of a composed reward.

Covers: constraints of the file or of each item's label, the fraction that holds or whether all hold, failures of checks
without a verdict, the identity of the checking code. Leaves out: the checks (`assay_serving.verifiers`).
"""

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from assay.conversation.message import final_text
from assay.errors import AssayError, BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.scorer import ModelInfo, ScoreItem
from assay_serving.verifiers import Constraint, Outcome, PythonTests, constraint_from_dict, shared_pool

KIND = "verifier"
NAME = "constraints"


class ConstraintScorer:
    """The uncertainty of a verdict is 0, not None as for a model that gives none."""

    def __init__(
        self,
        constraints: Sequence[Constraint] | None,
        measure: Literal["fraction", "passed"],
        *,
        programs: bool = False,
    ) -> None:
        """`constraints`: None takes those of each item's label; `programs`: these may run code."""
        self.constraints, self.measure, self.programs = constraints, measure, programs
        fixed = [constraint.to_dict() for constraint in constraints] if constraints is not None else "label"
        code = [_code_digest(), *_plugin_digests(constraints or ())]
        identity = json.dumps([fixed, measure, code], sort_keys=True)
        self._info = ModelInfo(name=NAME, version=hashlib.sha256(identity.encode()).hexdigest()[:16], kind=KIND)

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def score_identity(self) -> str:
        """See `Repeatable`."""
        return ""

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`."""
        checks = [self._constraints_for(item) for item in items]
        pairs = [
            (of, final_text(item.response))
            for of, item in zip(checks, items, strict=True)
            if not isinstance(of, ScoreFailure)
        ]
        try:
            verified: list[Outcome] = shared_pool().verify(pairs) if pairs else []
        except AssayError as error:  # applies to all of them
            verified = [ScoreFailure(error.code, str(error), NAME)] * len(pairs)
        outcomes = iter(verified)
        results = [self._result(of if isinstance(of, ScoreFailure) else next(outcomes)) for of in checks]
        on_progress(len(items))
        return results

    def _constraints_for(self, item: ScoreItem) -> Sequence[Constraint] | ScoreFailure:
        if item.rendered is not None:
            return ScoreFailure("bad_input", "a rendered conversation does not say which of it is the response", NAME)
        try:
            constraints = self.constraints if self.constraints is not None else constraints_of(item.label)
        except BadInputError as error:
            return ScoreFailure("bad_input", str(error), NAME)
        if self.constraints is None and not self.programs and any(isinstance(c, PythonTests) for c in constraints):
            message = "running programs is off: the part of the composed reward has to say `programs: true`"
            return ScoreFailure("bad_input", message, NAME)
        if not isinstance(item.response, str) and not final_text(item.response):
            return ScoreFailure("bad_input", "the response's last turn has no text to verify", NAME)
        return constraints or ScoreFailure("bad_input", "no constraints to verify", NAME)

    def _result(self, outcome: Outcome) -> ScoreResult:
        if isinstance(outcome, ScoreFailure):
            return ScoreFailure(outcome.code, outcome.message, NAME)
        reward = outcome.fraction if self.measure == "fraction" else float(outcome.passed)
        verdicts = zip(outcome.constraints, outcome.verdicts, strict=True)
        evidence = "; ".join(f"{constraint.kind}: {verdict.detail}" for constraint, verdict in verdicts)
        version = self._info.version
        return Score(reward, NAME, version, "", tokens=0, truncated=False, uncertainty=0.0, evidence=evidence)


def constraints_of(label: str | None) -> tuple[Constraint, ...]:
    """The constraints of a label's JSON: a list, a single one, or an object with `constraints`.

    Raises BadInputError where there are none, or an invalid one.
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


def _plugin_digests(constraints: Sequence[Constraint]) -> list[str]:
    """Of the files of constraints defined elsewhere."""
    files = {inspect.getfile(type(c)) for c in constraints if not type(c).__module__.startswith("assay_serving.")}
    return [hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] for file in sorted(files)]


@cache
def _code_digest() -> str:
    """Of the checking code, which is part of the reward's version."""
    hasher = hashlib.sha256()
    folder = Path(str(resources.files("assay_serving.verifiers")))
    for file in sorted(folder.rglob("*.py")):
        hasher.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return hasher.hexdigest()[:16]
