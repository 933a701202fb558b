"""What of the matches counts as contamination, once the whole pool has been read.

A document counts as leaked where the text is equal to it; where the text holds enough of its information (containment);
or, a prompt, where they share a run of n words. Words of a document that more than `common_from` different texts hold
without holding the document are common text, like an opening that many prompts begin with: they are no evidence.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay_pipelines.hygiene.contamination.benchmark_index import BenchmarkIndex
from assay_pipelines.hygiene.contamination.matching import Block, Match

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

FULL = 0.98  #: share of a document's information from which on a text holds the document, and not a part of it
WORDS = 0.6  #: share of a prompt's words that must be held besides its information
#: Least information that the words in common must carry, in words that are as rare as can be: of a prompt that is held
#: in full, of a prompt otherwise, of a response of a benchmark.
LEAST_FULL, LEAST_PART, LEAST_RESPONSE = 1.0, 1.3, 5.0
IN_RESPONSE = 2.0  #: times as much where a response holds a prompt: responses are longer, and say common things
COMMON, COMMON_SHARE = 10, 2e-5  #: texts; and of the pool


def common_from(texts: int) -> int:
    """So many different texts of the pool may hold words of a document without it before the words are common."""
    return max(COMMON, int(COMMON_SHARE * texts))


@dataclass(frozen=True)
class Rule:
    """`containment`: share of a document's information; 0: runs and equal texts alone, common or not."""

    ngram: int
    containment: float


class Commonness:
    """For each word of each document, how many different texts hold it without holding the document."""

    def __init__(self, index: BenchmarkIndex) -> None:
        import numpy as np

        self._index = index
        self._counts = np.zeros(len(index.documents.tokens.hashes), np.int32)
        self._seen: set[tuple[int, int]] = set()

    def add(self, match: Match, text_hash: int) -> None:
        """Count a match; equal texts count once."""
        key = (match.document, text_hash)
        if match.equal or self._index.share(match.document, match.covered) >= FULL or key in self._seen:
            return
        self._seen.add(key)
        start = int(self._index.documents.tokens.offsets[match.document])
        for first, _, size in match.blocks:
            self._counts[start + first : start + first + size] += 1

    def common(self, document: int, limit: int) -> "npt.NDArray[np.bool_]":
        """[words of the document]"""
        offsets = self._index.documents.tokens.offsets
        return self._counts[offsets[document] : offsets[document + 1]] > limit


def is_evidence(
    match: Match,
    index: BenchmarkIndex,
    rule: Rule,
    common: "npt.NDArray[np.bool_] | None" = None,
    *,
    in_response: bool = False,
) -> bool:
    """Whether a match counts. `common`: of the document's words; None: before the pool is read, where none is.
    `in_response`: the text is a response."""
    import numpy as np

    if match.equal:
        return True
    is_prompt = bool(index.documents.is_prompt[match.document])
    if not rule.containment:
        return match.runs > 0
    share = index.share(match.document, match.covered)
    factor = IN_RESPONSE if in_response and is_prompt else 1.0
    if share >= FULL and match.covered >= (LEAST_FULL if is_prompt else LEAST_RESPONSE) * factor:
        return True
    weights = index.weights_of(match.document, edited=True)
    rare = np.ones(len(weights), bool) if common is None else ~common
    held = np.zeros(len(weights), bool)
    for first, _, size in match.blocks:
        held[first : first + size] = True
    if match.runs and is_prompt:
        held[match.run_document : match.run_document + rule.ngram] = True
        if np.count_nonzero(held & rare) > rule.ngram // 2:
            return True
    information, total = float(weights[held & rare].sum()), float(weights[rare].sum())
    least = (LEAST_PART if is_prompt else LEAST_RESPONSE) * factor
    enough_words = np.count_nonzero(held & rare) >= WORDS * np.count_nonzero(rare)
    return bool(enough_words and information >= least and information >= rule.containment * total)


def tier_of(match: Match, index: BenchmarkIndex, rule: Rule) -> str:
    """whole, containment or run: the strongest that the match shows."""
    if match.equal:
        return "whole"
    share = index.share(match.document, match.covered)
    full = rule.containment > 0 and (share >= FULL or not match.runs)
    return "containment" if full else "run"


def span(blocks: tuple[Block, ...]) -> tuple[int, int]:
    """First word in the text, and how many words up to the end of the last block."""
    first, last = blocks[0], blocks[-1]
    return first[1], last[1] + last[2] - first[1]
