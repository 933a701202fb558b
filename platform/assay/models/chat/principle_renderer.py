"""The question that a principle reward model is asked, as tokens up to where its one-word answer comes.

Covers: the frozen wording, the chat [prompt, response, question], where the answer stands and which tokens are Yes and
No there. Training, evaluation and serving all call it, so that they cannot differ. Leaves out: the forward pass, and
the reward's arithmetic (`assay.models.heads`).

The place of the answer is found from the tokens, not assumed: the conversation is rendered as if the assistant had
answered Yes, and again with No; what both begin with is the input, and the two tokens that follow it are the answers.
So a template that puts a blank line after its header, a space before the answer or an empty thinking block gives the
right position and the right token ids (Yes and a Yes with a leading space are different tokens).

Method: RLBFF's Flexible Principles ScalarRM (arXiv 2509.21319, read from notes and the released model's card); the
wording is our own, as the paper's is not public. The principle comes last, so that several principles on one response
share everything before it.
"""

import hashlib
from dataclasses import dataclass, replace

from assay.domain import Message, Prompt, Response
from assay.errors import BadInputError
from assay.models.chat.renderer import Encoded, Renderer

#: Never edit: a model is trained for one wording, and its checkpoint names it. A better one gets the next number.
QUESTION_1 = (
    "Look only at the last response of the assistant above. Does it satisfy the principle stated below? "
    "Judge by this principle alone and answer only Yes or No.\n\nPrinciple: {principle}"
)
QUESTION = QUESTION_1
_SLOT = "{principle}"
_PROBE = Message("user", "probe")


@dataclass(frozen=True, slots=True)
class AnswerTokens:
    """Token ids of the two answers where the template lets the assistant begin, and how many tokens such a turn adds
    (`tail`: the answer, the end of the turn)."""

    yes: int
    no: int
    tail: int


class PrincipleRenderer:
    """Turns (prompt, response, principle) into token ids whose next token is the answer.

    `question`: the wording, with `{principle}` once. Raises BadInputError for another wording, and for a tokenizer
    under which Yes or No is not one token at that place.
    """

    def __init__(self, renderer: Renderer, question: str = QUESTION) -> None:
        if question.count(_SLOT) != 1:
            raise BadInputError(f"must name {_SLOT} exactly once: {question!r}", field="question")
        self.renderer = renderer
        self.question = question
        self.answers = _answer_tokens(renderer, self._after("probe", "Yes"), self._after("probe", "No"))

    @property
    def template_hash(self) -> str:
        """Identity of the tokens: the chat template's and the question's."""
        return hashlib.sha256(f"{self.renderer.template_hash}\x1f{self.question}".encode()).hexdigest()[:16]

    @property
    def max_length(self) -> int:
        return self.renderer.max_length

    def encode(self, prompt: Prompt, response: Response, principle: str) -> Encoded:
        """Token ids up to the answer, cut to `max_length` from the conversation's beginning; neither the response nor
        the question is ever cut. `ids[response_start:]` begins with the response.

        Raises BadInputError for an empty principle and for what the chat template refuses.
        """
        if not principle.strip():
            raise BadInputError("is empty", field="principle")
        encoded = self.renderer.encode(prompt, response, after=self._after(principle, "Yes"))
        end = len(encoded.ids) - self.answers.tail
        if end < 1 or encoded.ids[end] != self.answers.yes:
            raise BadInputError("the chat template puts the answer elsewhere for this conversation", field="prompt")
        return replace(encoded, ids=encoded.ids[:end])

    def _after(self, principle: str, answer: str) -> tuple[Message, Message]:
        question = self.question.replace(_SLOT, " ".join(principle.split()))
        return Message("user", question), Message("assistant", answer)


def _answer_tokens(renderer: Renderer, yes: tuple[Message, Message], no: tuple[Message, Message]) -> AnswerTokens:
    room = Renderer(renderer.tokenizer, max_length=1 << 30, chat=renderer.chat)
    first, second = (room.encode((_PROBE,), "probe", after=turns).ids for turns in (yes, no))
    position = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    if position is None or first[position + 1 :] != second[position + 1 :]:
        raise _not_one_token(renderer)
    for token, answer in ((first[position], "Yes"), (second[position], "No")):
        if str(renderer.tokenizer.decode([token])).strip() != answer:
            raise _not_one_token(renderer)
    return AnswerTokens(first[position], second[position], len(first) - position)


def _not_one_token(renderer: Renderer) -> BadInputError:
    lengths = {
        answer: len(renderer.tokenizer(answer, add_special_tokens=False)["input_ids"]) for answer in ("Yes", "No")
    }
    return BadInputError(
        f"the tokenizer of {renderer.tokenizer.name_or_path} writes Yes in {lengths['Yes']} and No in {lengths['No']} "
        "tokens; a principle model reads its reward from one token each"
    )
