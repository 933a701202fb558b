"""Pointwise generative models as scorers: the reward is the log-odds (or the expected rating) after the reasoning.

Covers: the `Scorer` protocol over any writer, votes over several samples, failures typed and counted. Leaves out:
generating answers (`local`, `remote`), models that compare two responses (`pairwise`).

Yes/No: reward = logp(Yes) - logp(No) at the judgement token (RLBFF, arXiv 2509.21319); over k samples the log-odds of
the mean probability (GenRM, arXiv 2408.15240), or the share of Yes. Rating: the expected value over 1..10; over k
samples their mean, or the mean of the stated numbers. Samples without a verdict are left out of the vote and counted;
where none is left the score is a failure, never a number. A judge profile's reward is the mean of the numbers that its
answers state: scores, or those of its classes; the log-odds of Yes where it says how the verdict is written. A judge of
lists is shown the responses to one prompt together, up to `LISTED`: a reward is then relative to those beside it.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from assay.annotation.votes import PLURALITY, tally
from assay.domain import Message, Prompt, Response
from assay.errors import BadInputError
from assay.models.chat.rendered_text import PolicyTemplate, RenderedTexts
from assay.models.spec import Judging, RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScorePart, ScoreResult
from assay.statistics.logistic import sigmoid
from assay_serving.chat.completion import Completes, Completion
from assay_serving.engines.token import spoken
from assay_serving.generative.answers import JudgeSample, Writer
from assay_serving.generative.templates import POINTWISE, JudgeFormat, format_named
from assay_serving.generative.verdict import JudgeVerdict
from assay_serving.generative.voting import expected_rating, mean_log_odds
from assay_serving.model_config import ModelConfig
from assay_serving.model_reference import known_spec
from assay_serving.scorer import ModelInfo, ScoreItem
from assay_serving.tools.toolbox import toolbox

if TYPE_CHECKING:
    from assay_serving.engines.engine import ModelLoader

YES, NO = "Yes", "No"
EVIDENCE = 400  #: characters of the reasoning that a score shows, its last ones
LISTED = 8  #: responses of one prompt that a judge of lists is shown together
EXAMPLE = 80  #: characters of an unreadable answer that its failure shows


@dataclass(frozen=True, slots=True)
class Examination:
    """The judge's answers about one response. `reward`: None where no answer had a verdict.

    `agreement`: share of the readable answers with the commonest label. `spread`: standard deviation of the reward
    over the readable answers, None for fewer than two.
    """

    answers: tuple[JudgeSample, ...]
    reward: float | None
    agreement: float | None
    spread: float | None
    truncated: bool

    @property
    def faults(self) -> Counter[str]:
        return Counter(answer.fault for answer in self.answers if answer.fault is not None)


class GenerativeScorer:
    """Scores single responses by generating a judgement of each."""

    def __init__(self, writer: Writer, spec: RewardModelSpec, *, seed: int = 0) -> None:
        if spec.judging is None or spec.kind != "generative":
            raise BadInputError(
                f"{writer.info.name} is a reward model of kind {spec.kind}; this engine asks generative ones"
            )
        self.form: JudgeFormat = format_named(spec.judging.format)
        if self.form.responses > 1:
            raise BadInputError(
                f"{writer.info.name} compares two responses and scores none by itself; "
                "it can judge pairs (assay eval-judge), not score"
            )
        self.spec, self.writer, self.seed = spec, writer, seed
        self.judging: Judging = spec.judging
        renderer = getattr(writer, "renderer", None)  # an endpoint keeps its own to itself
        self._texts = RenderedTexts(renderer) if renderer is not None else None

    def expect(self, policies: Sequence[PolicyTemplate]) -> None:
        """Read rendered texts by these policies' templates too."""
        if self._texts is not None:
            self._texts = RenderedTexts(self._texts.renderer, policies)

    @classmethod
    def load(cls, config: ModelConfig, loader: "ModelLoader | None" = None) -> "GenerativeScorer":
        """A local model; errors as of `LocalWriter.load`. `loader` is unused: this model has no parts."""
        from assay_serving.generative.local import LocalWriter

        writer, spec = LocalWriter.load(config, judging=judging_of(config))
        return cls(writer, spec)

    @property
    def info(self) -> ModelInfo:
        return self.writer.info

    @property
    def relative(self) -> bool:
        """Whether a response's score depends on those beside it: a server then scores each request by itself."""
        return self.form.responses != 1

    @property
    def score_identity(self) -> str | None:
        """See `Repeatable`. A local model's random numbers depend on the question, the sample and this scorer's seed
        only, so even sampled judgements repeat; an endpoint may not honour the seed, or change its model."""
        if self.relative or not getattr(self.writer, "repeatable", False):
            return None
        if not toolbox(self.judging.tools).repeatable:
            return None
        return f"seed {self.seed}{self._texts.identity if self._texts is not None else ''}"

    def complete(self, messages: Sequence[Message], **options: Any) -> Completion:
        """See `Completes`. Raises BadInputError where the model is an endpoint, which can be called itself."""
        if not isinstance(self.writer, Completes):
            raise BadInputError(f"{self.info.name} does not continue conversations", field="model")
        return self.writer.complete(messages, **options)

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`. Failure codes: unparsable, and those of the writer."""
        return [
            self._result(item, examination)
            for item, examination in zip(items, self.examine(items, on_progress), strict=True)
        ]

    def examine(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[Examination | ScoreFailure]:
        """The judge's answers about every item, with the reward that they give."""
        read = [spoken(item, self._texts, self.info.name) for item in items]
        results: list[Examination | ScoreFailure | None] = [r if isinstance(r, ScoreFailure) else None for r in read]
        on_progress(sum(result is not None for result in results))
        for size, lists in self._lists(read).items():
            form = self.form if self.form.responses == size else self.form.of(size)
            questions = [self._ask(form, [item for item, _ in listed]) for listed in lists]
            samples = self.writer.answer(
                [prompt for prompt, _ in questions], form, self.judging, seed=self.seed, on_progress=on_progress
            )
            for listed, (_, truncated), answers in zip(lists, questions, samples, strict=True):
                on_progress(len(listed) - 1)
                for position, (_, index) in enumerate(listed):
                    rendered = items[index].rendered
                    if isinstance(answers, ScoreFailure):
                        results[index] = answers
                    elif truncated and rendered is not None and rendered.keep is None:
                        results[index] = ScoreFailure(
                            "too_long", "the text and the question do not fit", self.info.name
                        )
                    else:
                        samples_of_item = [_of_list(answer, position) for answer in answers]
                        results[index] = examine(samples_of_item, form, self.judging, truncated=truncated)
        return [result for result in results if result is not None]

    def _lists(self, read: Sequence[ScoreItem | ScoreFailure]) -> dict[int, list[list[tuple[ScoreItem, int]]]]:
        """What is asked about together, by size: single items; of a judge of lists those of one prompt."""
        alike: dict[Any, list[tuple[ScoreItem, int]]] = {}
        for number, item in enumerate(read):
            if not isinstance(item, ScoreFailure):
                together = number if self.form.responses == 1 else (item.prompt, item.principle, item.label)
                alike.setdefault(together, []).append((item, number))
        lists: dict[int, list[list[tuple[ScoreItem, int]]]] = {}
        for members in alike.values():
            for start in range(0, len(members), LISTED):
                part = members[start : start + LISTED]
                lists.setdefault(len(part), []).append(part)
        return lists

    def _ask(self, form: JudgeFormat, items: Sequence[ScoreItem]) -> tuple[Prompt, bool]:
        first, responses = items[0], [item.response for item in items]
        return fit_question(self.writer, form, self.judging, first.prompt, responses, first.principle, first.label)

    def _result(self, item: ScoreItem, examination: Examination | ScoreFailure) -> ScoreResult:
        if isinstance(examination, ScoreFailure):
            return examination
        if examination.reward is None:
            return unparsable(examination.answers, self.info.name)
        calibration = self.spec.calibration
        verdict = next(answer for answer in examination.answers if answer.label is not None)
        return Score(
            reward=examination.reward,
            model=self.info.name,
            version=self.info.version,
            template_hash=self.info.template_hash,
            tokens=examination.answers[0].tokens_in + sum(answer.tokens_out for answer in examination.answers),
            truncated=examination.truncated,
            probability=calibration.probability(examination.reward)
            if calibration
            else self._probability(examination.reward),
            uncertainty=examination.spread,
            principle=item.principle,
            calibration=calibration.id if calibration else None,
            evidence=verdict.reasoning[-EVIDENCE:] or None,
            parts=tool_parts(examination.answers) if self.judging.tools else (),
        )

    def _probability(self, reward: float) -> float | None:
        """The judge's own P(Yes), as of principle models; None where it gives ratings."""
        if not (self.form.has_final_line and self.form.labels == (YES, NO)):
            return None
        return reward if self.judging.vote == "majority" else sigmoid(reward)


def _of_list(answer: JudgeSample, position: int) -> JudgeSample:
    """The answer as far as it is about the response shown at that position."""
    verdict = answer.verdict
    if not isinstance(verdict, JudgeVerdict) or not verdict.values:
        return answer
    value = verdict.values[position]
    return replace(answer, verdict=replace(verdict, label=f"{value:g}", value=value, values=()))


def tool_parts(answers: Sequence[JudgeSample]) -> tuple[ScorePart, ...]:
    """How many calls the answers made, and how many of them failed."""
    turns = [turn for answer in answers for turn in answer.turns]
    calls, errors = sum(len(turn.results) for turn in turns), sum(turn.errors for turn in turns)
    return ScorePart("tool_calls", value=float(calls)), ScorePart("tool_errors", value=float(errors))


def examine(
    answers: Sequence[JudgeSample], form: JudgeFormat, judging: Judging, *, truncated: bool = False
) -> Examination:
    """The reward of the answers. An answer without log-probs (an endpoint may not return them) has no part in a Yes/No
    vote by probability; a rating then counts as it was stated."""
    stated = judging.vote == "majority"
    yes_no = form.has_final_line and form.labels == (YES, NO)
    readable = [a for a in answers if a.label is not None and (stated or not yes_no or a.logp is not None)]
    if not readable:
        return Examination(tuple(answers), None, None, None, truncated)
    rewards = [_reward(answer, yes_no=yes_no, stated=stated) for answer in readable]
    reward = mean_log_odds(rewards) if yes_no and not stated else statistics.fmean(rewards)
    agreement = tally([answer.label for answer in readable], threshold=PLURALITY).share
    spread = statistics.stdev(rewards) if len(rewards) > 1 else None
    return Examination(tuple(answers), reward, agreement, spread, truncated)


def _reward(answer: JudgeSample, *, yes_no: bool, stated: bool) -> float:
    """The reward of one readable answer: by the stated verdict, or by the labels' log-probs."""
    if yes_no:
        odds = answer.log_odds(YES, NO)
        return float(answer.label == YES) if stated or odds is None else odds
    if answer.value is not None:
        return answer.value
    return float(answer.label or "nan") if stated or answer.logp is None else expected_rating(answer.logp)


def fit_question(
    writer: Writer,
    form: JudgeFormat,
    judging: Judging,
    prompt: Prompt,
    responses: Sequence[Response],
    principle: str | None,
    reference: str | None = None,
) -> tuple[Prompt, bool]:
    """The question about these responses, with the judged conversation's oldest turns dropped while it does not fit,
    and whether any were. One that still does not fit is returned as it is: the writer answers too_long."""
    messages, dropped = list(prompt), False
    while True:
        question = form.ask(tuple(messages), responses, principle, reference)
        first = 1 if messages and messages[0].role == "system" else 0
        later = next((i for i in range(first + 1, len(messages)) if messages[i].role == "user"), None)
        if later is None or writer.fits(question, judging):
            return question, dropped
        messages, dropped = messages[:first] + messages[later:], True


def unparsable(answers: Sequence[JudgeSample], model: str) -> ScoreFailure:
    """The failure of answers without any verdict, with the reasons."""
    faults = Counter(answer.fault or "without log-probs (vote by majority instead)" for answer in answers)
    summary = ", ".join(f"{count} {fault}" for fault, count in faults.most_common())
    end = next((answer.text.strip()[-EXAMPLE:] for answer in answers if answer.text.strip()), "")
    ending = f"; one ends {end!r}" if end else ""
    return ScoreFailure("unparsable", f"no verdict to read in {len(answers)} answers: {summary}{ending}", model)


def judging_of(config: ModelConfig, default: JudgeFormat = POINTWISE) -> Judging | None:
    """The settings of the profile that it names, or those for a plain language model; None for a model with its own."""
    if config.judge_profile is not None:
        return format_named(config.judge_profile).judging
    return default.judging if known_spec(config.reference) is None else None


def with_settings(judging: Judging, **changes: Any) -> Judging:
    """A copy with those of `changes` that are not None. Raises BadInputError as `Judging` does."""
    return replace(judging, **{name: value for name, value in changes.items() if value is not None})
