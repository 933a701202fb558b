"""All kinds of constraints by name, and their JSON form read back.

Covers: the table of kinds and `constraint_from_dict`, with one clear error per wrong field. Leaves out: which
constraints can stand together (`compatibility`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from assay.errors import BadInputError
from assay_serving.verifiers.characters import AllLowercase, AllUppercase, ContainsNumber, NoCommas
from assay_serving.verifiers.constraint import Constraint
from assay_serving.verifiers.detection import DetectedLanguage, EnglishCapital, EnglishLowercase
from assay_serving.verifiers.ends import EndsWith, Quoted, StartsWith
from assay_serving.verifiers.json_schemas import JsonSchema
from assay_serving.verifiers.language import AnswerLanguage
from assay_serving.verifiers.layout import BulletCount, JsonObject, NumberedList
from assay_serving.verifiers.length import MaxWords, MinWords, ParagraphCount, SentenceCount
from assay_serving.verifiers.markdown import (
    DividedParagraphs,
    HighlightedSections,
    JsonText,
    MarkdownBullets,
    MarkedSections,
    Placeholders,
    Title,
)
from assay_serving.verifiers.maths import MathAnswer
from assay_serving.verifiers.passages import (
    ExactEnd,
    KeywordsOccur,
    NthParagraphFirstWord,
    OneOfOptions,
    Postscript,
    RepeatPrompt,
    TwoResponses,
    WrappedInQuotes,
)
from assay_serving.verifiers.patterns import Regex
from assay_serving.verifiers.programs import PythonTests
from assay_serving.verifiers.relations import (
    CapitalWordFrequency,
    KeywordFrequency,
    LetterFrequency,
    NumberOfSentences,
    NumberOfWords,
)
from assay_serving.verifiers.vocabulary import ForbiddenWords, RequiredWords

#: Those that generated prompts ask for, exact and countable by hand.
ASKED_TYPES: tuple[type[Constraint], ...] = (
    MaxWords,
    MinWords,
    SentenceCount,
    ParagraphCount,
    RequiredWords,
    ForbiddenWords,
    AllLowercase,
    AllUppercase,
    NoCommas,
    ContainsNumber,
    StartsWith,
    EndsWith,
    Quoted,
    BulletCount,
    NumberedList,
    JsonObject,
    AnswerLanguage,
)
#: Those of IFEval that differ from the ones above (`ifeval` maps its instructions to both).
IFEVAL_TYPES: tuple[type[Constraint], ...] = (
    NumberOfWords,
    NumberOfSentences,
    KeywordFrequency,
    LetterFrequency,
    CapitalWordFrequency,
    HighlightedSections,
    Placeholders,
    MarkdownBullets,
    DividedParagraphs,
    MarkedSections,
    Title,
    JsonText,
    Postscript,
    RepeatPrompt,
    TwoResponses,
    NthParagraphFirstWord,
    OneOfOptions,
    ExactEnd,
    WrappedInQuotes,
    KeywordsOccur,
    DetectedLanguage,
    EnglishCapital,
    EnglishLowercase,
)
#: Those that run foreign input, in worker processes (`processes`).
FOREIGN_TYPES: tuple[type[Constraint], ...] = (MathAnswer, Regex, JsonSchema, PythonTests)
CONSTRAINT_TYPES = (*ASKED_TYPES, *IFEVAL_TYPES, *FOREIGN_TYPES)
KINDS: dict[str, type[Constraint]] = {constraint.kind: constraint for constraint in CONSTRAINT_TYPES}


def constraint_from_dict(payload: Mapping[str, Any]) -> Constraint:
    """Inverse of `Constraint.to_dict`. Raises BadInputError on an unknown kind and on missing or wrong fields."""
    kind = payload.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadInputError(f"unknown constraint {kind!r}; one of {', '.join(KINDS)}", field="kind")
    wanted = {field.name for field in fields(KINDS[kind])}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in payload.items()}
    del given["kind"]
    if unknown := sorted(given.keys() - wanted):
        raise BadInputError(f"a {kind} constraint has no such field", field=unknown[0])
    try:
        return KINDS[kind](**given)
    except TypeError as error:
        needed = {f.name for f in fields(KINDS[kind]) if f.default is MISSING}
        missing = sorted(needed - given.keys())
        if not missing:
            raise
        raise BadInputError(f"a {kind} constraint needs it", field=missing[0]) from error
