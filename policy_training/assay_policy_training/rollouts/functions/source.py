"""S3: a plain Python function as a reward source.

Covers: what a function may return, and every other answer as the failure of its rows, by name: an exception, a hang,
the wrong number of values, text, NaN. Leaves out: recognising its signature (`signatures`), the time limit (`calls`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, Literal

from assay.errors import BackendError
from assay.score import NOT_APPLICABLE, ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.rollouts.functions.calls import CallError, TimedCalls
from assay_policy_training.rollouts.functions.signatures import Signature


@dataclass(frozen=True)
class CallSettings:
    """`timeout`: seconds of one call. `on_error`: what a row that failed does: `mask`, it is not trained on; `stop`,
    the run ends with its reason."""

    timeout: float = 120.0
    on_error: Literal["mask", "stop"] = "mask"


class FunctionReward:
    """One part, named after the function. None is the function's own "does not apply to this row", and no error.

    Raises BackendError for a row that failed where `settings.on_error` is `stop`.
    """

    def __init__(
        self, function: Callable[..., Any], *, name: str | None = None, settings: CallSettings | None = None
    ) -> None:
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", type(function).__name__))
        self.settings = settings or CallSettings()
        self.signature = Signature.of(function, self.name)
        self.whole_batch = self.signature.batched  # a batch function may compare the rows of a step
        self._calls = TimedCalls(self.name, self.settings.timeout)
        self._logged: dict[str, list[float]] = {}

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        if not items:
            return Rewards.of(self.name, [])
        arguments = self.signature.calls(items, responses, self._log_metric)
        run = self._calls.run_async if self.signature.asynchronous else self._calls.run
        answers = run([partial(self.function, **call) for call in arguments])
        values = self._of_batch(answers[0], len(items)) if self.signature.batched else answers
        outcomes = [self._outcome(value) for value in values]
        failures = [(row, outcome) for row, outcome in enumerate(outcomes) if isinstance(outcome, ScoreFailure)]
        failed = [(row, failure) for row, failure in failures if failure.code != NOT_APPLICABLE]
        if failed and self.settings.on_error == "stop":
            row, failure = failed[0]
            raise BackendError(
                f"reward {self.name}: {failure.message}; {len(failed)} of {len(items)} rows failed, the first is the "
                f"response {responses[row][:60]!r} (--on-reward-error stop)"
            )
        return Rewards.of(self.name, outcomes)

    def numbers(self) -> dict[str, float]:
        """Means of what the function passed to TRL's `log_metric` since the last call."""
        logged, self._logged = self._logged, {}
        return {f"reward_{self.name}_{name}": fmean(values) for name, values in logged.items()}

    def close(self) -> None:
        """End what runs beside the trainer."""
        self._calls.close()

    def _log_metric(self, name: str, value: float) -> None:
        self._logged.setdefault(name, []).append(float(value))

    def _of_batch(self, answer: Any, rows: int) -> Sequence[Any]:
        """The answer to a batch as one value a row, or the same failure for every row."""
        if isinstance(answer, CallError):
            return [answer] * rows
        if isinstance(answer, Mapping) and "rewards" in answer:  # OpenRLHF: {"rewards": ..., "scores": ...}
            answer = answer["rewards"]
        values = answer.tolist() if hasattr(answer, "tolist") else answer
        if not isinstance(values, list | tuple):
            return [CallError("bad_value", f"returned {_description(answer)}, not a list of {rows} numbers")] * rows
        if len(values) != rows:
            return [CallError("wrong_length", f"returned {len(values)} values for {rows} responses")] * rows
        return values

    def _outcome(self, value: Any) -> float | ScoreFailure:
        """A finite number, or why there is none."""
        if isinstance(value, CallError):
            return ScoreFailure(value.code, str(value), self.name)
        if isinstance(value, Mapping) and "score" in value:  # verl: {"score": ..., "acc": ...}
            value = value["score"]
        if value is None:
            return ScoreFailure(NOT_APPLICABLE, "the function returned None", self.name)
        try:
            if isinstance(value, str | bytes):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError):
            return ScoreFailure("bad_value", f"returned {_description(value)}, not a number", self.name)
        if not math.isfinite(number):
            return ScoreFailure("non_finite", f"returned {number}", self.name)
        return number


def _description(value: Any) -> str:
    return f"{value!r:.60} ({type(value).__name__})"
