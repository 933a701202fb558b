"""Reading which of two responses a judge prefers out of its own words: "Candidate 2 is better", "[[A]]", "A >> B".

Covers: the sides by number, letter or ordinal, in English; ties of three kinds. Leaves out: JSON answers
(`assay_pipelines.llm.replies`), labels of data sets by name. Words that speak for both sides decide nothing.
"""

import re
from typing import Literal, TypeAlias

#: In the order in which the judge saw the responses.
Verdict: TypeAlias = Literal["first", "second", "tie", "both_good", "both_bad"]

_NOUN = (
    r"(?:candidate|response|answer|assistant|model|option|output|completion|system|reply|side|argument|text|story|"
    r"summary|chatbot|solution)"
)
_SIDE = (
    rf"(?:the\s+)?(?:(?:{_NOUN}\s*[#:(]?\s*(?P<{{0}}after>1|2|a|b|one|two)\)?)|"
    rf"(?:(?P<{{0}}before>first|second|1st|2nd|former|latter)(?:\s+(?:{_NOUN}|one))?)|(?P<{{0}}bare>(?-i:A|B)|[12]))(?!\w)"
)
_DEGREE = (
    r"(?:\s+(?:the|a|an|still|also|clearly|much|far|slightly|somewhat|significantly|marginally|overall|definitely|"
    r"considerably|generally|strongly|bit|lot|little|by far|more)\b)*"
)
_BETTER = (
    r"(?:better|best|preferred|preferable|superior|stronger|the\s+winner|winner|"
    r"more\s+(?:helpful|accurate|convincing))"
)
_WORSE = r"(?:worse|worst|inferior|weaker|the\s+loser|loser)"
_IS = r"\s*(?:is|was|seems|appears(?:\s+to\s+be)?|would\s+be|looks)"
_STATED = re.compile(
    rf"(?<!\w){_SIDE.format('s')}(?:{_IS}{_DEGREE}\s+(?:(?P<better>{_BETTER})|(?P<worse>{_WORSE}))|"
    r"\s+(?:(?P<wins>wins|won)|(?P<loses>loses|lost)))\b",
    re.IGNORECASE,
)
_CHOSEN = re.compile(
    r"\b(?:i\s+(?:would\s+)?(?:strongly\s+|slightly\s+)?(?:prefer|choose|pick|select|favou?r|go\s+with|vote\s+for)|"
    r"(?:winner|verdict|preference|preferred|choice|decision|final\s+answer|better(?:\s+(?:one|response|answer))?|"
    rf"best(?:\s+(?:one|response|answer))?)\s*(?:is|=|:))\s*[:=]?\s*{_SIDE.format('c')}",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"\[\[\s*(?P<code>A|B|C|1|2|tie)\s*\]\]|"
    r"(?<!\w)(?P<left>A|B)\s*(?P<sign>>{1,3}|<{1,3}|={1,2}|≈)\s*(?P<right>A|B)(?!\w)"
)
_ALONE = re.compile(rf"{_SIDE.format('a')}\W*", re.IGNORECASE)
_BOTH_BAD = re.compile(
    r"\bboth(?:\s+\w+){0,2}\s+(?:bad|poor|wrong|incorrect|unacceptable)\b|"
    r"\bneither\b[^.]*\b(?:good|acceptable|correct)\b",
    re.IGNORECASE,
)
_BOTH_GOOD = re.compile(
    r"\bboth(?:\s+\w+){0,3}\s+(?:equally\s+)?(?:good|great|excellent|correct|acceptable)\b", re.IGNORECASE
)
_TIE = re.compile(
    r"\b(?:it(?:'s|\s+is)\s+a\s+(?:tie|draw)|(?:is|a|verdict:?|winner:?)\s+tie\b|tied\b|equally\s+(?:good|strong|helpful)|"
    r"equivalent|no\s+(?:clear\s+)?(?:preference|winner|difference)|neither\b[^.]*\bbetter|same\s+quality)|"
    r"^\W*(?:tie|draw|equal)\W*$",
    re.IGNORECASE,
)
_FIRST = frozenset({"1", "a", "one", "first", "1st", "former"})


def verdict_of_wording(text: str) -> Verdict | None:
    """What the words say; None where they say nothing, or more than one thing."""
    plain = re.sub(r"[*_`\"“”]+", "", text).strip()
    if (short_answer := _ALONE.fullmatch(plain)) is not None:
        return _side(short_answer, "a")
    verdicts: set[Verdict] = {verdict for match in _CODE.finditer(plain) if (verdict := _coded(match)) is not None}
    for match in _STATED.finditer(plain):
        side = _side(match, "s")
        if "not" in match[0].lower().split():
            return None
        verdicts.add(_other(side) if match["worse"] or match["loses"] else side)
    verdicts |= {_side(match, "c") for match in _CHOSEN.finditer(plain)}
    if not verdicts:
        if _BOTH_BAD.search(plain):
            return "both_bad"
        if _TIE.search(plain):
            return "tie"
        return "both_good" if _BOTH_GOOD.search(plain) else None
    return verdicts.pop() if len(verdicts) == 1 else None


def _coded(match: re.Match[str]) -> Verdict | None:
    if (code := match["code"]) is not None:
        return "tie" if code in ("C", "tie") else "first" if code in "A1" else "second"
    if match["left"] == match["right"]:
        return None
    if match["sign"][0] in "=≈":
        return "tie"
    return "first" if (match["left"] == "A") == (match["sign"][0] == ">") else "second"


def _side(match: re.Match[str], prefix: str) -> Literal["first", "second"]:
    word = next(filter(None, (match[f"{prefix}{where}"] for where in ("after", "before", "bare")))).lower()
    return "first" if word in _FIRST else "second"


def _other(side: Verdict) -> Verdict:
    return "second" if side == "first" else "first"
