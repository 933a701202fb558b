"""A rubric reward as a `Scorer`: every item of a rubric asked of every response, in one call of each scorer.

Covers: the rubric of an item's label, grades, failed items, the reward with a part for each item. Leaves out: the sum
of the grades (`aggregation`), opening the scorers (`loader`).

All questions of a call go to a scorer together, so that an engine that packs computes a prompt and a response once, and
for each item only its own text.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScorePart, ScoreResult
from assay_serving.composition.checking import ConstraintScorer
from assay_serving.composition.composed import PartFailedError, results_of, shaped
from assay_serving.composition.description import PartSpec
from assay_serving.engines.ensemble import info_of_parts
from assay_serving.rubrics.description import KIND, RubricSpec
from assay_serving.rubrics.rubric import RubricItem, checked, rubric_of
from assay_serving.scorer import TAKES_NO_PRINCIPLE, ModelInfo, Repeatable, ScoreItem, Scorer

RESPONSES_AT_ONCE = 128
PROGRAM = ""  #: the scorer of items with constraints
GIVES_PROBABILITY = ("principle", "generative")  #: kinds of models that may do without shaping
ROUNDING = 1e-6


@dataclass(frozen=True)
class Grade:
    """What a scorer said of one item. `value`: in [0, 1]; None where it failed, with the reason."""

    value: float | None
    score: Score | None = None
    failure: ScoreFailure | None = None


class RubricScorer:
    """See the module. Thread-safe where its scorers are."""

    def __init__(self, spec: RubricSpec, scorers: Mapping[str, Scorer], *, name: str) -> None:
        """`scorers`: by name. Raises BadInputError for one that cannot grade: rewards without bounds, and a principle
        for a model that takes none."""
        self.spec = spec
        self._parts: dict[str, PartSpec] = {scorer.name: scorer for scorer in spec.scorers}
        self._scorers: dict[str, Scorer] = {scorer.name: scorers[scorer.name] for scorer in spec.scorers}
        for part in spec.scorers:
            kind = self._scorers[part.name].info.kind
            if kind not in (*GIVES_PROBABILITY, "verifier") and not part.shaping:
                raise BadInputError(
                    f"scorer {part.name}: a {kind} model gives no probability; bound its rewards to [0, 1] by "
                    "`shaping`, for example sigmoid"
                )
        self._scorers[PROGRAM] = ConstraintScorer(None, "fraction", programs=spec.programs)
        self._versions = {name: scorer.info.version for name, scorer in self._scorers.items()}
        models = [scorer.info for scorer in self._scorers.values() if scorer.info.kind != "verifier"]
        self._info = info_of_parts(name, models, version=spec.digest(self._versions), kind=KIND)

    @property
    def info(self) -> ModelInfo:
        """Its version reflects the scorers' latest scores: a server behind one may have changed its model."""
        return replace(self._info, version=self.spec.digest(self._versions))

    @property
    def score_identity(self) -> str | None:
        """See `Repeatable`: of all scorers."""
        identities = [s.score_identity if isinstance(s, Repeatable) else None for s in self._scorers.values()]
        return None if None in identities else json.dumps(identities)

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`. A part for each item of the rubric; one that failed has no number."""
        results: list[ScoreResult] = []
        for start in range(0, len(items), RESPONSES_AT_ONCE):
            responses = items[start : start + RESPONSES_AT_ONCE]
            results += self._scored(responses)
            on_progress(len(responses))
        return results

    def items_of(self, response: ScoreItem) -> tuple[RubricItem, ...]:
        """The rubric by which a response is judged: the file's items, then those of its label; without either, its
        principle alone. Raises BadInputError where there is none, and for a wrong one."""
        of_prompt = rubric_of(response.label)
        if response.principle is not None:
            if of_prompt or self.spec.items:
                raise BadInputError("a principle beside a rubric, which judges without it", field="principle")
            of_prompt = (RubricItem(response.principle),)
        if not of_prompt and not self.spec.items:
            raise BadInputError("neither the item's label nor the file has a rubric", field="label")
        rubric = checked((*self.spec.items, *of_prompt))
        for criterion in of_prompt:
            self.spec.scorer_of(criterion)
        return rubric

    def _scored(self, responses: Sequence[ScoreItem]) -> list[ScoreResult]:
        rubrics: list[tuple[RubricItem, ...] | ScoreFailure] = []
        questions: dict[str, dict[ScoreItem, int]] = {}
        for response in responses:
            try:
                rubric = self.items_of(response)
            except BadInputError as error:
                rubrics.append(ScoreFailure(error.code, str(error), self._info.name))
                continue
            rubrics.append(rubric)
            for criterion in rubric:
                scorer, question = self._question(criterion, response)
                of_scorer = questions.setdefault(scorer, {})
                of_scorer.setdefault(question, len(of_scorer))
        answers = results_of({name: (self._scorers[name], name, list(of)) for name, of in questions.items()})
        results: list[ScoreResult] = []
        for response, of_response in zip(responses, rubrics, strict=True):
            if isinstance(of_response, ScoreFailure):
                results.append(of_response)
                continue
            grades = []
            for criterion in of_response:
                scorer, question = self._question(criterion, response)
                grades.append(self._grade(scorer, question, answers[scorer][questions[scorer][question]]))
            results.append(self._result(of_response, grades))
        return results

    def _question(self, criterion: RubricItem, response: ScoreItem) -> tuple[str, ScoreItem]:
        scorer = self.spec.scorer_of(criterion)
        if scorer is None:
            label = json.dumps(criterion.constraints, ensure_ascii=False)
            return PROGRAM, replace(response, principle=None, label=label, references=())
        takes_none = self._scorers[scorer].info.kind in (*TAKES_NO_PRINCIPLE, "verifier")
        principle = None if takes_none else criterion.text
        return scorer, replace(response, principle=principle, label=None, references=())

    def _grade(self, scorer: str, question: ScoreItem, answer: ScoreResult) -> Grade:
        if isinstance(answer, ScoreFailure):
            return Grade(None, None, answer)
        part, info = self._parts.get(scorer), self._scorers[scorer].info
        try:
            if part is not None and part.version is not None and answer.version != part.version:
                raise PartFailedError("backend", f"its version is {answer.version}, the file takes {part.version}")
            if part is not None and part.shaping:
                grade = shaped(part, [answer], [question], self._scorers[scorer]).reward
            elif info.kind == "verifier":
                grade = answer.reward
            elif answer.probability is not None:
                grade = answer.probability
            else:
                raise PartFailedError(
                    "bad_input",
                    f"{scorer} gives {answer.reward:g} without a probability; bound it to [0, 1] by `shaping` (of "
                    "ratings from 1 to 10: standardise {mean: 1, std: 9})",
                )
            if not -ROUNDING <= grade <= 1 + ROUNDING:
                raise PartFailedError("bad_input", f"{scorer} gives {grade:g}, outside [0, 1]: bound it by `shaping`")
        except PartFailedError as error:
            return Grade(None, answer, ScoreFailure(error.code, error.message, scorer))
        self._versions[scorer] = answer.version
        return Grade(min(max(grade, 0.0), 1.0), answer)

    def _result(self, rubric: Sequence[RubricItem], grades: Sequence[Grade]) -> ScoreResult:
        try:
            outcome = self.spec.aggregate.reward(rubric, [grade.value for grade in grades])
        except BadInputError as error:
            failed = next(((i, g.failure) for i, g in zip(rubric, grades, strict=True) if g.failure), None)
            if failed is None:
                return ScoreFailure(error.code, str(error), self._info.name)
            criterion, failure = failed
            return ScoreFailure(failure.code, f"{error}; {criterion.name}: {failure.message}", self._info.name)
        scores = [grade.score for grade in grades if grade.score is not None]
        return Score(
            reward=outcome.reward,
            model=self._info.name,
            version=self.info.version,
            template_hash=self._info.template_hash,
            tokens=max((score.tokens for score in scores), default=0),
            truncated=any(score.truncated for score in scores),
            parts=tuple(
                self._part(criterion, grade, closes=number == outcome.gate)
                for number, (criterion, grade) in enumerate(zip(rubric, grades, strict=True))
            ),
            coverage=outcome.coverage,
        )

    def _part(self, criterion: RubricItem, grade: Grade, *, closes: bool) -> ScorePart:
        score, failure = grade.score, grade.failure
        info = self._scorers[self.spec.scorer_of(criterion) or PROGRAM].info
        return ScorePart(
            str(criterion.name),
            reward=score.reward if score is not None and failure is None else None,
            value=grade.value,
            weight=criterion.signed_weight,
            model=info.name,
            version=score.version if score is not None else info.version,
            failed=f"{failure.code}: {failure.message}" if failure is not None else None,
            evidence=score.evidence if score is not None else None,
            gate=("veto" if criterion.veto else "must_have") if closes else None,
        )
