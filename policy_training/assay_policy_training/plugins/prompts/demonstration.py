"""A worked example for a set of constraints: an earlier turn that shows a small model what is meant.

Covers: building an answer about a fixed topic that satisfies the constraints, proven by their own verdicts. Leaves
out: prompts (`constrained`). The topic of the examples, umbrellas, is none of the generator's topics.
"""

import json
from collections.abc import Sequence

from assay_serving.verifiers import (
    AllLowercase,
    AllUppercase,
    AnswerLanguage,
    BulletCount,
    Constraint,
    ContainsNumber,
    EndsWith,
    JsonObject,
    MinWords,
    NumberedList,
    ParagraphCount,
    Quoted,
    RequiredWords,
    SentenceCount,
    StartsWith,
    verify,
)

TASK = "Tell me a fact about umbrellas."
LISTING_TASK = "List things that have to do with umbrellas."
_SENTENCES = (
    "Umbrellas keep people dry when it rains.",
    "They fold up small enough to fit into a bag.",
    "A strong wind can turn them inside out.",
    "Many are black but some have bright colors.",
)
_SHORT_SENTENCES = ("Umbrellas stop rain.", "They fold up.", "They shade people.", "Some look bright.")
_ITEMS = ("rain", "a long handle", "a strong wind", "wet streets", "a raincoat")
_IN_LANGUAGE = {
    "es": "Los paraguas protegen a las personas de la lluvia.",
    "fr": "Les parapluies protègent les gens de la pluie et du soleil.",
    "de": "Ein Regenschirm ist bei Regen auf der Straße sehr nützlich.",
}


def demonstrate(constraints: Sequence[Constraint]) -> str | None:
    """An answer about umbrellas that passes every constraint, None when this builder finds none."""
    for sentences in (_SENTENCES, _SHORT_SENTENCES):
        answer = _build({type(constraint): constraint for constraint in constraints}, sentences)
        if verify(constraints, answer).passed:
            return answer
    return None


def _build(by_type: dict[type[Constraint], Constraint], sentences: tuple[str, ...]) -> str:
    """Content first, then its ends, then the form of all of it."""
    words = _added_words(by_type)
    answer = _list_or_json(by_type, words)
    if answer is None:
        answer = _prose(by_type, sentences, words)
    if isinstance(start := by_type.get(StartsWith), StartsWith):
        answer = f"{start.phrase} {answer[0].lower()}{answer[1:]}"
    if isinstance(end := by_type.get(EndsWith), EndsWith):
        answer = f"{answer[:-1]} and {end.phrase}."
    if AllLowercase in by_type:
        answer = answer.lower()
    if AllUppercase in by_type:
        answer = answer.upper()
    return f'"{answer}"' if Quoted in by_type else answer


def _added_words(by_type: dict[type[Constraint], Constraint]) -> list[str]:
    """What has to be worked into the text: required words and numbers."""
    added: list[str] = []
    if isinstance(required := by_type.get(RequiredWords), RequiredWords):
        added += required.phrases
    if isinstance(number := by_type.get(ContainsNumber), ContainsNumber):
        added += [str(value) for value in range(2, 2 + number.minimum)]
    return added


def _list_or_json(by_type: dict[type[Constraint], Constraint], words: list[str]) -> str | None:
    items = (*(f"the {word} of an umbrella" for word in words), *_ITEMS)
    if isinstance(least := by_type.get(MinWords), MinWords):
        items = tuple(f"{item} that goes with an umbrella all day long in bad weather" for item in items[: least.limit])
    if isinstance(bullets := by_type.get(BulletCount), BulletCount):
        return "\n".join(f"- {item}" for item in items[: bullets.count])
    if isinstance(numbered := by_type.get(NumberedList), NumberedList):
        return "\n".join(f"{index}. {item}" for index, item in enumerate(items[: numbered.count], start=1))
    if isinstance(shape := by_type.get(JsonObject), JsonObject):
        return json.dumps({key: " ".join(("Umbrellas keep people dry", *words)) for key in shape.keys})
    return None


def _prose(by_type: dict[type[Constraint], Constraint], sentences: tuple[str, ...], words: list[str]) -> str:
    if isinstance(language := by_type.get(AnswerLanguage), AnswerLanguage):
        return _IN_LANGUAGE[language.language]
    count = 1
    separator = " "
    if isinstance(least := by_type.get(MinWords), MinWords):
        count = min(len(sentences), -(-least.limit // 7))
    if isinstance(paragraphs := by_type.get(ParagraphCount), ParagraphCount):
        count = max(count, paragraphs.count)
        separator = "\n\n" if paragraphs.count > 1 else " "
    if isinstance(exact := by_type.get(SentenceCount), SentenceCount):
        count = exact.count
    chosen = list(sentences[:count])
    if words:
        chosen[0] = f"{chosen[0][:-1]} with {' and '.join(words)}."
    return separator.join(chosen)
