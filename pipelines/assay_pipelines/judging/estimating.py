"""Estimates of calls, tokens and cost before a judge is asked, for a dry run.

Covers: language models, whose calls cost something. The prompts are those that would be sent; how many tokens this
model makes of a text and writes in an answer is measured on its recorded calls, where there are any, else counted as
GPT-style pre-tokenizers cut word pieces: a short word, a few digits, a run of punctuation or white space is a token;
longer words are several; of scripts without spaces a character is one. Leaves out: other judges, which cost nothing;
what budgets reserve, the most a call can take (`assay_pipelines.llm.endpoint`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.workspace import Workspace
from assay_pipelines.judging.asking import answered
from assay_pipelines.judging.judge import Judge
from assay_pipelines.judging.openai_compatible import TASK, LlmJudge
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.images import image_tokens, text_of
from assay_pipelines.llm.questions import Question, load_questions
from assay_serving.chat.client import ANSWERED

_PIECE = re.compile(r"[A-Za-z]+|\d+|[^\W\d_A-Za-z]+|\s+|[^\w\s]+|_+")
_LETTERS = 9  #: of a word that is one token
_MESSAGE = 4  #: of a chat template, around each message


def typical_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Of a request's messages."""
    return sum(
        text_tokens(text_of(content := message["content"])) + image_tokens(content) + _MESSAGE for message in messages
    )


def text_tokens(text: str) -> int:
    return sum(_piece_tokens(piece) for piece in _PIECE.findall(text))


def _piece_tokens(piece: str) -> int:
    first = piece[0]
    if first.isspace():
        return int(piece != " ")  # a single space belongs to the word after it
    if first.isdigit():
        return math.ceil(len(piece) / 2)
    if first.isascii():
        return math.ceil(len(piece) / (_LETTERS if first.isalpha() else 3))
    return len(piece) if "\u2e80" <= first <= "\uffdc" else math.ceil(len(piece) / 2)


SEEN = 400  #: recorded replies, at most, that the figures of a model are measured on
RENDERED = 40  #: of their comparisons, whose prompts are rendered again to compare their tokens
ANSWER_TOKENS = 96  #: of a model that has not answered yet: the JSON object and two or three sentences


@dataclass(frozen=True, slots=True)
class AskingEstimate:
    """`questions`: not answered yet. `calls`: that no recorded answer spares. `tokens`: in and out, as is to be
    expected. `cost`: of these, None where no prices are given. `measured_on`: recorded replies of this model; 0: tokens
    are those of a typical tokenizer, and of a short answer."""

    judge: str
    questions: int
    calls: int = 0
    tokens: int = 0
    cost: float | None = None
    measured_on: int = 0


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """What calls of a model have taken. `per_typical`: tokens read for each of `typical_tokens`. `written`: tokens of a
    reply. `replies`: for each call, re-asks after an unreadable one included. `seen`: replies these are measured on."""

    per_typical: float
    written: float
    replies: float
    seen: int


def estimate(workspace: Workspace, judge: Judge, questions: Sequence[Question]) -> AskingEstimate:
    """The calls that `ask` would make; writes nothing but the annotator's name."""
    annotator = annotator_of(judge)
    answered_before = answered(workspace, annotator, [q.comparison_id for q in questions])
    todo = list({q.comparison_id: q for q in questions if q.comparison_id not in answered_before}.values())
    if not isinstance(judge, LlmJudge):
        return AskingEstimate(annotator.name, len(todo))
    config = judge.settings.endpoint
    figures = token_figures(workspace, judge, annotator.id)
    typical = {call.key(config): typical_tokens(call.messages) for question in todo for call in judge.calls(question)}
    with workspace.store.unit() as db:
        paid = db.execute(
            """SELECT DISTINCT call_key FROM model_calls JOIN (SELECT unnest($keys) AS call_key) USING (call_key)
               WHERE annotator_id = $annotator AND outcome = $answered AND response IS NOT NULL""",
            {"keys": list(typical), "annotator": annotator.id, "answered": ANSWERED},
        ).fetchall()
    for (key,) in paid:
        del typical[key]
    calls = len(typical)
    read = round(sum(typical.values()) * figures.per_typical * figures.replies)
    written = round(calls * figures.written * figures.replies)
    return AskingEstimate(annotator.name, len(todo), calls, read + written, config.cost(read, written), figures.seen)


def token_figures(workspace: Workspace, judge: LlmJudge, annotator_id: str) -> TokenFigures:
    """Of the newest recorded replies to this judge's prompts."""
    config = judge.settings.endpoint
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT call_key, ref, tokens_in, tokens_out FROM model_calls
               WHERE annotator_id = $annotator AND task = $task AND tokens_in IS NOT NULL AND tokens_out IS NOT NULL
               ORDER BY created_at DESC LIMIT $seen""",
            {"annotator": annotator_id, "task": TASK, "seen": SEEN},
        ).fetchall()
    if not rows:
        return TokenFigures(1.0, min(ANSWER_TOKENS, config.max_tokens), 1.0, 0)
    first: dict[str, int] = {}
    for key, _, tokens_in, _ in rows:  # a re-ask has a longer prompt
        first[key] = min(tokens_in, first.get(key, tokens_in))
    refs = list(dict.fromkeys(ref for _, ref, _, _ in rows))[:RENDERED]
    read = typical = 0
    for question in load_questions(workspace, refs):
        for call in judge.calls(question):
            if (tokens_in := first.get(call.key(config))) is not None:
                read, typical = read + tokens_in, typical + typical_tokens(call.messages)
    written = sum(tokens_out for *_, tokens_out in rows) / len(rows)
    return TokenFigures(read / typical if typical else 1.0, written, len(rows) / len(first), len(rows))
