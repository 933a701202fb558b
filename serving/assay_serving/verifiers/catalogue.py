"""The registered constraints, and reading one from JSON.

Covers: the registry kind `verifier` and `constraint_from_dict`, with one clear error per wrong field. Leaves out: which
constraints can be combined (`compatibility`).
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from assay.errors import BadInputError
from assay.registry import Kind, Made, remember, unknown
from assay_serving.verifiers.constraint import Constraint

_HERE = "assay_serving.verifiers.constraints"

#: Those of generated prompts, exact and countable by hand.
GENERATED = {
    "max_words": f"{_HERE}.length:MaxWords",
    "min_words": f"{_HERE}.length:MinWords",
    "sentence_count": f"{_HERE}.length:SentenceCount",
    "paragraph_count": f"{_HERE}.length:ParagraphCount",
    "required_words": f"{_HERE}.vocabulary:RequiredWords",
    "forbidden_words": f"{_HERE}.vocabulary:ForbiddenWords",
    "all_lowercase": f"{_HERE}.characters:AllLowercase",
    "all_uppercase": f"{_HERE}.characters:AllUppercase",
    "no_commas": f"{_HERE}.characters:NoCommas",
    "contains_number": f"{_HERE}.characters:ContainsNumber",
    "starts_with": f"{_HERE}.ends:StartsWith",
    "ends_with": f"{_HERE}.ends:EndsWith",
    "quoted": f"{_HERE}.ends:Quoted",
    "bullet_count": f"{_HERE}.layout:BulletCount",
    "numbered_list": f"{_HERE}.layout:NumberedList",
    "json_object": f"{_HERE}.layout:JsonObject",
    "language": f"{_HERE}.detection:AnswerLanguage",
}
#: Those of IFEval that differ from the ones above (`ifeval` maps its instructions to both).
IFEVAL = {
    "number_of_words": f"{_HERE}.relations:NumberOfWords",
    "number_of_sentences": f"{_HERE}.relations:NumberOfSentences",
    "keyword_frequency": f"{_HERE}.relations:KeywordFrequency",
    "letter_frequency": f"{_HERE}.relations:LetterFrequency",
    "capital_word_frequency": f"{_HERE}.relations:CapitalWordFrequency",
    "highlighted_sections": f"{_HERE}.markdown:HighlightedSections",
    "placeholders": f"{_HERE}.markdown:Placeholders",
    "markdown_bullets": f"{_HERE}.markdown:MarkdownBullets",
    "divided_paragraphs": f"{_HERE}.markdown:DividedParagraphs",
    "marked_sections": f"{_HERE}.markdown:MarkedSections",
    "title": f"{_HERE}.markdown:Title",
    "json_text": f"{_HERE}.markdown:JsonText",
    "postscript": f"{_HERE}.passages:Postscript",
    "repeat_prompt": f"{_HERE}.passages:RepeatPrompt",
    "two_responses": f"{_HERE}.passages:TwoResponses",
    "nth_paragraph_first_word": f"{_HERE}.passages:NthParagraphFirstWord",
    "one_of_options": f"{_HERE}.passages:OneOfOptions",
    "exact_end": f"{_HERE}.passages:ExactEnd",
    "wrapped_in_quotes": f"{_HERE}.passages:WrappedInQuotes",
    "keywords_occur": f"{_HERE}.passages:KeywordsOccur",
    "detected_language": f"{_HERE}.detection:DetectedLanguage",
    "english_capital": f"{_HERE}.detection:EnglishCapital",
    "english_lowercase": f"{_HERE}.detection:EnglishLowercase",
}
#: Those of classification (CLS-RL) and of questions.
CLASSES = {
    "exact_class": f"{_HERE}.classes:ExactClass",
    "think_answer": f"{_HERE}.classes:ThinkAnswer",
    "exact_answer": f"{_HERE}.answers:ExactAnswer",
}
#: Those that run untrusted input, in worker processes (`sandbox.worker_pool`).
UNTRUSTED = {
    "math_answer": f"{_HERE}.maths:MathAnswer",
    "regex": f"{_HERE}.patterns:Regex",
    "json_schema": f"{_HERE}.json_schemas:JsonSchema",
    "python_tests": f"{_HERE}.programs:PythonTests",
}

VERIFIERS: Kind[type[Constraint]] = Kind(
    "verifier",
    "A constraint on a response that a program checks: a frozen dataclass, a subclass of Constraint.",
    members=GENERATED | IFEVAL | CLASSES | UNTRUSTED,
    requires=("kind", "judge"),
    option="kind",
)


def constraint_from_dict(payload: Mapping[str, Any], *, allow_code: bool = False) -> Constraint:
    """Inverse of `Constraint.to_dict`. Raises BadInputError for an unknown kind and for missing or wrong fields.

    `allow_code`: the kind may also be `module:Name` or `file.py:Name`. Only for configurations of this machine's user:
    a row of data or a client's label must not name code.
    """
    kind = payload.get("kind")
    if not isinstance(kind, str) or (not allow_code and kind not in VERIFIERS.names()):
        raise unknown("verifier", kind, VERIFIERS.names(), field="kind")
    cls = VERIFIERS.find(kind)
    valid = {field.name for field in fields(cls)}
    settings = {
        name: tuple(value) if isinstance(value, list) else value for name, value in payload.items() if name != "kind"
    }
    if extra := sorted(settings.keys() - valid):
        raise BadInputError(f"a {kind} constraint has no such field", field=extra[0])
    try:
        constraint = cls(**settings)
    except TypeError as error:
        needed = {f.name for f in fields(cls) if f.default is MISSING}
        missing = sorted(needed - settings.keys())
        if not missing:
            raise
        raise BadInputError(f"a {kind} constraint needs it", field=missing[0]) from error
    if kind not in VERIFIERS.members:
        remember(constraint, Made("verifier", kind, settings))
    return constraint
