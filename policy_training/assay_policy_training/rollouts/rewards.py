"""Rewards of rollouts: from a served reward model, from verifiers, and composed of named parts.

Covers: one part per source, missing parts (NaN) with their reason, the version of the model behind every number, the
weighted sum. A failed score is never a number: the row's reward is missing and the row is not trained on. Leaves
out: composing them (`compositions`), shaping by length or by group, sources that see whole groups.

A reward for every step of a response: a process reward model reads the response once, any other scorer each prefix that
ends with a step. Covers: steps cut at a separator, step values as log-odds or as probabilities, a row of which one
prefix failed (it is missing, with the reason). Leaves out: values from continuations (`prefix_values`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay.score import NOT_APPLICABLE, Score, ScoreFailure, ScoreResult
from assay.statistics.logistic import sigmoid
from assay_policy_training.core.prompt import RECORD, PromptItem, record_of
from assay_policy_training.core.steps import SEPARATOR, split_steps, step_prefixes, with_step_values
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.plugins.environments.record import episode_failure
from assay_policy_training.plugins.protocols import RewardComposition, Rewards, RewardSource
from assay_policy_training.rollouts.outage import WaitingScorer, outage_seconds
from assay_serving.rubrics.rubric import RUBRIC, with_rubric
from assay_serving.scorer import READS_LABEL, TAKES_NO_PRINCIPLE, ScoreItem, Scorer
from assay_serving.verifiers import Outcome, shared_pool

VERIFIER = "verifier"
THINKING_END = "</think>"  #: the answer follows it
NO_REWARD = ScoreFailure("no_reward", "the recorded response has no reward", RECORD)
NO_CONSTRAINTS = ScoreFailure("no_verifier", "the prompt states no constraint that a program can check", VERIFIER)


@dataclass(frozen=True)
class AnswerPart:
    """What follows the first `end`. `strict`: a response without it has no answer, else it is all answer.

    Source: arXiv 2509.20357 (RLMT), whose code scores an empty answer where the delimiter is missing; here there is no
    number then.
    """

    end: str = THINKING_END
    strict: bool = True

    def __post_init__(self) -> None:
        if not self.end:
            raise BadInputError("the end of the thinking must not be empty", field="answer.end")

    def of(self, response: str) -> str | None:
        """The answer without white space around it; None = none."""
        thinking, delimiter, answer = response.partition(self.end)
        text = (answer if delimiter or self.strict else thinking).strip()
        return text or None

    def missing(self, model: str) -> ScoreFailure:
        return ScoreFailure("no_answer", f"nothing follows {self.end!r}: only thinking, or none that ends", model)


class ModelReward:
    """S3: a reward model behind any `Scorer`, as a rule the client of a server. One part, named after the model.

    A model that judges by a principle receives the prompt's (`principle` in its row of the prompts' file), which the
    policy does not see; a scalar model does not. A composed or rubric reward also receives the prompt's constraints and
    its `rubric`, as the label, and its `references`. `answer`: the model reads that part of a response only; a response
    without it has no reward.
    """

    def __init__(self, scorer: Scorer, *, name: str | None = None, answer: AnswerPart | None = None) -> None:
        self.scorer, self.answer = scorer, answer
        self.name = name or scorer.info.name

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        kind = self.scorer.info.kind
        texts = [response if self.answer is None else self.answer.of(response) for response in responses]
        pairs = [(item, text) for item, text in zip(items, texts, strict=True) if text is not None]
        results = self.scorer.score([score_item(kind, item, text) for item, text in pairs]) if pairs else []
        if len(results) != len(pairs):
            raise ValueError(f"{self.name} answered {len(results)} of {len(pairs)} items")
        remaining = iter(results)
        return Rewards.of(self.name, [self._without(text) or next(remaining) for text in texts])

    @property
    def concurrent(self) -> bool:
        return isinstance(self.scorer, WaitingScorer)

    def numbers(self) -> dict[str, float]:
        return outage_seconds(self.scorer)

    def _without(self, text: str | None) -> ScoreFailure | None:
        """Why a response without an answer part has no score."""
        return self.answer.missing(self.name) if text is None and self.answer is not None else None


class PartsReward(ModelReward):
    """S3: the parts that the model's score is made of, each under its own name: an ensemble's members, named ratings.

    A part that a row's score lacks (the score failed, a gate was closed) is missing in that row.
    """

    def __init__(self, scorer: Scorer, *, name: str | None = None) -> None:
        super().__init__(scorer, name=name)
        self._names: dict[str, None] = {}  #: of every part so far: a step whose scores all fail has them too

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        """Raises BadInputError for a model whose scores have no parts."""
        rewards = super().score(items, responses)
        scores = [scores.get(self.name) for scores in rewards.scores]
        by_row = [{} if score is None else {part.name: part.value for part in score.parts} for score in scores]
        self._names |= dict.fromkeys(name for row in by_row for name in row)
        if not self._names and any(scores):
            raise BadInputError(f"the scores of {self.name} have no parts", field="reward")
        numbers = {
            name: [math.nan if (number := row.get(name)) is None else number for row in by_row]
            for name in self._names or [self.name]
        }
        parts = {name: torch.tensor(values, dtype=torch.float64) for name, values in numbers.items()}
        return Rewards(parts, rewards.failures, rewards.scores)


class RowNumber:
    """S3: a number that the prompt's row holds under `key`, as a part of that name; missing where it holds none."""

    def __init__(self, key: str) -> None:
        self.key = self.name = key

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        return Rewards.of(self.name, [self._number(item.meta.get(self.key)) for item in items])

    def _number(self, value: Any) -> float | ScoreFailure:
        if isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value):
            return float(value)
        return ScoreFailure("bad_input", f"the prompt's row has no number {self.key!r}", self.name)


def score_item(kind: str, item: PromptItem, response: str) -> ScoreItem:
    """The request to a scorer of this kind for a response to the prompt."""
    principle = None if kind in TAKES_NO_PRINCIPLE else principle_of(item)
    if kind not in READS_LABEL:
        return ScoreItem(item.prompt, response, principle)
    constraints = [constraint.to_dict() for constraint in item.constraints] or None
    label = with_rubric(constraints, item.meta.get(RUBRIC))
    listed = item.meta.get("references")
    texts = listed if isinstance(listed, list) and all(isinstance(text, str) for text in listed) else ()
    return ScoreItem(item.prompt, response, principle, label=label, references=tuple(texts))


def principle_of(item: PromptItem) -> str | None:
    """The principle by which the prompt's responses are judged, where its row has one."""
    principle = item.meta.get("principle")
    return principle if isinstance(principle, str) else None


class VerifierReward:
    """S3: the share of a prompt's constraints that the response meets, 0 to 1.

    Missing where there are none, and where a check came to no verdict (a worker process that hung or crashed).
    """

    name = VERIFIER

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        outcomes = verified(items, responses)
        return Rewards.of(self.name, [o if isinstance(o, ScoreFailure) else o.fraction for o in outcomes])


class RecordedReward:
    """S3: the reward that came with a recorded response; missing where there is none."""

    name = RECORD

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        rewards = [record_of(item).get("reward") for item in items]
        return Rewards.of(self.name, [NO_REWARD if reward is None else float(reward) for reward in rewards])


def verifier_accuracy(items: Sequence[PromptItem], responses: Sequence[str]) -> Tensor:
    """[B] float64 `acc`: 1 where every constraint holds, 0 where one fails, NaN where there is no verdict on one, and
    where the row's episode failed."""
    outcomes = [episode_failure(i) or outcome for i, outcome in zip(items, verified(items, responses), strict=True)]
    passed = [math.nan if isinstance(outcome, ScoreFailure) else float(outcome.passed) for outcome in outcomes]
    return torch.tensor(passed, dtype=torch.float64)


def verified(items: Sequence[PromptItem], responses: Sequence[str]) -> list[Outcome]:
    """Of each row, the verdicts on its prompt's constraints, or why there are none."""
    rows = [row for row, item in enumerate(items) if item.constraints]
    if len(responses) != len(items):
        raise ValueError(f"{len(responses)} responses to {len(items)} prompts")
    checks = [(items[row].constraints, items[row].answer_in(responses[row])) for row in rows]
    outcomes = shared_pool().verify(checks) if checks else []
    by_row = dict(zip(rows, outcomes, strict=True))
    return [by_row.get(row, NO_CONSTRAINTS) for row in range(len(items))]


def gather_rewards(sources: Sequence[RewardSource], items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
    """The parts of all sources. Raises BadInputError when two sources give a part of the same name."""
    return join_parts([source.score(items, responses) for source in sources], len(items))


def join_parts(answers: Sequence[Rewards], rows: int) -> Rewards:
    """Rewards of several sources for the same rows, joined; an infinite one is a failure. Raises BadInputError for two
    parts of the same name."""
    parts: dict[str, Tensor] = {}
    failures: list[tuple[ScoreFailure, ...]] = [() for _ in range(rows)]
    scores: list[Mapping[str, Score]] = [{} for _ in range(rows)]
    for rewards in answers:
        if both := parts.keys() & rewards.parts.keys():
            raise BadInputError(f"two reward sources give the part {sorted(both)[0]!r}", field="reward")
        parts.update({name: part.masked_fill(part.isinf(), torch.nan) for name, part in rewards.parts.items()})
        failures = [a + b for a, b in zip(failures, rewards.failures, strict=True)]
        for name, part in rewards.parts.items():
            for row in part.isinf().nonzero().flatten().tolist():
                failures[row] += (ScoreFailure("not_finite", f"the reward is {part[row]:g}", name),)
        scores = [{**a, **b} for a, b in zip(scores, rewards.scores, strict=True)]
    return Rewards(parts, failures, scores)


def composed(composition: RewardComposition, rewards: Rewards) -> Tensor:
    """[B] float64: the parts as one reward.

    A sum leaves out the parts that do not apply to a row (TRL's None) where another counted part is a number; one that
    failed makes the row's reward missing, as ever.
    """
    parts = {name: part.clone() for name, part in rewards.parts.items()}
    weights = composition.weights or dict.fromkeys(parts, 1.0) if isinstance(composition, Composition) else {}
    for row, failures in enumerate(rewards.failures):
        absent = [f.model for f in failures if f.code == NOT_APPLICABLE and f.model in parts]
        if absent and any(weights.get(name, 0) and not parts[name][row].isnan() for name in parts):
            for name in absent:
                parts[str(name)][row] = 0.0  # in the sum alone: the part itself stays missing
    return composition(parts)


class ProcessReward:
    """S3: the part `name` is the value of the whole response, its score holds the value of every prefix as a part.

    `probability`: sigmoid of the model's reward, as process scores in (0, 1) are meant; else the reward as it is.
    """

    def __init__(
        self, scorer: Scorer, *, name: str = "process", separator: str = SEPARATOR, probability: bool = True
    ) -> None:
        self.scorer, self.name, self.separator, self.probability = scorer, name, separator, probability

    @property
    def concurrent(self) -> bool:
        return isinstance(self.scorer, WaitingScorer)

    def numbers(self) -> dict[str, float]:
        return outage_seconds(self.scorer)

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        values, answers = self._values(items, responses)
        scores: list[dict[str, Score]] = []
        part: list[float] = []
        for row, answer in zip(values, answers, strict=True):
            row = [sigmoid(log_odds) for log_odds in row] if self.probability else row
            part.append(row[-1] if row else math.nan)
            scores.append({self.name: with_step_values(answer, row)} if row and isinstance(answer, Score) else {})
        failures = [(answer,) if isinstance(answer, ScoreFailure) else () for answer in answers]
        return Rewards({self.name: torch.tensor(part, dtype=torch.float64)}, failures, scores)

    def _values(
        self, items: Sequence[PromptItem], responses: Sequence[str]
    ) -> tuple[list[list[float]], list[ScoreResult]]:
        """Per row the values of its steps, none where one is missing; and its last score, or the first failure."""
        kind = self.scorer.info.kind
        steps = [split_steps(response, self.separator) for response in responses]
        if self.scorer.info.stepwise:  # one reading of each response
            with_steps = [
                ScoreItem.of_steps(item.prompt, [step.removesuffix(self.separator) for step in row])
                for item, row in zip(items, steps, strict=True)
            ]
            answers = self.scorer.score(with_steps)
            return [list(a.steps) if isinstance(a, Score) else [] for a in answers], answers
        prefixes = [step_prefixes(response, self.separator) for response in responses]
        results = iter(
            self.scorer.score(
                [score_item(kind, item, text) for item, row in zip(items, prefixes, strict=True) for text in row]
            )
        )
        by_row = [[next(results) for _ in row] for row in prefixes]
        answers = [next((r for r in row if isinstance(r, ScoreFailure)), row[-1]) for row in by_row]
        values = [[r.reward for r in row if isinstance(r, Score)] for row in by_row]
        return [v if isinstance(a, Score) else [] for v, a in zip(values, answers, strict=True)], answers
