"""Splitting a response into words, sentences, paragraphs and list items.

Covers: the definitions that constraints count by, simple enough to count by hand. Leaves out: linguistics; each
function states its limits.
"""

import re
import unicodedata

_APOSTROPHES = "'\u2019\u02bc"
_HYPHENS = "-\u2010\u2011"
_INVISIBLE_JOINERS = "\u200c\u200d\u00ad"  # zero-width (non-)joiner, soft hyphen: inside a word in many scripts
_UNSPACED = re.compile(
    "[\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"  # kana, Han
)
_PIECE_BREAK = re.compile(f"[{_HYPHENS}{_APOSTROPHES}]")  # the hyphen first, else it would mean a range
_BULLET = re.compile(r"[ \t]*[-*+•‣◦–][ \t]+(.*)")
_NUMBERED = re.compile(r"[ \t]*(\d{1,3})[.)][ \t]+(.*)")
_SENTENCE_END = re.compile(r"""[.!?…]+["'”’»)\]*_]*(?=\s|$)|[。！？｡]+[”’」』）]*""")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"“])(?:mr|mrs|ms|dr|prof|sr|jr|st|vs|e\.g|i\.e|cf|approx|(?-i:[A-HJ-Z])|(?:[a-z]\.)+[a-z])\.$",
    re.IGNORECASE,
)
# "No." ends a sentence far more often than it abbreviates "number", which is followed by a digit.
_NUMBER_SIGN = re.compile(r"(?:^|\s)(?:no|fig)\.$", re.IGNORECASE)


def _in_word(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character) in ("Mn", "Mc")


def _stands_alone(character: str) -> bool:
    return character.isalnum() and _UNSPACED.match(character) is not None


def words(text: str) -> list[str]:
    """Words in order, NFC, case kept.

    A word is a run of letters, digits and combining marks; an apostrophe or hyphen between two of them belongs
    to it ("don't", "well-known" are one word each), and so does a point or comma between two digits ("3.14",
    "1,000"). Han and kana characters, written without spaces, are one word each, as word processors count them.
    Thai, Lao, Khmer and Burmese are not segmented: a run without spaces is one word.
    """
    text = unicodedata.normalize("NFC", text)
    tokens: list[str] = []
    start: int | None = None
    for index, character in enumerate(text):
        if _stands_alone(character):
            if start is not None:
                tokens.append(text[start:index])
                start = None
            tokens.append(character)
        elif _in_word(character):
            if start is None and character.isalnum():  # a lone combining mark begins no word
                start = index
        elif start is not None and not _joins(text, index):
            tokens.append(text[start:index])
            start = None
    if start is not None:
        tokens.append(text[start:])
    return tokens


def _joins(text: str, index: int) -> bool:
    """Whether the non-word character at `index` holds the characters around it together."""
    if index + 1 >= len(text):
        return False
    before, character, after = text[index - 1], text[index], text[index + 1]
    if _stands_alone(after):
        return False
    if character in _INVISIBLE_JOINERS:
        return _in_word(after)
    if character in _APOSTROPHES or character in _HYPHENS:
        return _in_word(before) and after.isalnum()
    return character in ".," and before.isdigit() and after.isdigit()


def pieces(text: str) -> list[str]:
    """Casefolded words cut again at apostrophes and hyphens: the unit of word search.

    So "dog" is found in "the dog's bowl" and in "dog-friendly", and "don’t" equals "don't".
    """
    return [piece for word in words(text) for piece in _PIECE_BREAK.split(word.casefold()) if piece]


def contains_phrase(text_pieces: list[str], phrase: str) -> bool:
    """Whether the phrase's pieces stand next to each other somewhere in `text_pieces`."""
    phrase_pieces = pieces(phrase)
    last_start = len(text_pieces) - len(phrase_pieces)
    return any(text_pieces[start : start + len(phrase_pieces)] == phrase_pieces for start in range(last_start + 1))


def sentences(text: str) -> list[str]:
    """Sentences in order, each with at least one word.

    A sentence ends at a run of . ! ? … (with closing quotes or brackets) before white space, at an ideographic
    full stop, and at every line break, so that headings and list items are sentences of their own. A list
    marker ("1. ", "- ") ends nothing, and a point after a title, an initial or "e.g." neither; a text cut off
    in the middle counts its unfinished last sentence. Limits: the abbreviations are the common English ones,
    and a sentence that truly ends in one of them or in a lone capital ("... vitamin C. It ...") is joined to the
    next.
    """
    parts: list[str] = []
    for line in text.splitlines():
        body = list_item(line)
        remainder = line if body is None else body
        start = 0
        for end in _SENTENCE_END.finditer(remainder):
            if _abbreviates(remainder[start : end.end()], remainder[end.end() :]):
                continue
            parts.append(remainder[start : end.end()])
            start = end.end()
        parts.append(remainder[start:])
    return [sentence.strip() for sentence in parts if words(sentence)]


def running_sentences(text: str) -> list[str]:
    """Sentences of running text, each with at least one word: as `sentences`, but a line break alone ends none.

    So a heading without a full stop belongs to the sentence after it. A blank line ends a sentence, and list items
    keep their markers out of the count.
    """
    parts: list[str] = []
    for block in re.split(r"\n[^\S\n]*\n", "\n".join(text.splitlines())):
        bodies = [line if (body := list_item(line)) is None else body for line in block.split("\n")]
        parts += sentences(" ".join(bodies))
    return parts


def _abbreviates(so_far: str, following: str) -> bool:
    if not following.strip():
        return False
    if _NUMBER_SIGN.search(so_far):
        return following.lstrip()[0].isdigit()
    return _ABBREVIATION.search(so_far) is not None


def paragraphs(text: str) -> list[str]:
    """Blocks of lines set apart by at least one blank line, each with at least one word."""
    return [block.strip() for block in re.split(r"\n[^\S\n]*\n", "\n".join(text.splitlines())) if words(block)]


def bullets(text: str) -> list[str]:
    """Text of each bullet: a line that begins with - * + • ‣ ◦ or – and a space, and holds a word."""
    items = [match.group(1).strip() for line in text.splitlines() if (match := _BULLET.fullmatch(line))]
    return [item for item in items if words(item)]


def numbered_items(text: str) -> list[tuple[int, str]]:
    """(number, text) of each line that begins with `1.` or `1)` and a space, and holds a word after it."""
    matches = [match for line in text.splitlines() if (match := _NUMBERED.fullmatch(line))]
    return [(int(match.group(1)), match.group(2).strip()) for match in matches if words(match.group(2))]


def list_item(line: str) -> str | None:
    """The text of a bulleted or numbered line without its marker, None for any other line."""
    if match := _BULLET.fullmatch(line):
        return match.group(1)
    if match := _NUMBERED.fullmatch(line):
        return match.group(2)
    return None
