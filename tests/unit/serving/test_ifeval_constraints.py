"""IFEval's instructions as constraints: each kind both ways, the mapping of all 25 ids, GPT-4's published accuracy."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay_serving.verifiers import Constraint, ForbiddenWords, NoCommas, constraint_from_dict, verify
from assay_serving.verifiers.catalogue import IFEVAL
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
from assay_serving.verifiers.ifeval import INSTRUCTIONS, OPTIONS, ifeval_constraints
from assay_serving.verifiers.segmentation import running_sentences

CASES: list[tuple[Constraint, str, bool]] = [
    (NumberOfWords("at least", 3), "don't go", True),
    (NumberOfWords("less than", 3), "don't go", False),
    (NumberOfSentences("at least", 2), "One line\nstill the same sentence. Two.", True),
    (NumberOfSentences("less than", 2), "Dr. Who is here.\n\nTwo", False),
    (NumberOfSentences("less than", 2), "Heading\nDr. Who is here, e.g. now.", True),
    (KeywordFrequency("at least", 2, "war"), "War and wardens", True),
    (KeywordFrequency("less than", 2, "war"), "War and wardens", False),
    (KeywordFrequency("at least", 1, "c++"), "C++ it is", True),
    (LetterFrequency("at least", 3, "!"), "no! no! no!", True),
    (LetterFrequency("less than", 2, "t"), "To the", False),
    (CapitalWordFrequency("at least", 2), "A WELL-KNOWN fact", True),
    (CapitalWordFrequency("less than", 1), "NASA said", False),
    (HighlightedSections(2), "*one* and **two**", True),
    (HighlightedSections(2), "*one* and ** **", False),
    (HighlightedSections(1), "*one\ntwo*", False),
    (Placeholders(2), "[name] of [town]]", True),
    (Placeholders(2), "[name] of [to\nwn]", False),
    (MarkdownBullets(2), "Here:\n* one\n  - two", True),
    (MarkdownBullets(2), "** bold **\n* one\n\n- two\n- three", False),
    (DividedParagraphs(2), "one\n\n***\n\ntwo\n***", True),
    (DividedParagraphs(2), "one\n***\n***\ntwo", False),
    (DividedParagraphs(2), "one\n\ntwo", False),
    (MarkedSections("SECTION", 2), "SECTION 1\nbees\nSECTION 2\nhoney", True),
    (MarkedSections("Section", 2), "Section 1 and section 2", False),
    (Title(), "so\n<<poem of joy>>\nthe poem", True),
    (Title(), "<<poem\nof joy>> << >>", False),
    (JsonText(), '```json\n["a", 1]\n```', True),
    (JsonText(), 'Here: ["a", 1]', False),
    (Postscript("P.P.S"), "Bye.\nP. P.S. one more", True),
    (Postscript("P.S."), "Bye.\nPS one more", False),
    (Postscript("[Note]"), "Bye.\n[note] one more", True),
    (RepeatPrompt("Write a haiku. "), " write a haiku. Here", True),
    (RepeatPrompt("Write a haiku."), "Sure! Write a haiku.", False),
    (TwoResponses(), "one\n******\ntwo", True),
    (TwoResponses(), "one\n******\none", False),
    (TwoResponses(), "one\n******\n\n******\ntwo", False),
    (NthParagraphFirstWord(2, 2, "Bees"), "One.\n\n\"bees' honey", True),
    (NthParagraphFirstWord(2, 2, "bees"), "One.\n\nThe bees", False),
    (NthParagraphFirstWord(2, 2, "bees"), "One.\n\nBees\n\nthree", False),
    (OneOfOptions(OPTIONS), "Well. My answer is no.", True),
    (OneOfOptions(OPTIONS), "my answer is no.", False),
    (ExactEnd("Any other questions?"), '"So. any other questions?"', True),
    (ExactEnd("Any other questions?"), "Any other questions? No", False),
    (WrappedInQuotes(), '"quoted "twice""', True),
    (WrappedInQuotes(), "“quoted”", False),
    (KeywordsOccur(("mom", "Dad")), "moms and dad", True),
    (KeywordsOccur(("mom", "dad")), "mother and dad", False),
    (DetectedLanguage("sw"), "Habari ya asubuhi, leo tunazungumza kuhusu watoto na shule zao nzuri.", True),
    (DetectedLanguage("sw"), "Good morning, today we talk about children and their schools.", False),
    (EnglishCapital(), "THIS IS THE WHOLE ANSWER, AND IT IS IN ENGLISH.", True),
    (EnglishCapital(), "DAS IST DIE GANZE ANTWORT, UND SIE IST AUF DEUTSCH.", False),
    (EnglishCapital(), "This is the whole answer.", False),
    (EnglishLowercase(), "this is the whole answer, and it is in english.", True),
    (EnglishLowercase(), "This is the whole answer.", False),
]
EXAMPLES = tuple({type(constraint): constraint for constraint, _, _ in CASES}.values())


@pytest.mark.parametrize(("constraint", "response", "passed"), CASES)
def test_verdict(constraint: Constraint, response: str, passed: bool) -> None:
    verdict = constraint.check(response)
    assert verdict.passed is passed, verdict.detail
    assert verdict.detail


def test_every_kind_has_cases_both_ways() -> None:
    assert {example.kind for example in EXAMPLES} == IFEVAL.keys()
    for kind in IFEVAL:
        assert {passed for constraint, _, passed in CASES if constraint.kind == kind} == {True, False}, kind


@pytest.mark.parametrize("constraint", EXAMPLES)
def test_json_form_and_silence(constraint: Constraint) -> None:
    assert constraint_from_dict(json.loads(json.dumps(constraint.to_dict()))) == constraint
    assert not constraint.check(" \n...").passed


@pytest.mark.parametrize("constraint", EXAMPLES)
@given(response=st.text(alphabet="aB1 .*-[]<>\"'{}\nP§é", max_size=60))
def test_no_text_makes_a_check_raise(constraint: Constraint, response: str) -> None:
    assert constraint.check(response).detail


@pytest.mark.parametrize("constraint", [Placeholders(1), HighlightedSections(1), Title(), Postscript("P.S.")])
@pytest.mark.parametrize("piece", ["[", "*", "<<", " \n", "p."])
def test_long_runs_of_one_sign_take_no_time(constraint: Constraint, piece: str) -> None:
    constraint.check("a" + piece * 100_000)


def test_running_sentences() -> None:
    assert running_sentences("A heading\nMr. Bee flies. It hums!\n\n- item one\n- item two") == [
        "A heading Mr. Bee flies.",
        "It hums!",
        "item one item two",
    ]


def test_instructions_keep_their_order() -> None:
    found = ifeval_constraints(
        ["punctuation:no_comma", "keywords:forbidden_words", "length_constraints:number_words"],
        [{}, {"forbidden_words": ["Bee", "bee", "wasp"]}, {"relation": "at least", "num_words": 300}],
    )
    assert found == (NoCommas(), ForbiddenWords(("Bee", "wasp")), NumberOfWords("at least", 300))


@pytest.mark.parametrize(
    ("names", "arguments"),
    [
        ([], []),
        (["punctuation:no_comma"], []),
        (["punctuation:no_semicolon"], [{}]),
        (["punctuation:no_comma", "keywords:existence"], [{}, {}]),
        (["language:response_language"], [{"language": "tlh"}]),
        (["startend:end_checker"], [{"end_phrase": None}]),
        (["length_constraints:number_words"], [{"relation": "about", "num_words": 9}]),
    ],
)
def test_what_cannot_be_mapped_is_none(names: list[str], arguments: list[dict[str, Any]]) -> None:
    assert ifeval_constraints(names, arguments) is None


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"kind": "number_of_words", "relation": "about", "count": 3}, "relation"),
        ({"kind": "number_of_words", "relation": "at least", "count": -1}, "count"),
        ({"kind": "letter_frequency", "relation": "at least", "count": 1, "letter": "ab"}, "letter"),
        ({"kind": "nth_paragraph_first_word", "paragraphs": 2, "nth": 3, "first_word": "a"}, "nth"),
        ({"kind": "one_of_options", "options": []}, "options"),
        ({"kind": "detected_language", "language": "xx"}, "language"),
    ],
)
def test_wrong_constraints_name_the_field(payload: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInputError, match=f"field '{field}'"):
        constraint_from_dict(payload)


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        pytest.skip(f"no {path.name} in the shared data")
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def test_gpt4_follows_as_often_as_the_paper_says(shared_data: Path) -> None:
    """GPT-4, strict, as reported: 76.89 % of prompts, 83.57 % of instructions. Here 77.96 % and 84.25 %."""
    rows = _rows(shared_data / "ifeval_prompts.jsonl.gz")
    prompts, texts = [row["meta"] for row in rows], [row["prompt"][0]["content"] for row in rows]
    given = _rows(shared_data / "ifeval_gpt4_responses.jsonl.gz")
    answers = {row["prompt"][0]["content"]: row["responses"][0] for row in given}
    assert {name for meta in prompts for name in meta["instruction_id_list"]} == INSTRUCTIONS.keys()
    found = []
    for meta, text in zip(prompts, texts, strict=True):
        constraints = ifeval_constraints(meta["instruction_id_list"], meta["kwargs"])
        assert constraints is not None, meta
        if text in answers:
            found.append(verify(constraints, answers[text]))
    assert len(found) >= 540
    verdicts = [verdict.passed for verification in found for verdict in verification.verdicts]
    assert sum(v.passed for v in found) / len(found) == pytest.approx(0.7689, abs=0.02)
    assert sum(verdicts) / len(verdicts) == pytest.approx(0.8357, abs=0.015)
