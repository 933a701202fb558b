"""Rejective filtering of a judge's own judgments, what a meta reward model learns from, pairs of judgments.

Source: DeepSeek-GRM, "Inference-Time Scaling for Generalist Reward Modeling", arXiv 2504.02495. Several judgments of
each row are sampled. Wrong ones are rejected, and rows on which all are right, as too easy. A row without a right one
is asked once more with the right verdict as a hint. What is accepted is fine-tuned on (`train generative-sft`). Every
judgment with whether it was right trains the meta reward model, by binary cross-entropy: `train steps`, of which a
judgment is one step (`--separator` is then a text that no judgment holds). At inference the better half of the
judgments by the meta reward votes.

Pairs of judgments, on which a judge is trained by preference (`train dpo`): of each row the judgment that the meta
judge likes best against the one that it likes least. Source: "Meta-Rewarding Language Models", arXiv 2407.19594 (from
memory), whose meta judge compares judgments two at a time and ranks them by Elo; here it scores each. Ours: only a
judgment with a verdict is preferred, and without a meta judge a right one is preferred to a wrong one.

Covers: sampling, the rules, the files' rows, the vote. Leaves out: training; judging several responses in one question.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay import ids
from assay.conversation.message import response_form
from assay.conversation.parts import TextPart
from assay.domain import Message, Prompt
from assay.errors import BadInputError
from assay.models.spec import Judging, RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_rm_training.generative.judged_rows import JudgedRow
from assay_serving.generative.answers import JudgeSample, Writer
from assay_serving.generative.templates import JudgeFormat, format_named
from assay_serving.scorer import ModelInfo, ScoreItem, Scorer

log = logging.getLogger(__name__)
HINT = "(A hint for you alone, not to be mentioned: the right verdict is {label}.)"


@dataclass(frozen=True)
class SampledJudgments:
    """Of one row. `hinted`: the one with the hint, where no other is right."""

    row: JudgedRow
    question: Prompt
    answers: tuple[JudgeSample, ...]
    hinted: JudgeSample | None = None

    @property
    def right(self) -> list[JudgeSample]:
        return [answer for answer in self.answers if answer.label == self.row.label]

    @property
    def too_easy(self) -> bool:
        return len(self.right) == len(self.answers)

    def accepted(self) -> list[dict[str, Any]]:
        """Rows of `train generative-sft`; equal rationales once."""
        hinted = [self.hinted] if self.hinted is not None and self.hinted.label == self.row.label else []
        row, answers = self.row, [] if self.too_easy else [*self.right, *hinted]
        base = {"prompt": response_form(row.prompt), "responses": [response_form(r) for r in row.responses]}
        base |= {"verdict": row.label} | ({"principle": row.principle} if row.principle is not None else {})
        rationales = dict.fromkeys(answer.reasoning for answer in answers if answer.reasoning.strip())
        return [{**base, "rationale": rationale} for rationale in rationales]

    def trajectories(self) -> list[dict[str, Any]]:
        """Rows of `train steps`: the judgment as one step, labelled right or not."""
        labels = {answer.text: float(answer.label == self.row.label) for answer in self.answers if answer.text.strip()}
        return [{"prompt": self._prompt, "steps": [text], "labels": [label]} for text, label in labels.items()]

    def pairs(self, worth: Sequence[float | None]) -> list[dict[str, Any]]:
        """The row of `train dpo`, if any: of the judgment worth most that has a verdict, and of the one worth least.
        None where they are worth the same. `worth`: of each answer, None where it is not known."""
        with_worth = [(w, answer) for w, answer in zip(worth, self.answers, strict=True) if w is not None]
        readable = [one for one in with_worth if one[1].label is not None]
        if not readable:
            return []
        best, least = max(readable, key=lambda one: one[0]), min(with_worth, key=lambda one: one[0])
        pair = {"prompt": self._prompt, "chosen": best[1].text, "rejected": least[1].text}
        return [pair] if best[0] > least[0] and least[1].text.strip() else []

    @property
    def right_or_wrong(self) -> list[float | None]:
        """What an answer is worth without a meta judge."""
        return [float(answer.label == self.row.label) for answer in self.answers]

    @property
    def _prompt(self) -> Any:
        texts_only = len(self.question) == 1 and isinstance(self.question[0].content, str)
        return self.question[0].text if texts_only else response_form(self.question)


def in_drawn_order(row: JudgedRow) -> JudgedRow:
    """A pair with its responses in the order that its content says. Where the better one always came first, a judge
    that prefers the first would be right on every row, and its verdict alone would tell a right judgment."""
    if len(row.responses) != 2 or not int(ids.digest("".join(row.identity)), 16) % 2:
        return row
    return replace(row, rationale="").swapped() or row


def sample_judgments(
    writer: Writer, spec: RewardModelSpec, rows: Sequence[JudgedRow], *, seed: int = 0, advance: Advance = silent
) -> list[SampledJudgments]:
    """Of every row whose question could be asked; the others are counted in a log warning. `advance` counts rows.
    `spec.judging.samples`: of a row. Raises BadInputError where no question could be asked."""
    assert spec.judging is not None
    form = format_named(spec.judging.format)
    answered = writer.answer([row.question(form) for row in rows], form, spec.judging, seed=seed, on_progress=advance)
    sampled = [
        SampledJudgments(row, row.question(form), tuple(answers))
        for row, answers in zip(rows, answered, strict=True)
        if not isinstance(answers, ScoreFailure)
    ]
    if failed := [one for one in answered if isinstance(one, ScoreFailure)]:
        codes = dict(Counter(one.code for one in failed))
        text = f"{len(failed)} of {len(rows)} rows could not be asked: {codes}, e.g. {failed[0].message}"
        if not sampled:
            raise BadInputError(text)
        log.warning(text)
    failing = {n: one for n, one in enumerate(sampled) if not one.right}
    hints = [_hinted(one.row, form) for one in failing.values()]
    again = writer.answer(hints, form, replace(spec.judging, samples=1), seed=seed + 1, on_progress=silent)
    for (n, one), answers in zip(failing.items(), again, strict=True):
        if not isinstance(answers, ScoreFailure):
            sampled[n] = replace(one, hinted=answers[0])
    return sampled


def meta_rewards(meta: Scorer, sampled: Sequence[SampledJudgments]) -> list[list[float | None]]:
    """Of each judgment of each row; None where it cannot be scored."""
    items = [ScoreItem(one.question, answer.text) for one in sampled for answer in one.answers]
    scores = iter(meta.score(items))
    rewards = ([next(scores) for _ in one.answers] for one in sampled)
    return [[score.reward if isinstance(score, Score) else None for score in row] for row in rewards]


def _hinted(row: JudgedRow, form: JudgeFormat) -> tuple[Message, ...]:
    *before, last = row.question(form)
    hint = f"\n\n{HINT.format(label=row.label)}"
    content = last.content + hint if isinstance(last.content, str) else (*last.content, TextPart(hint))
    return (*before, Message(last.role, content))


@dataclass(frozen=True)
class MetaGuidedWriter:
    """A writer of which only the better half of the answers, by a meta reward model, is left to vote. An answer that it
    cannot score has no vote; where it can score none, that is the question's failure."""

    writer: Writer
    meta: Scorer

    @property
    def info(self) -> ModelInfo:
        return self.writer.info

    def fits(self, prompt: Prompt, judging: Judging) -> bool:
        return self.writer.fits(prompt, judging)

    def answer(
        self, questions: Sequence[Prompt], form: JudgeFormat, judging: Judging, *, seed: int, on_progress: Advance
    ) -> list[list[JudgeSample] | ScoreFailure]:
        """See `Writer.answer`; at most (k + 1) // 2 of k answers, in their order."""
        answered = self.writer.answer(questions, form, judging, seed=seed, on_progress=on_progress)
        scores = iter(
            self.meta.score(
                [
                    ScoreItem(question, answer.text)
                    for question, answers in zip(questions, answered, strict=True)
                    if not isinstance(answers, ScoreFailure)
                    for answer in answers
                ]
            )
        )
        return [
            answers if isinstance(answers, ScoreFailure) else _better(answers, [next(scores) for _ in answers])
            for answers in answered
        ]


def _better(answers: list[JudgeSample], scores: Sequence[ScoreResult]) -> list[JudgeSample] | ScoreFailure:
    rewards = {n: score.reward for n, score in enumerate(scores) if isinstance(score, Score)}
    if not rewards:
        return next(score for score in scores if isinstance(score, ScoreFailure))
    best = sorted(rewards, key=lambda n: -rewards[n])[: (len(answers) + 1) // 2]
    return [answers[n] for n in sorted(best)]
