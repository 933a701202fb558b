"""The normal form in which texts are compared, in SQL, for cleaning and deduplication.

Covers: Unicode form NFC, case, and every kind of white space. Leaves out: near-duplicates (shared word shingles).
"""

from __future__ import annotations

#: White space of Unicode but the plain space; zero-width space, joiners and byte-order mark included. For RE2.
_ODD = r"\t\n\v\f\r\x{85}\x{A0}\x{1680}\x{2000}-\x{200D}\x{2028}\x{2029}\x{202F}\x{205F}\x{2060}\x{3000}\x{FEFF}"
SPACE = f"[ {_ODD}]"


def same_text(text: str) -> str:
    """SQL: the form in which two texts are compared."""
    # single plain spaces, the usual case, do not match: several times faster than replacing each by itself
    return f"trim(regexp_replace(lower(nfc_normalize({text})), '{SPACE}{{2,}}|[{_ODD}]', ' ', 'g'))"


def blank(text: str) -> str:
    """SQL: whether the text is empty or white space."""
    return f"regexp_full_match({text}, '{SPACE}*')"


def same_prompt(messages: str) -> str:
    """SQL: the form in which two prompts are compared; roles count."""
    turn = f"m.role || chr(31) || {same_text('m.content')}"
    return f"array_to_string(list_transform({messages}, lambda m: {turn}), chr(30))"
