"""Constraints on what is marked up in a response: highlights, placeholders, dividers, sections, a title, JSON.

Covers: IFEval's `detectable_format` and `detectable_content` (arXiv 2311.07911), each as strict as the original. Leaves
out: lists that are counted exactly and by a stricter reading of Markdown (`layout`).
"""

import json
import re
from dataclasses import dataclass, field

from assay.system.plurals import counted
from assay_serving.verifiers.constraint import COUNT_OR_ZERO, PHRASE, Constraint, Verdict

_HIGHLIGHT = re.compile(r"\*[^\n*]*\*")
_DOUBLE_HIGHLIGHT = re.compile(r"\*\*[^\n*]*\*\*")
_DIVIDER = re.compile(r"\s?\*\*\*\s?")
_FENCE_STARTS = ("```json", "```Json", "```JSON", "```")


@dataclass(frozen=True)
class HighlightedSections(Constraint):
    """IFEval `detectable_format:number_highlighted_sections`: at least `count` of *this* or **this** on one line."""

    count: int = field(metadata=COUNT_OR_ZERO)

    def judge(self, response: str) -> Verdict:
        single = sum(bool(match.strip("*").strip()) for match in _HIGHLIGHT.findall(response))
        double = sum(bool(match[2:-2].strip()) for match in _DOUBLE_HIGHLIGHT.findall(response))
        number = single + double
        return Verdict(number >= self.count, f"{counted(number, 'highlight')}, at least {self.count} wanted")


@dataclass(frozen=True)
class Placeholders(Constraint):
    """IFEval `detectable_content:number_placeholders`: at least `count` of [this], brackets on one line."""

    count: int = field(metadata=COUNT_OR_ZERO)

    def judge(self, response: str) -> Verdict:
        number = sum(_bracketed(line) for line in response.split("\n"))
        return Verdict(number >= self.count, f"{counted(number, 'placeholder')}, at least {self.count} wanted")


def _bracketed(line: str) -> int:
    """Pairs of brackets, each from a "[" to the first "]" after it. Linear, which a lazy regular expression is not."""
    number, start = 0, 0
    while (opened := line.find("[", start)) >= 0 and (closed := line.find("]", opened)) >= 0:
        number, start = number + 1, closed + 1
    return number


@dataclass(frozen=True)
class MarkdownBullets(Constraint):
    """IFEval `detectable_format:number_bullet_lists`: exactly `count` lines that begin with "-" or one "*"."""

    count: int = field(metadata=COUNT_OR_ZERO)

    def judge(self, response: str) -> Verdict:
        number = sum(_is_bullet(line.lstrip()) for line in response.split("\n"))
        return Verdict(number == self.count, f"{counted(number, 'bullet')}, exactly {self.count} wanted")


def _is_bullet(line: str) -> bool:
    return line.startswith("-") or (line.startswith("*") and line[1:2] not in ("", "*"))


@dataclass(frozen=True)
class DividedParagraphs(Constraint):
    """IFEval `length_constraints:number_paragraphs`: exactly `count` paragraphs with the divider *** between them."""

    count: int = field(metadata=COUNT_OR_ZERO)

    def judge(self, response: str) -> Verdict:
        blocks = [block.strip() for block in _DIVIDER.split(response)]
        if not all(blocks[1:-1]):
            return Verdict(False, "nothing between two dividers")
        number = sum(map(bool, blocks))
        return Verdict(number == self.count, f"{counted(number, 'paragraph')}, exactly {self.count} wanted")


@dataclass(frozen=True)
class MarkedSections(Constraint):
    """IFEval `detectable_format:multiple_sections`: at least `count` times `mark` and a number ("Section 1")."""

    mark: str = field(metadata=PHRASE)
    count: int = field(metadata=COUNT_OR_ZERO)

    def judge(self, response: str) -> Verdict:
        number = sum(1 for _ in re.finditer(re.escape(self.mark) + r"\s?\d+", response))
        return Verdict(number >= self.count, f"{counted(number, 'section')}, at least {self.count} wanted")


@dataclass(frozen=True)
class Title(Constraint):
    """IFEval `detectable_format:title`: a line with text in <<double angular brackets>>."""

    def judge(self, response: str) -> Verdict:
        for line in response.split("\n"):
            opened, closed = line.find("<<"), line.rfind(">>")
            if 0 <= opened < closed - 2 and line[opened : closed + 2].lstrip("<").rstrip(">").strip():
                return Verdict(True, "a title in double angular brackets")
        return Verdict(False, "no title in double angular brackets")


@dataclass(frozen=True)
class JsonText(Constraint):
    """IFEval `detectable_format:json_format`: the whole response is JSON of any kind, code fence or not."""

    def judge(self, response: str) -> Verdict:
        text = response.strip()
        for start in _FENCE_STARTS:
            text = text.removeprefix(start)
        try:
            json.loads(text.removesuffix("```").strip())
        except (ValueError, RecursionError) as error:
            return Verdict(False, f"not JSON: {error}")
        return Verdict(True, "JSON")
