"""A composed reward as a `Scorer`: parts score only the items that need them, and are shaped, combined and reported.

Covers: rounds of scoring (items behind a closed gate are not scored), inputs shared by parts and items scored once,
failures, versions. Leaves out: the functions (`shaping`, `combining`), opening the parts (`part_loader`).

An item's result depends on the item alone. A part that fails on an item fails the item: the combination of the others
would be another reward under the same version, and a policy would learn to make the part fail.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from assay.errors import AssayError, BadInputError
from assay.models.chat.renderer import Renderer
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScorePart, ScoreResult
from assay_serving.client.remote import RemoteScorer
from assay_serving.composition.checking import KIND as VERIFIER
from assay_serving.composition.combining import AnyCombination, Value
from assay_serving.composition.description import KIND, REWARD, ComposedSpec, PartSpec
from assay_serving.composition.shaping import LengthPenalty, ShapingContext
from assay_serving.engines.ensemble import info_of_parts
from assay_serving.engines.length_corrected import response_length
from assay_serving.scorer import READS_LABEL, TAKES_NO_PRINCIPLE, ModelInfo, Repeatable, ScoreItem, Scorer

K = TypeVar("K")
_Answers: TypeAlias = dict[tuple[int, ScoreItem], ScoreResult]  #: by scorer and input

ITEMS_AT_ONCE = 512  #: per progress report; results of parts are held for this many


class PartFailedError(Exception):
    """One item has no score, for this reason."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


@dataclass
class Case:
    """One item being scored: inputs and scores of its parts, and the values of parts and combinations by name."""

    item: ScoreItem
    questions: dict[str, list[ScoreItem]] = field(default_factory=dict)
    scores: dict[str, Score] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    failure: ScoreFailure | None = None


class ComposedScorer:
    """See the module. Thread-safe where its parts are."""

    def __init__(self, spec: ComposedSpec, scorers: Mapping[str, Scorer], *, name: str) -> None:
        """`scorers`: by part; two parts may have the same one. Raises BadInputError for a part that its scorer cannot
        be: a principle for a scalar model, tokens without a tokenizer here, another version than the file's."""
        self.spec, self.scorers = spec, {part.name: scorers[part.name] for part in spec.parts}
        self._parts = {part.name: part for part in spec.parts}
        self._combinations: dict[str, AnyCombination] = {
            path.removeprefix("steps."): combination for path, combination in spec.combinations()
        }
        self._target = REWARD if spec.combine is not None else spec.parts[0].name
        self._weights = spec.weights
        for part in spec.parts:
            _check(part, self.scorers[part.name])
        self._versions = {part: scorer.info.version for part, scorer in self.scorers.items()}
        self._digests: dict[tuple[str, ...], str] = {}
        self._info = self._described(name)

    @property
    def info(self) -> ModelInfo:
        """Its version reflects the parts' latest scores: a server behind a part may have changed its model."""
        version = self._version(self._versions)
        return self._info if version == self._info.version else replace(self._info, version=version)

    @property
    def score_identity(self) -> str | None:
        """See `Repeatable`: of all parts; a server behind one of them may change its model at any time."""
        identities = [s.score_identity if isinstance(s, Repeatable) else None for s in self.scorers.values()]
        return None if None in identities else json.dumps(identities)

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`. A part whose model or server is gone fails only the items that need it."""
        results: list[ScoreResult] = []
        for start in range(0, len(items), ITEMS_AT_ONCE):
            cases = [Case(item) for item in items[start : start + ITEMS_AT_ONCE]]
            answers: _Answers = {}
            while pending := self._pending_cases(cases):
                self._score_parts(pending, answers)
                for part in self.spec.parts:  # in the file's order: of two failures the first is reported
                    for case in pending.get(part.name, ()):
                        self._shape(case, part, answers)
            results += [self._result(case) for case in cases]
            on_progress(len(cases))
        return results

    def _pending_cases(self, cases: Iterable[Case]) -> dict[str, list[Case]]:
        """Cases by the part that they need next; cases without one are completed."""
        cases_by_part: dict[str, list[Case]] = {}
        for case in cases:
            if case.failure is None:
                try:
                    for part in self._missing(self._target, case.values):
                        cases_by_part.setdefault(part, []).append(case)
                except PartFailedError as error:
                    case.failure = ScoreFailure(error.code, error.message, self._info.name)
        return cases_by_part

    def _missing(self, name: str, values: dict[str, Value]) -> set[str]:
        """Parts that must be scored before `name` is known; empty when it is, and then `values` holds it."""
        if name in values:
            return set()
        if name in self._parts:
            return {name}
        combination = self._combinations[name]
        while unknown := [operand for operand in combination.needs(values) if operand not in values]:
            waiting: set[str] = set().union(*(self._missing(operand, values) for operand in unknown))
            if waiting:
                return waiting
        values[name] = _finite(combination.combine, values, what=name)
        return set()

    def _score_parts(self, cases_by_part: Mapping[str, list[Case]], answers: _Answers) -> None:
        """Add the scores that the parts need to `answers`, by scorer and input; servers are called concurrently."""
        by_scorer: dict[int, tuple[Scorer, str, dict[ScoreItem, None]]] = {}
        for name, cases in cases_by_part.items():
            scorer = self.scorers[name]
            _, _, questions = by_scorer.setdefault(id(scorer), (scorer, name, {}))
            for case in cases:
                case.questions[name] = self._questions(self._parts[name], case.item)
                questions |= dict.fromkeys(case.questions[name])
        calls = {
            key: (scorer, name, [q for q in questions if (key, q) not in answers])
            for key, (scorer, name, questions) in by_scorer.items()
        }
        for key, results in results_of(calls).items():
            answers |= {(key, q): result for q, result in zip(calls[key][2], results, strict=True)}

    def _questions(self, part: PartSpec, item: ScoreItem) -> list[ScoreItem]:
        """The inputs of a part's model for an item: the response, then the references where its shaping compares."""
        kind = self.scorers[part.name].info.kind
        question = ScoreItem(
            item.prompt,
            item.response,
            part.principle or (item.principle if kind not in ("scalar", VERIFIER) else None),
            item.rendered,
            item.label if kind in READS_LABEL else None,
            item.references if kind == KIND else (),  # for its own parts
        )
        if not part.compares or item.rendered is not None:
            return [question]
        return [question, *(replace(question, response=text) for text in item.references)]

    def _shape(self, case: Case, part: PartSpec, answers: _Answers) -> None:
        """Shape the part's scores of this case, or fail the case."""
        if case.failure is not None:
            return
        scorer = self.scorers[part.name]
        questions = case.questions[part.name]
        try:
            scores = [
                self._accepted(part, answers[id(scorer), question], f"reference {index}" if index else "")
                for index, question in enumerate(questions)
            ]
            if len({score.version for score in scores}) > 1:
                raise PartFailedError("backend", f"part {part.name}: its model changed during the request; retry")
            if len(scores) < 2 and part.compares:
                raise PartFailedError("bad_input", f"part {part.name} compares with references, and the item has none")
            case.values[part.name] = _finite(shaped, part, scores, questions, scorer, what=part.name)
        except PartFailedError as error:
            case.failure = ScoreFailure(error.code, error.message, self._info.name)
            return
        case.scores[part.name] = scores[0]
        self._versions[part.name] = scores[0].version

    def _accepted(self, part: PartSpec, result: ScoreResult, of: str) -> Score:
        prefix = f"part {part.name}: {of}: " if of else f"part {part.name}: "
        if isinstance(result, ScoreFailure):
            raise PartFailedError(result.code, prefix + result.message)
        if part.version is not None and result.version != part.version:
            raise PartFailedError("backend", f"{prefix}its version is {result.version}, the file takes {part.version}")
        return result

    def _result(self, case: Case) -> ScoreResult:
        if case.failure is not None:
            return case.failure
        total = case.values[self._target]
        scores = list(case.scores.values())
        seen = {name: score.version for name, score in case.scores.items()}
        [alone] = scores if self._is_one_part and scores else [None]
        return Score(
            reward=total.reward,
            model=self._info.name,
            version=self._version(self._versions | seen),
            template_hash=self._info.template_hash,
            tokens=max((score.tokens for score in scores), default=0),
            truncated=any(score.truncated for score in scores),
            probability=alone.probability if alone is not None else None,
            uncertainty=total.uncertainty,
            principle=case.item.principle if self._takes_principle else None,
            calibration=alone.calibration if alone is not None else None,
            parts=tuple(part for spec in self.spec.parts for part in self._reported(spec, case)),
        )

    def _reported(self, part: PartSpec, case: Case) -> list[ScorePart]:
        """The part of the reply; a part that is itself composed has its own parts after it, as OUTER.INNER."""
        weight = self._weights.get(part.name)
        score = case.scores.get(part.name)
        if score is None:
            info = self.scorers[part.name].info
            why = self._why_skipped(part.name, case.values)
            return [
                ScorePart(part.name, weight=weight, model=info.name, version=self._versions[part.name], skipped=why)
            ]
        value = case.values[part.name].reward
        entry = ScorePart(part.name, score.reward, value, weight, score.model, score.version, evidence=score.evidence)
        return [entry, *(replace(inner, name=f"{part.name}.{inner.name}") for inner in score.parts)]

    def _why_skipped(self, name: str, values: Mapping[str, Value]) -> str:
        for step, combination in self._combinations.items():
            if name in combination.operands:
                return combination.skipped(values) if step in values else self._why_skipped(step, values)
        return "not needed"

    @property
    def _takes_principle(self) -> bool:
        """Whether an item's own principle matters to its reward."""
        return any(
            part.principle is None and self.scorers[part.name].info.kind not in (*TAKES_NO_PRINCIPLE, VERIFIER)
            for part in self.spec.parts
        )

    @property
    def _is_one_part(self) -> bool:
        """Whether the reward is the unshaped reward of a single part."""
        return self.spec.combine is None and not self.spec.parts[0].shaping

    def _version(self, versions: Mapping[str, str]) -> str:
        key = tuple(versions[name] for name in self._parts)
        if key not in self._digests:
            self._digests[key] = self.spec.digest(versions)
        return self._digests[key]

    def _described(self, name: str) -> ModelInfo:
        """From the parts that are models; a reward of constraints alone has no template and no length limit."""
        models = [scorer.info for scorer in self.scorers.values() if scorer.info.kind != VERIFIER]
        described = info_of_parts(name, models, version=self._version(self._versions), kind=KIND)
        if not self._is_one_part or not models:
            return described
        return replace(models[0], name=name, version=described.version, kind=KIND, question=None)


def results_of(calls: Mapping[K, tuple[Scorer, str, Sequence[ScoreItem]]]) -> dict[K, Sequence[ScoreResult]]:
    """Results of each call (scorer, name of its part, inputs); servers are called concurrently."""
    remote = [key for key, (scorer, *_) in calls.items() if isinstance(scorer, RemoteScorer)]
    with ThreadPoolExecutor(max(1, len(remote))) as threads:
        running = {key: threads.submit(_scored, *calls[key]) for key in remote}
        by_call = {key: _scored(*call) for key, call in calls.items() if key not in running}
        return by_call | {key: future.result() for key, future in running.items()}


def _scored(scorer: Scorer, part: str, questions: Sequence[ScoreItem]) -> Sequence[ScoreResult]:
    """One result per input; an error of the whole call becomes a failure of each."""
    try:
        results = scorer.score(questions) if questions else []
    except AssayError as error:
        return [ScoreFailure(error.code, str(error), part)] * len(questions)
    if len(results) != len(questions):
        raise RuntimeError(f"part {part} gave {len(results)} results for {len(questions)} items")
    return results


def shaped(part: PartSpec, scores: Sequence[Score], questions: Sequence[ScoreItem], scorer: Scorer) -> Value:
    """The response's reward after all shapes; its references are shaped too, for shapes that compare with them."""
    values = [score.reward for score in scores]
    uncertainty = scores[0].uncertainty
    for shape in part.shaping:
        lengths = [0.0] * len(values)
        if isinstance(shape, LengthPenalty):
            if questions[0].rendered is not None:
                raise PartFailedError(
                    "bad_input", f"part {part.name}: a rendered conversation does not say how long its response is"
                )
            lengths = [float(response_length(question, shape.unit, _renderer_of(scorer))) for question in questions]
        contexts = [ShapingContext(values[1:], length) for length in lengths]
        if uncertainty is not None:
            uncertainty *= abs(shape.slope(values[0], contexts[0]))
        values = [shape.apply(value, context) for value, context in zip(values, contexts, strict=True)]
    return Value(values[0], uncertainty)


def _finite(make: Callable[..., Value], *arguments: object, what: str) -> Value:
    """The value of `make`. Raises PartFailedError for a number that is not finite."""
    try:
        value = make(*arguments)
    except OverflowError:
        value = Value(math.inf)
    if not math.isfinite(value.reward):
        raise PartFailedError("non_finite", f"{what} gives {value.reward}")
    usable = value.uncertainty is None or math.isfinite(value.uncertainty)
    return value if usable else Value(value.reward)


def _renderer_of(scorer: Scorer) -> Renderer | None:
    """The renderer of a local model, also under a length correction."""
    renderer: Renderer | None = getattr(scorer, "renderer", None)
    return renderer if renderer is not None else getattr(getattr(scorer, "scorer", None), "renderer", None)


def _check(part: PartSpec, scorer: Scorer) -> None:
    info = scorer.info
    if part.principle is not None and info.kind in TAKES_NO_PRINCIPLE:
        raise BadInputError(f"part {part.name}: {info.name} is a {info.kind} model, which takes no principle")
    if part.counts_tokens and _renderer_of(scorer) is None:
        raise BadInputError(f"part {part.name}: {info.name} has no tokenizer here; let length_penalty count characters")
    if part.version is not None and part.version != info.version:
        raise BadInputError(
            f"part {part.name}: {info.name} has version {info.version}, and the file takes {part.version}: measure "
            "what its shaping holds (references, means, deviations) again, then name the new version"
        )
