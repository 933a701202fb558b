"""Letters of other scripts that look like Latin ones: Unicode's confusables (UTS 39), of confusable_homoglyphs."""

from __future__ import annotations

import unicodedata
from functools import cache


@cache
def look_alikes() -> dict[str, str]:
    """Letter that is not ASCII -> the ASCII letter that it looks like, for texts in form NFKC.

    A capital goes the way of its small letter, so that both cases of a word stay one: \u0406, which looks like l, is i.
    """
    from confusable_homoglyphs.confusables import confusables_data

    letters: dict[str, str] = {}
    for letter, alike in confusables_data.items():
        if len(letter) == 1 and not letter.isascii() and letter.isalpha() and _stays(letter):
            latin = [one["c"] for one in alike if len(one["c"]) == 1 and one["c"].isascii() and one["c"].isalpha()]
            if latin:
                letters[letter] = latin[0]
    return {letter: letters.get(letter.lower(), latin) for letter, latin in letters.items()}


def _stays(letter: str) -> bool:
    return unicodedata.normalize("NFKC", letter) == letter
