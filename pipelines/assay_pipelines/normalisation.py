"""When two texts count as the same: one definition for cleaning and deduplication, in SQL.

Covers: Unicode form NFC, case, and every kind of white space. Leaves out: near-duplicates (shared word shingles).
"""

from __future__ import annotations

#: White space of Unicode, zero-width space, joiners and byte-order mark included, as a class of RE2.
SPACE = r"[\s\p{Z}\x{85}\x{200B}-\x{200D}\x{2060}\x{FEFF}]"


def same_text(text: str) -> str:
    """SQL: the form in which two texts are compared."""
    return f"trim(regexp_replace(lower(nfc_normalize({text})), '{SPACE}+', ' ', 'g'))"


def blank(text: str) -> str:
    """SQL: whether there is nothing but white space."""
    return f"regexp_full_match({text}, '{SPACE}*')"


def same_prompt(messages: str) -> str:
    """SQL: the form in which two prompts are compared; roles count."""
    turn = f"m.role || chr(31) || {same_text('m.content')}"
    return f"array_to_string(list_transform({messages}, lambda m: {turn}), chr(30))"
