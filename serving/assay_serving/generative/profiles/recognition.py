"""Replies that could not be read: counted, with an example, and the profile that they look like.

Covers: trying every parser on them, one line for people. Leaves out: parsers (`reply_parser`), what a command does
then.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from assay_serving.generative.answers import JudgeSample
from assay_serving.generative.kind import JUDGE_PROFILES
from assay_serving.generative.templates import FORMATS, JudgeFormat, format_named
from assay_serving.generative.verdict import JudgeVerdict

KEPT = 50  #: replies that parsers are tried on
SHOWN = 160  #: characters of an example


@dataclass
class UnreadReplies:
    """The replies of one judge. `replies`: all; `texts`: of some that could not be read."""

    replies: int = 0
    unread: int = 0
    texts: list[str] = field(default_factory=list)

    def add(self, answers: Iterable[JudgeSample]) -> None:
        for answer in answers:
            self.replies += 1
            if not isinstance(answer.verdict, JudgeVerdict):
                self.add_unread(answer.text)

    def add_unread(self, text: str) -> None:
        self.unread += 1
        if len(self.texts) < KEPT:
            self.texts.append(text)

    @property
    def most(self) -> bool:
        """Whether more than half of the replies could not be read: what the others say is no result."""
        return 2 * self.unread > self.replies

    def line(self, judge: str, form: str, responses: int) -> str:
        """What happened, for people. `form`: the format or profile that they were read by."""
        return (
            f"{self.unread} of {self.replies} replies of {judge} could not be read as {form}, "
            f"e.g. {example(self.texts)!r}; {advice(self.texts, form, responses)}"
        )


def example(texts: Sequence[str]) -> str:
    """The end of the first reply that has one: verdicts stand there."""
    text = next((text.strip() for text in texts if text.strip()), "")
    return text if len(text) <= SHOWN else f"...{text[-SHOWN:]}"


def advice(texts: Sequence[str], form: str, responses: int) -> str:
    """The profiles that the replies look like, as a hint."""
    names = [name for name, _ in recognised(texts, responses) if name != form][:3]
    if not names:
        return "no judge profile reads them either: longer replies (max_tokens) or another model may"
    return f"they look like judge profile {' or '.join(names)} (--judge-profile)"


def recognised(texts: Sequence[str], responses: int | None = None) -> list[tuple[str, int]]:
    """The profiles and formats that read at least half of the replies, with how many: the ones that read most come
    first, of equal ones that with the more specific parser. `responses`: only those on so many."""
    forms = [*FORMATS.values(), *(format_named(name) for name in JUDGE_PROFILES.names())]
    counted = []
    for form in forms:
        if responses is None or form.responses == responses:
            read = sum(isinstance(form.read(text), JudgeVerdict) for text in texts)
            if texts and 2 * read >= len(texts):
                counted.append((form, read))
    counted.sort(key=lambda one: (-one[1], -_specific(one[0]), one[0].name))
    return [(form.name, read) for form, read in counted]


def _specific(form: JudgeFormat) -> int:
    """The more a parser asks for, the higher: by the length of its pattern, and whether the place counts."""
    reads = getattr(form, "reads", None)
    return 1 << 10 if reads is None else len(reads.pattern) + 10 * len("".join(reads.json)) + 10 * bool(reads.window)
