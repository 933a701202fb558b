"""How verifiers cut text: examples that a person can count, and properties that hold for any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_serving.verifiers.segmentation import (
    bullets,
    contains_phrase,
    numbered_items,
    paragraphs,
    pieces,
    sentences,
    words,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        (" \n\t ", 0),
        ("... !!! ---", 0),
        ("❤️ 🎉", 0),
        ("one", 1),
        ("  two  words \n", 2),
        ("don't stop", 2),
        ("don’t stop", 2),
        ("a well-known fact", 3),
        ("yes - no", 2),
        ("yes—no", 2),
        ("rock 'n' roll", 3),
        ("3.14 and 1,000", 3),
        ("1,2, 3", 2),
        ("end.Next", 2),
        ("naïve café Ελλάδα", 3),
        ("cafe\u0301 noir", 2),
        ("कुत्ता घर में है", 4),
        ("犬は 好き", 4),
        ("한국어 단어", 2),
        ("snake_case", 2),
        ("**bold** text", 2),
    ],
)
def test_words_are_counted_as_a_person_counts(text: str, count: int) -> None:
    assert len(words(text)) == count


@given(st.text(), st.text())
def test_words_of_two_texts_add_up_across_white_space(left: str, right: str) -> None:
    assert words(f"{left} {right}") == words(left) + words(right)


@given(st.lists(st.from_regex(r"[a-zA-Z0-9]{1,8}", fullmatch=True)), st.sampled_from([" ", "\n", " , ", "... "]))
def test_words_are_found_whatever_stands_between(parts: list[str], between: str) -> None:
    assert words(between.join(parts)) == parts


@given(st.text())
def test_every_word_holds_a_letter_or_digit(text: str) -> None:
    assert all(any(character.isalnum() for character in word) for word in words(text))


@pytest.mark.parametrize(
    ("text", "phrase", "found"),
    [
        ("The dog's bowl", "dog", True),
        ("dog-friendly", "Dog", True),
        ("dogma and dogs", "dog", False),
        ("I don’t know", "don't", True),
        ("in the old town", "the old", True),
        ("the very old", "the old", False),
        ("STRASSE", "straße", True),
        ("", "dog", False),
    ],
)
def test_phrases_are_found_as_whole_words(text: str, phrase: str, found: bool) -> None:
    assert contains_phrase(pieces(text), phrase) is found


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("One.", 1),
        ("One", 1),
        ("One. Two! Three?", 3),
        ("Wait... what?! Yes.", 3),
        ('He said "Go." Then he left.', 2),
        ("Mr. Smith met Dr. Jones, e.g. at J. Doe's.", 1),
        ("He said no. Then he left.", 2),
        ("See No. 7 today.", 1),
        ("It costs 3.14 euros. Cheap.", 2),
        ("A heading\nOne sentence.", 2),
        ("1. First item\n2. Second item", 2),
        ("- one\n- two. three", 3),
        ("今日は。明日も。", 2),
        ("*Bold end.* Next one.", 2),
        ("!!! ...", 0),
        ("Cut off in the mid", 1),
        ("Full. Cut off", 2),
    ],
)
def test_sentences(text: str, count: int) -> None:
    assert len(sentences(text)) == count


@given(st.text())
def test_sentences_hold_all_words_but_the_numbers_of_list_lines(text: str) -> None:
    together = [word for sentence in sentences(text) for word in words(sentence)]
    plain = [word for line in text.splitlines() for word in words(line)]
    assert len(plain) - len(numbered_items(text)) <= len(together) <= len(plain)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("one", 1),
        ("one\ntwo", 1),
        ("one\n\ntwo", 2),
        ("one\r\n \t\r\ntwo", 2),
        ("\n\none\n\n\n\ntwo\n\n", 2),
        ("one\n\n---\n\ntwo", 2),
    ],
)
def test_paragraphs(text: str, count: int) -> None:
    assert len(paragraphs(text)) == count


def test_bullets_are_lines_with_a_marker_a_space_and_a_word() -> None:
    text = "- one\n* two\n  • three\n-four\n**five**\n- \n- - -\n1. six\na - seven"
    assert bullets(text) == ["one", "two", "three"]


def test_numbered_items() -> None:
    assert numbered_items("1. one\n 2) two\n3.three\n2026 was\n4. \n12. twelve") == [
        (1, "one"),
        (2, "two"),
        (12, "twelve"),
    ]
