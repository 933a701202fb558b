"""IFEval's instructions (Zhou et al. 2023, arXiv 2311.07911) as constraints.

Covers: all 25 instruction ids of google-research's `instruction_following_eval`, in the strict reading: a prompt is
followed when every constraint holds of the response as it is. Differences from the original:
keywords are text and never patterns, sentences go by rules instead of NLTK's punkt (`relations`), languages by another
detector (`detection`), commas of all scripts count. Leaves out: the loose reading, the prompts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.errors import BadInputError
from assay_serving.verifiers.constraint import Constraint
from assay_serving.verifiers.constraints.characters import NoCommas
from assay_serving.verifiers.constraints.detection import DetectedLanguage, EnglishCapital, EnglishLowercase
from assay_serving.verifiers.constraints.markdown import (
    DividedParagraphs,
    HighlightedSections,
    JsonText,
    MarkdownBullets,
    MarkedSections,
    Placeholders,
    Title,
)
from assay_serving.verifiers.constraints.passages import (
    ExactEnd,
    KeywordsOccur,
    NthParagraphFirstWord,
    OneOfOptions,
    Postscript,
    RepeatPrompt,
    TwoResponses,
    WrappedInQuotes,
)
from assay_serving.verifiers.constraints.relations import (
    CapitalWordFrequency,
    KeywordFrequency,
    LetterFrequency,
    NumberOfSentences,
    NumberOfWords,
)
from assay_serving.verifiers.constraints.vocabulary import ForbiddenWords

OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")

#: What each instruction becomes, of its arguments. The original draws a missing argument at random: KeyError here.
INSTRUCTIONS: dict[str, Callable[[Mapping[str, Any]], Constraint]] = {
    "change_case:capital_word_frequency": lambda k: CapitalWordFrequency(k["capital_relation"], k["capital_frequency"]),
    "change_case:english_capital": lambda k: EnglishCapital(),
    "change_case:english_lowercase": lambda k: EnglishLowercase(),
    "combination:repeat_prompt": lambda k: RepeatPrompt(k["prompt_to_repeat"]),
    "combination:two_responses": lambda k: TwoResponses(),
    "detectable_content:number_placeholders": lambda k: Placeholders(k["num_placeholders"]),
    "detectable_content:postscript": lambda k: Postscript(k["postscript_marker"].strip()),
    "detectable_format:constrained_response": lambda k: OneOfOptions(OPTIONS),
    "detectable_format:json_format": lambda k: JsonText(),
    "detectable_format:multiple_sections": lambda k: MarkedSections(k["section_spliter"].strip(), k["num_sections"]),
    "detectable_format:number_bullet_lists": lambda k: MarkdownBullets(k["num_bullets"]),
    "detectable_format:number_highlighted_sections": lambda k: HighlightedSections(k["num_highlights"]),
    "detectable_format:title": lambda k: Title(),
    "keywords:existence": lambda k: KeywordsOccur(_distinct(k["keywords"])),
    "keywords:forbidden_words": lambda k: ForbiddenWords(_distinct(k["forbidden_words"])),
    "keywords:frequency": lambda k: KeywordFrequency(k["relation"], k["frequency"], k["keyword"].strip()),
    "keywords:letter_frequency": lambda k: LetterFrequency(k["let_relation"], k["let_frequency"], k["letter"].strip()),
    "language:response_language": lambda k: DetectedLanguage(k["language"]),
    "length_constraints:nth_paragraph_first_word": lambda k: NthParagraphFirstWord(
        k["num_paragraphs"], k["nth_paragraph"], k["first_word"]
    ),
    "length_constraints:number_paragraphs": lambda k: DividedParagraphs(k["num_paragraphs"]),
    "length_constraints:number_sentences": lambda k: NumberOfSentences(k["relation"], k["num_sentences"]),
    "length_constraints:number_words": lambda k: NumberOfWords(k["relation"], k["num_words"]),
    "punctuation:no_comma": lambda k: NoCommas(),
    "startend:end_checker": lambda k: ExactEnd(k["end_phrase"].strip()),
    "startend:quotation": lambda k: WrappedInQuotes(),
}


def ifeval_constraints(
    instruction_id_list: Sequence[str], kwargs: Sequence[Mapping[str, Any]]
) -> tuple[Constraint, ...] | None:
    """The constraints of one IFEval prompt, in order; None where one of its instructions has none.

    `kwargs`: the arguments of each instruction; those that are None count as not given.
    """
    if not instruction_id_list or len(instruction_id_list) != len(kwargs):
        return None
    constraints: list[Constraint] = []
    for name, arguments in zip(instruction_id_list, kwargs, strict=True):
        try:
            constraints.append(INSTRUCTIONS[name](arguments))
        except (KeyError, AttributeError, TypeError, BadInputError):
            return None
    return tuple(constraints)


def _distinct(listed: Sequence[str]) -> tuple[str, ...]:
    """Without those that differ from an earlier one by case only."""
    return tuple({text.casefold(): text for text in reversed(listed)}.values())[::-1]
