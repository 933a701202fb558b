"""Each kind of constraint on responses with a known answer, the laws between kinds, and the JSON form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay_serving.verifiers import (
    AllLowercase,
    AllUppercase,
    AnswerLanguage,
    BulletCount,
    Constraint,
    ContainsNumber,
    EndsWith,
    ForbiddenWords,
    JsonObject,
    MaxWords,
    MinWords,
    NoCommas,
    NumberedList,
    ParagraphCount,
    Quoted,
    RequiredWords,
    SentenceCount,
    StartsWith,
    constraint_from_dict,
    verify,
)
from assay_serving.verifiers.catalogue import CLASSES, GENERATED, IFEVAL, UNTRUSTED, VERIFIERS
from assay_serving.verifiers.segmentation import words

EXAMPLES: tuple[Constraint, ...] = (
    MaxWords(3),
    MinWords(2),
    SentenceCount(2),
    ParagraphCount(2),
    RequiredWords(("bee", "honey pot")),
    ForbiddenWords(("the",)),
    AllLowercase(),
    AllUppercase(),
    NoCommas(),
    ContainsNumber(2),
    StartsWith("Sure"),
    EndsWith("the end"),
    Quoted(),
    BulletCount(2),
    NumberedList(2),
    JsonObject(("name", "fact")),
    AnswerLanguage("es"),
)

CASES: list[tuple[Constraint, str, bool]] = [
    (MaxWords(3), "one two three", True),
    (MaxWords(3), "one two three four", False),
    (MinWords(2), "one two", True),
    (MinWords(2), "one", False),
    (SentenceCount(2), "One. Two.", True),
    (SentenceCount(2), "One. Two. Th", False),
    (ParagraphCount(2), "one\n\ntwo\n", True),
    (ParagraphCount(2), "one\ntwo", False),
    (RequiredWords(("bee",)), "A Bee, perhaps.", True),
    (RequiredWords(("bee",)), "Bees, perhaps.", False),
    (RequiredWords(("bee", "honey")), "A bee.", False),
    (RequiredWords(("honey pot",)), "A honey\npot", True),
    (ForbiddenWords(("the",)), "Then they bathe.", True),
    (ForbiddenWords(("the",)), "THE end", False),
    (AllLowercase(), "all small, 100 %", True),
    (AllLowercase(), "all small, but I", False),
    (AllLowercase(), "élan Été", False),
    (AllLowercase(), "100", False),
    (AllUppercase(), "ALL CAPS: 100 %", True),
    (AllUppercase(), "ALL CAPs", False),
    (AllUppercase(), "漢字", False),
    (NoCommas(), "no comma here; none.", True),
    (NoCommas(), "1,000", False),
    (NoCommas(), "一、二", False),
    (ContainsNumber(1), "it has 7", True),
    (ContainsNumber(1), "it has seven", False),
    (ContainsNumber(1), "the 3rd", True),
    (ContainsNumber(2), "pi is 3.14", False),
    (ContainsNumber(2), "1. pi is 3.14", True),
    (ContainsNumber(1), "٧ كتب", True),
    (StartsWith("Sure"), "\n sure, why not", True),
    (StartsWith("Sure"), "Surely not", False),
    (StartsWith("Did you"), "Did  you know?", True),
    (StartsWith("I don't"), "I don’t know", True),
    (StartsWith("Oh!"), "Oh! well", True),
    (StartsWith("Sure"), "Su", False),
    (EndsWith("the end"), "And so it was the end.", True),
    (EndsWith("the end"), "The end!\n", True),
    (EndsWith("end"), "the weekend", False),
    (EndsWith("The end."), "and that is the end", True),
    (EndsWith("the end"), "the end is near", False),
    (Quoted(), ' "A quoted answer." ', True),
    (Quoted(), "“Curly.”", True),
    (Quoted(), "« Guillemets »", True),
    (Quoted(), '"One" and "two"', False),
    (Quoted(), '"half', False),
    (Quoted(), '"', False),
    (Quoted(), 'said "this"', False),
    (Quoted(), "'single'", False),
    (BulletCount(2), "Here:\n- one\n- two\nDone.", True),
    (BulletCount(2), "* one\n• two", True),
    (BulletCount(2), "1. one\n2. two", False),
    (BulletCount(2), "- one\n- two\n- three", False),
    (BulletCount(2), "-one\n-two", False),
    (NumberedList(2), "1. one\n2. two", True),
    (NumberedList(2), "1) one\n2) two", True),
    (NumberedList(2), "1. one\n3. two", False),
    (NumberedList(2), "2. one\n3. two", False),
    (NumberedList(2), "one\ntwo", False),
    (NumberedList(1), "1. one\n2. two", False),
    (JsonObject(("name",)), '{"name": "bee"}', True),
    (JsonObject(("name",)), '{"name": 0, "more": null}', True),
    (JsonObject(("name",)), '{"name": false}', True),
    (JsonObject(("name",)), '```json\n{"name": "bee"}\n```', True),
    (JsonObject(("name",)), '```\n{"name": "bee"}\n```\n', True),
    (JsonObject(("name",)), 'Here: {"name": "bee"}', False),
    (JsonObject(("name",)), '```json\n{"name": "bee"}\n```\nDone', False),
    (JsonObject(("name",)), '{"name": ""}', False),
    (JsonObject(("name",)), '{"name": null}', False),
    (JsonObject(("name",)), '{"Name": "bee"}', False),
    (JsonObject(("name",)), '["name"]', False),
    (JsonObject(("name",)), '{"name": "a", "name": "b"}', False),
    (JsonObject(("name",)), '{"name": NaN}', False),
    (JsonObject(("name",)), '{"name": "bee"', False),
    (JsonObject(("name",)), "[" * 100_000 + "1", False),
    (JsonObject(("name",)), '{"name": ' + "9" * 5_000 + "}", False),
    (AnswerLanguage("es"), "El perro es un animal que vive con los humanos.", True),
    (AnswerLanguage("es"), "The dog is an animal that lives with people.", False),
    (AnswerLanguage("es"), "O cachorro é um animal que vive com os humanos.", False),
    (AnswerLanguage("es"), "El perro", False),
    (AnswerLanguage("fr"), "L'eau n'est pas chaude et le chat est là.", True),
    (AnswerLanguage("de"), "Der Hund ist ein Tier und lebt mit den Menschen.", True),
    (AnswerLanguage("it"), "Il cane è un animale che vive con gli uomini.", True),
    (AnswerLanguage("pt"), "O cachorro é um animal que vive com os humanos.", True),
    (AnswerLanguage("en"), "The dog is an animal that lives with people.", True),
    (AnswerLanguage("en"), "Собака живёт с людьми.", False),
    (AnswerLanguage("ru"), "Собака живёт с людьми.", True),
    (AnswerLanguage("el"), "Ο σκύλος ζει με τους ανθρώπους.", True),
    (AnswerLanguage("ja"), "コーヒーは好きです。", True),
    (AnswerLanguage("ja"), "狗是与人一起生活的动物。", False),
    (AnswerLanguage("zh"), "狗是与人一起生活的动物。", True),
    (AnswerLanguage("zh"), "犬はひとと くらす どうぶつです。", False),
    (AnswerLanguage("ko"), "개는 사람과 함께 사는 동물입니다.", True),
    (AnswerLanguage("hi"), "कुत्ता मनुष्य के साथ रहता है।", True),
    (AnswerLanguage("ar"), "الكلب حيوان يعيش مع الناس.", True),
    (AnswerLanguage("he"), "הכלב חי עם אנשים.", True),
]


@pytest.mark.parametrize(("constraint", "response", "passed"), CASES)
def test_verdict(constraint: Constraint, response: str, passed: bool) -> None:
    verdict = constraint.check(response)
    assert verdict.passed is passed, verdict.detail
    assert verdict.detail


def test_every_kind_has_an_example_and_cases_both_ways() -> None:
    assert {example.kind for example in EXAMPLES} == GENERATED.keys()
    for kind in GENERATED:
        assert {passed for constraint, _, passed in CASES if constraint.kind == kind} == {True, False}, kind


@pytest.mark.parametrize("constraint", EXAMPLES)
@pytest.mark.parametrize("response", ["", "  \n\t", "...", "🎉", '""', "-", "{}", "```\n```"])
def test_a_response_without_words_fails_everything(constraint: Constraint, response: str) -> None:
    assert not constraint.check(response).passed


@pytest.mark.parametrize("constraint", EXAMPLES)
@given(response=st.text())
def test_no_text_makes_a_check_raise_and_outer_white_space_never_counts(constraint: Constraint, response: str) -> None:
    assert constraint.check(response).passed is constraint.check(f"\n{response}\n").passed


TEXTS = st.text(alphabet="abI dT.,'-\n1é", min_size=1).filter(lambda text: bool(words(text)))


@given(TEXTS, st.integers(1, 12))
def test_max_words_passes_exactly_where_one_more_at_least_fails(text: str, limit: int) -> None:
    assert MaxWords(limit).check(text).passed is not MinWords(limit + 1).check(text).passed


@given(TEXTS, st.sampled_from(["a", "d", "ab", "a b", "it's"]))
def test_a_word_is_either_used_or_avoided(text: str, word: str) -> None:
    assert RequiredWords((word,)).check(text).passed is not ForbiddenWords((word,)).check(text).passed


@given(TEXTS)
def test_case_constraints_agree_with_the_string_methods(text: str) -> None:
    has_letter = any(character.isalpha() for character in text)
    assert AllLowercase().check(text.lower()).passed is has_letter
    assert AllUppercase().check(text.upper()).passed is has_letter
    assert not (AllLowercase().check(text).passed and AllUppercase().check(text).passed)


@given(TEXTS, st.sampled_from(["Sure", "In short", "The end"]))
def test_a_phrase_put_at_an_end_is_found_there(text: str, phrase: str) -> None:
    assert StartsWith(phrase).check(f"{phrase} {text}").passed
    assert EndsWith(phrase).check(f"{text} {phrase}").passed


@given(st.dictionaries(st.sampled_from(["name", "fact", "x"]), st.text(min_size=1), min_size=1))
def test_any_object_with_the_keys_passes_fenced_or_not(value: dict[str, str]) -> None:
    constraint = JsonObject(tuple(value))
    text = json.dumps(value, indent=1)
    assert constraint.check(text).passed
    assert constraint.check(f"```json\n{text}\n```").passed
    assert not JsonObject((*value, "lacking")).check(text).passed


@given(st.integers(1, 9), st.integers(1, 9))
def test_lists_count_exactly(made: int, wanted: int) -> None:
    bulleted = "\n".join(f"- item {letter}" for letter in "abcdefghi"[:made])
    numbered = "\n".join(f"{n}. item" for n in range(1, made + 1))
    assert BulletCount(wanted).check(bulleted).passed is (made == wanted)
    assert NumberedList(wanted).check(numbered).passed is (made == wanted)


@pytest.mark.parametrize("constraint", EXAMPLES)
def test_json_round_trip(constraint: Constraint) -> None:
    assert constraint_from_dict(json.loads(json.dumps(constraint.to_dict()))) == constraint


@pytest.mark.parametrize("constraint", EXAMPLES)
def test_wordings_are_several_sentences_chosen_by_seed_that_name_the_values(constraint: Constraint) -> None:
    wordings = {constraint.instruction(seed) for seed in range(12)}
    assert len(wordings) >= 2
    assert constraint.instruction(5) == constraint.instruction(5)
    values = [v for name, v in constraint.to_dict().items() if name not in ("kind", "language")]
    for wording in wordings:
        for value in values:
            for part in value if isinstance(value, list) else [value]:
                assert str(part) in wording


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "kind"),
        ({"kind": "max_chars"}, "kind"),
        ({"kind": ["max_words"]}, "kind"),
        ({"kind": "max_words"}, "limit"),
        ({"kind": "max_words", "limit": 0}, "limit"),
        ({"kind": "max_words", "limit": True}, "limit"),
        ({"kind": "max_words", "limit": "9"}, "limit"),
        ({"kind": "max_words", "limit": 9, "unit": "words"}, "unit"),
        ({"kind": "required_words", "phrases": []}, "phrases"),
        ({"kind": "required_words", "phrases": "bee"}, "phrases"),
        ({"kind": "required_words", "phrases": ["bee", "Bee"]}, "phrases"),
        ({"kind": "forbidden_words", "phrases": ["!"]}, "phrases"),
        ({"kind": "starts_with", "phrase": " "}, "phrase"),
        ({"kind": "json_object", "keys": [3]}, "keys"),
        ({"kind": "language", "language": "xx"}, "language"),
    ],
)
def test_wrong_constraints_name_the_field(payload: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInputError, match=f"field '{field}'"):
        constraint_from_dict(payload)


def test_verify_reports_each_constraint_in_order() -> None:
    verification = verify((MaxWords(2), AllLowercase(), NoCommas()), "Too many words")
    assert not verification.passed
    assert verification.fraction == pytest.approx(1 / 3)
    assert [failure.split(":")[0] for failure in verification.failures] == ["max_words", "all_lowercase"]
    assert [entry["passed"] for entry in verification.to_dict()["verdicts"]] == [False, False, True]
    assert verify((NoCommas(),), "fine").passed


def test_verify_needs_a_constraint() -> None:
    with pytest.raises(BadInputError, match="no constraints"):
        verify((), "text")


def test_kinds_are_named_once() -> None:
    assert len(VERIFIERS.members) == len(GENERATED) + len(IFEVAL) + len(CLASSES) + len(UNTRUSTED)
    assert all(VERIFIERS.find(name).kind == name for name in VERIFIERS.members)


PLUGIN = """
from dataclasses import dataclass
from assay_serving.verifiers import Constraint, Verdict

@dataclass(frozen=True)
class Mentions(Constraint):
    kind = "mentions"
    foreign = FOREIGN
    name: str

    def wordings(self):
        return (f"Mention {self.name}.",)

    def judge(self, response):
        return Verdict(self.name in response, self.name)
"""


@pytest.mark.parametrize("foreign", [False, True])
def test_a_constraint_of_a_file_is_found_checked_and_written(tmp_path: Path, foreign: bool) -> None:
    """Also in a worker process, which gets its JSON form."""
    (tmp_path / "mine.py").write_text(PLUGIN.replace("FOREIGN", str(foreign)))
    payload = {"kind": f"{tmp_path / 'mine.py'}:Mentions", "name": "bees"}
    constraint = constraint_from_dict(payload, allow_code=True)
    assert constraint.to_dict() == payload
    assert verify((constraint, NoCommas()), "Of bees.").passed
    assert verify((constraint,), "Of wasps.").failures == ("mentions: bees",)


def test_data_names_no_code(tmp_path: Path) -> None:
    for kind in ("os:system", f"{tmp_path / 'mine.py'}:Mentions", "assay_serving.verifiers:MaxWords"):
        with pytest.raises(BadInputError, match="no verifier is named"):
            constraint_from_dict({"kind": kind})
    with pytest.raises(BadInputError, match="did you mean max_words"):
        constraint_from_dict({"kind": "max_word", "limit": 3})
