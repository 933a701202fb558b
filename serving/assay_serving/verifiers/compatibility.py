"""Which constraints can be combined for one response.

Covers: pairs that no response, or only a contrived one, can satisfy, and pairs of which one makes the other
redundant. Decides by kinds and values, conservatively: an accepted pair has a natural answer. Leaves out: triples;
a set is compatible when all its pairs are.
"""

from collections.abc import Sequence
from itertools import combinations

from assay_serving.verifiers.constraint import Constraint
from assay_serving.verifiers.constraints.characters import COMMAS, AllLowercase, AllUppercase, ContainsNumber, NoCommas
from assay_serving.verifiers.constraints.detection import AnswerLanguage
from assay_serving.verifiers.constraints.ends import EndsWith, Quoted, StartsWith
from assay_serving.verifiers.constraints.layout import BulletCount, JsonObject, NumberedList
from assay_serving.verifiers.constraints.length import MaxWords, MinWords, ParagraphCount, SentenceCount
from assay_serving.verifiers.constraints.vocabulary import ForbiddenWords, RequiredWords
from assay_serving.verifiers.segmentation import contains_phrase, pieces, sentences, words

_WORDS_PER_SENTENCE = 4  # room that a sentence or list item needs to say something
#: What a JSON object excludes: its braces, quotes, commas and line structure are its own.
_NOT_WITH_JSON = (
    SentenceCount,
    ParagraphCount,
    AllUppercase,
    NoCommas,
    StartsWith,
    EndsWith,
    Quoted,
    BulletCount,
    NumberedList,
    AnswerLanguage,
)
_LISTS = (BulletCount, NumberedList)
#: A list fixes lines, so it cannot be one quoted text or a given number of sentences or paragraphs.
_NOT_WITH_LISTS = (*_LISTS, SentenceCount, ParagraphCount, Quoted)


def conflict(first: Constraint, second: Constraint) -> str | None:
    """Why the two cannot stand together, None when they can. Symmetric."""
    return _one_way(first, second) or _one_way(second, first)


def compatible(constraints: Sequence[Constraint]) -> bool:
    """Whether no two of them conflict."""
    return all(conflict(first, second) is None for first, second in combinations(constraints, 2))


def least_words(constraint: Constraint) -> int:
    """A lower bound on the words of a natural response that satisfies `constraint`."""
    if isinstance(constraint, MinWords):
        return constraint.limit
    if isinstance(constraint, SentenceCount | ParagraphCount | BulletCount | NumberedList):
        return constraint.count * _WORDS_PER_SENTENCE
    if isinstance(constraint, RequiredWords):
        return sum(len(words(phrase)) for phrase in constraint.phrases) + _WORDS_PER_SENTENCE
    if isinstance(constraint, StartsWith | EndsWith):
        return len(words(constraint.phrase)) + _WORDS_PER_SENTENCE
    if isinstance(constraint, JsonObject):
        return len(constraint.keys) * _WORDS_PER_SENTENCE
    if isinstance(constraint, ContainsNumber):
        return constraint.minimum + _WORDS_PER_SENTENCE
    return 1


def fixed_phrases(constraint: Constraint) -> tuple[str, ...]:
    """Text that every satisfying response contains."""
    if isinstance(constraint, RequiredWords):
        return constraint.phrases
    if isinstance(constraint, StartsWith | EndsWith):
        return (constraint.phrase,)
    return constraint.keys if isinstance(constraint, JsonObject) else ()


def _one_way(first: Constraint, second: Constraint) -> str | None:
    if first.kind == second.kind:
        return f"two constraints of kind {first.kind}"
    if isinstance(first, MaxWords) and least_words(second) > first.limit:
        return f"{first.limit} words are too few for {second.kind}"
    if isinstance(first, AllLowercase) and isinstance(second, AllUppercase):
        return "lowercase and uppercase"
    if isinstance(first, JsonObject) and isinstance(second, _NOT_WITH_JSON):
        return f"a JSON object leaves no room for {second.kind}"
    if isinstance(first, AllLowercase) and any(key != key.lower() for key in _json_keys(second)):
        return "JSON keys with capital letters in a lowercase response"
    if isinstance(first, _LISTS) and isinstance(second, _NOT_WITH_LISTS):
        return f"a list leaves no room for {second.kind}"
    if isinstance(first, _LISTS) and isinstance(second, StartsWith | EndsWith):
        return f"{second.kind} has no natural place in a list"
    if isinstance(first, SentenceCount) and isinstance(second, ParagraphCount) and second.count > first.count:
        return f"{second.count} paragraphs need more than {first.count} sentences"
    return _phrases_against(first, second)


def _json_keys(constraint: Constraint) -> tuple[str, ...]:
    return constraint.keys if isinstance(constraint, JsonObject) else ()


def _phrases_against(first: Constraint, second: Constraint) -> str | None:
    """Conflicts between text that `second` fixes and what `first` demands of all text."""
    phrases = fixed_phrases(second)
    if isinstance(first, ForbiddenWords):
        clashing = [f for f in first.phrases if any(contains_phrase(pieces(phrase), f) for phrase in phrases)]
        if clashing:
            return f"{clashing[0]!r} is forbidden and needed by {second.kind}"
    if isinstance(first, NoCommas) and any(comma in phrase for phrase in phrases for comma in COMMAS):
        return f"no commas, and one in the phrase of {second.kind}"
    if isinstance(first, NoCommas) and isinstance(second, RequiredWords) and len(phrases) > 2:
        return "a list of words is hard to write without commas"
    if isinstance(first, AnswerLanguage) and (phrases or isinstance(second, ForbiddenWords)):
        return f"the words of {second.kind} belong to one language"
    if isinstance(first, AnswerLanguage) and isinstance(second, AllLowercase | AllUppercase):
        return "not every language has letter case"
    if isinstance(first, SentenceCount) and any(len(sentences(phrase + " x")) > 1 for phrase in phrases):
        return f"the phrase of {second.kind} is a sentence of its own"
    if isinstance(first, Quoted) and any(mark in phrase for phrase in phrases for mark in '"“”„«»「」'):
        return f"quotation marks inside the phrase of {second.kind}"
    if isinstance(first, Quoted) and isinstance(second, StartsWith):
        return "the response begins with a quotation mark"
    return None
