"""A baseline extractor without a model: rules over the words of a reason, from `lexicon.yaml` or a user's file.

The evidence is the clause itself. It misses principles that are not in the lexicon and misreads irony; it is the
baseline that a model should beat.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from assay.errors import BadInputError
from assay_pipelines.principles.extraction import (
    INTRODUCTION,
    ExtractedPrinciple,
    ExtractorOptions,
    Feedback,
    Fulfilment,
    Reading,
)

_CLAUSE = re.compile(
    r"[.;!?\n]+\s*|,?\s*\b(?:but|while|whereas|however|although|though)\b\s*|,\s+(?=(?:and\s+)?(?:a|arg\w*\s*a?)\s?[12]\b)",
    re.IGNORECASE,
)
_FIRST = re.compile(
    r"\b(?:a|arg(?:ument)?s?\.?\s*a?|response|candidate|answer|option)\s?#?1\b|\bfirst\b|\bformer\b", re.IGNORECASE
)
_SECOND = re.compile(
    r"\b(?:a|arg(?:ument)?s?\.?\s*a?|response|candidate|answer|option)\s?#?2\b|\bsecond\b|\blatter\b", re.IGNORECASE
)
_BETTER = re.compile(r"\bmore convincing argument\b|\b(?:better|preferred) (?:response|argument|one)\b", re.IGNORECASE)
_WORSE = re.compile(r"\bless convincing argument\b|\b(?:worse|other) (?:response|argument|one)\b", re.IGNORECASE)
_BOTH = re.compile(r"\bboth\b|\bneither\b|\bequal(?:ly)?\b|\beach\b", re.IGNORECASE)
_NOT = re.compile(
    r"(?:\bnot|n't|\bno|\bnever|\bwithout|\black(?:s|ed|ing)?|\bfail(?:s|ed)?|\bneither|\bnor|\bless|\bdoes ?nt|"
    r"\bhardly|\bfew(?:er)?|\blittle|\bnone|\bmissing|\binstead of)\b(?:\W+\w+){0,3}\W*$",
    re.IGNORECASE,
)
_SOMEWHAT = re.compile(r"\b(?:somewhat|partially|partly|kind of|sort of|to some extent|mostly)\b", re.IGNORECASE)


@dataclass(frozen=True)
class LexiconRule:
    principle: str
    has: re.Pattern[str] | None
    lacks: re.Pattern[str] | None


class LexiconExtractor:
    """Extracts principles by rules. `path`: a lexicon of the user in place of the shipped one."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises BadInputError for a file that is not such a lexicon."""
        shipped = resources.files("assay_pipelines.principles") / "lexicon.yaml"
        try:
            text = path.read_text(encoding="utf-8") if path else shipped.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"cannot be read: {error}", file=path) from error
        self._rules = _rules(text, path)
        source = Path(__file__).read_text(encoding="utf-8")  # the code determines the answers too
        digest = hashlib.sha256((source + text).encode()).hexdigest()
        self.name = f"lexicon@{digest[:8]}"
        self.page = 8_192
        self.config: Mapping[str, Any] = {"rules": len(self._rules), "digest": digest[:16]}

    def read(self, feedback: Sequence[Feedback], run_id: str | None) -> tuple[list[Reading], str | None]:
        """As `PrincipleExtractor`. No text fails."""
        return [self.items(text.content) for text in feedback], None

    def items(self, content: str) -> tuple[ExtractedPrinciple, ...]:
        """At most one item a principle and answer, in the order of the text."""
        match = INTRODUCTION.match(content)
        which, preferred = (match["which"], match["preferred"]) if match else (None, None)
        text = content[match.end() :] if match else content
        by_answer: dict[tuple[str, Fulfilment], ExtractedPrinciple] = {}
        for clause in _CLAUSE.split(text):
            words = clause.strip(" ,:-\"'")
            about = _about(words, which, preferred)
            if not words or about is None:
                continue
            for rule in self._rules:
                answer = _answer(rule, words)
                if answer is None:
                    continue
                if about == "the compared one" and answer in ("yes", "no"):
                    answer = "no" if answer == "yes" else "yes"
                if about == "nobody" and (answer == "no") != (preferred == "the other one"):
                    continue  # where neither is named, praise is for the preferred one and blame for the other
                by_answer.setdefault((rule.principle, answer), ExtractedPrinciple(rule.principle, answer, words))
        return tuple(by_answer.values())


def lexicon_extractor(options: ExtractorOptions) -> LexiconExtractor:
    """The registry's extractor `lexicon`."""
    return LexiconExtractor(options.lexicon)


def _about(clause: str, which: str | None, preferred: str | None) -> str | None:
    """Whether a clause is about this response: `this`, `the compared one` (it stands behind "than"), `nobody` (neither
    of the two is named), or None: not."""
    if preferred is None:
        return "this"
    ours = theirs = None
    if which is not None:
        first, second = _FIRST.search(clause), _SECOND.search(clause)
        ours, theirs = (first, second) if which == "first" else (second, first)
    if preferred != "neither":
        better, worse = _BETTER.search(clause), _WORSE.search(clause)
        mine, other = (better, worse) if preferred == "this one" else (worse, better)
        ours, theirs = ours or mine, theirs or other
    if which is None and (_FIRST.search(clause) or _SECOND.search(clause)):
        return None  # it names one of the two, and which is unknown
    if ours and theirs:
        if _BOTH.search(clause):
            return "this"
        than = re.search(r"\bthan\b", clause, re.IGNORECASE)
        if than is None:
            return "this" if ours.start() < theirs.start() else None
        return "this" if ours.start() < than.start() else "the compared one"
    if ours:
        return "this"
    if theirs:
        return None
    return "this" if preferred == "neither" else "nobody"  # a reason for a tie is about both


def _answer(rule: LexiconRule, clause: str) -> Fulfilment | None:
    for pattern, plain, turned in ((rule.lacks, "no", "yes"), (rule.has, "yes", "no")):
        if pattern is None:
            continue
        match = pattern.search(clause)
        if match is None:
            continue
        if _SOMEWHAT.search(clause):
            return "partially"
        answer: Fulfilment = turned if _NOT.search(clause[: match.start()]) else plain  # type: ignore[assignment]
        return answer
    return None


def _rules(text: str, path: Path | None) -> list[LexiconRule]:
    import yaml

    try:
        loaded = yaml.safe_load(text)
        if not isinstance(loaded, dict) or not loaded:
            raise BadInputError("is not a lexicon: principle -> has, lacks", file=path)
        return [
            LexiconRule(" ".join(str(name).split()), _pattern(words.get("has")), _pattern(words.get("lacks")))
            for name, words in loaded.items()
        ]
    except (yaml.YAMLError, re.error, AttributeError, TypeError) as error:
        raise BadInputError(f"is not a lexicon: {' '.join(str(error).split())[:200]}", file=path) from error


def _pattern(words: str | None) -> re.Pattern[str] | None:
    """Of expressions set apart by " | "."""
    if words is None:
        return None
    listed = "|".join(f"(?:{word.strip()})" for word in words.split(" | "))
    return re.compile(rf"(?<!\w)(?:{listed})(?!\w)", re.IGNORECASE)
