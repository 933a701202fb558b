"""Which texts hold which documents of benchmarks: candidates by shared runs and anchors, then word-by-word alignment.

Leaves out: what counts as contamination (`evidence`), reading the store (`check`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay_pipelines.hygiene.contamination.benchmark_index import BenchmarkIndex, low_bits, word_pairs
from assay_pipelines.hygiene.tokens import Tokens, Unit, ngrams, whole_texts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

ANCHOR_SHARE = 0.25  #: of a document's anchors that a text must have
MOST_DOCUMENTS = 3  #: of one benchmark that a text is compared with, besides those it shares a run with

#: Equal words: (first in the document, first in the text, how many).
Block = tuple[int, int, int]


@dataclass(frozen=True)
class Match:
    """Text `text` (a position in the page) and a document. `runs`: of n words in common, the first at `run_text` and
    `run_document`; `equal`: they are equal. `covered`: the weight of the document's words in `blocks`."""

    text: int
    document: int
    runs: int
    run_text: int
    run_document: int
    equal: bool
    blocks: tuple[Block, ...]
    covered: float


def find_matches(tokens: Tokens, index: BenchmarkIndex, ngram: int, unit: Unit, *, contained: bool) -> list[Match]:
    """Every text that shares a run or is equal; with `contained` also those that share enough anchors."""
    import polars as pl

    frames = [_runs(tokens, index, ngram), _equal(tokens, index, ngram)]
    if contained:
        frames.append(_anchored(tokens, index, unit))
    pairs = (
        pl.concat(frames)
        .group_by("text", "document")
        .agg(
            pl.col("runs").sum(),
            pl.col("run_text", "run_document").max(),
            pl.col("equal").any(),
            pl.col("shift").sort_by("runs").last(),
        )
        .sort("text", "document")
    )
    return [_aligned(tokens, index, *row) for row in pairs.iter_rows()]


def _frame(text: Any, document: Any, shift: Any, **columns: Any) -> "pl.DataFrame":
    import numpy as np
    import polars as pl

    default = {"runs": 0, "run_text": -1, "run_document": -1, "equal": False}
    filled = {
        name: pl.Series(name, columns[name] if name in columns else np.full(len(text), value))
        for name, value in default.items()
    }
    keys = {"text": np.asarray(text, np.int64), "document": np.asarray(document, np.int64)}
    frame = pl.DataFrame({**keys, **filled, "shift": np.asarray(shift, np.float64)})
    equal = pl.col("equal").cast(pl.Boolean)
    return frame.with_columns(pl.col("runs", "run_text", "run_document").cast(pl.Int64), equal)


def _runs(tokens: Tokens, index: BenchmarkIndex, ngram: int) -> "pl.DataFrame":
    import numpy as np
    import polars as pl

    grams = ngrams(tokens, ngram)
    likely = np.flatnonzero(index.run_filter[low_bits(grams.hashes)])
    run, posting = index.runs.match(grams.hashes[likely])
    at = likely[run]
    text = np.searchsorted(grams.offsets, at, side="right") - 1
    shared = pl.DataFrame(
        {
            "text": text,
            "document": index.runs.document[posting],
            "at": at - grams.offsets[text],
            "position": index.runs.position[posting],
        }
    )
    first = (
        shared.sort("text", "document", "at")
        .group_by("text", "document", maintain_order=True)
        .agg(pl.col("at", "position").first(), pl.len().alias("runs"))
    )
    at, position = first["at"].to_numpy(), first["position"].to_numpy()
    columns = {"runs": first["runs"], "run_text": at, "run_document": position}
    return _frame(first["text"], first["document"], at - position, **columns)


def _equal(tokens: Tokens, index: BenchmarkIndex, ngram: int) -> "pl.DataFrame":
    import numpy as np

    short = np.flatnonzero((tokens.counts > 0) & (tokens.counts < ngram))
    text, posting = index.equal.match(whole_texts(tokens)[short])
    document = index.equal.document[posting]
    return _frame(short[text], document, np.zeros(len(text)), equal=np.ones(len(text), bool))


def _anchored(tokens: Tokens, index: BenchmarkIndex, unit: Unit) -> "pl.DataFrame":
    import numpy as np
    import polars as pl

    parts = []
    for hashes, start in word_pairs(tokens, unit):
        likely = np.flatnonzero(index.anchor_filter[low_bits(hashes)])
        pair, posting = index.anchors.match(hashes[likely])
        at = start[likely[pair]]
        text = np.searchsorted(tokens.offsets, at, side="right") - 1
        parts.append(
            pl.DataFrame(
                {
                    "text": text,
                    "document": index.anchors.document[posting],
                    "posting": posting,
                    "shift": at - tokens.offsets[text] - index.anchors.position[posting],
                }
            )
        )
    shared = pl.concat(parts).group_by("text", "document").agg(pl.col("posting").n_unique(), pl.col("shift").median())
    document = shared["document"].to_numpy()
    anchors = index.anchors_of[document]
    enough = np.maximum(np.minimum(anchors, 2), np.ceil(ANCHOR_SHARE * anchors))
    close = (
        shared.with_columns(
            benchmark=pl.Series(index.documents.benchmark[document]),
            share=pl.Series(shared["posting"].to_numpy() / np.maximum(anchors, 1)),
        )
        .filter(pl.Series(shared["posting"].to_numpy() >= enough))
        .sort(["share", "document"], descending=[True, False])
        .group_by("text", "benchmark", maintain_order=True)
        .head(MOST_DOCUMENTS)
    )
    return _frame(close["text"], close["document"], close["shift"])


def _aligned(
    tokens: Tokens,
    index: BenchmarkIndex,
    text: int,
    document: int,
    runs: int,
    run_text: int,
    run_document: int,
    equal: bool,
    shift: float,
) -> Match:
    """The longest common subsequence of the document and the part of the text about `shift` words on from it."""
    theirs = _of(index.documents.tokens, document)
    ours = _of(tokens, text)
    if equal:
        total = float(index.total[document])
        return Match(text, document, runs, run_text, run_document, equal, ((0, 0, len(theirs)),), total)
    slack = len(theirs) // 2 + 16
    low = max(0, int(shift) - slack)
    part = ours[low : max(low, int(shift) + len(theirs) + slack)]
    blocks = tuple((d, t + low, size) for d, t, size in common_blocks(theirs.tolist(), part.tolist()))
    weights = index.weights_of(document)
    covered = float(sum(weights[d : d + size].sum() for d, _, size in blocks))
    return Match(text, document, runs, run_text, run_document, equal, blocks, covered)


def common_blocks(document: list[int], text: list[int]) -> list[Block]:
    """Blocks of the longest common subsequence; a single word counts only between others, one word away at most: in a
    long text common words occur in any order."""
    from rapidfuzz.distance import LCSseq

    blocks = [
        (code.src_start, code.dest_start, code.src_end - code.src_start)
        for code in LCSseq.opcodes(document, text)
        if code.tag == "equal"
    ]
    close = []
    for number, (d, t, size) in enumerate(blocks):
        if size == 1:
            near = [blocks[n] for n in (number - 1, number + 1) if 0 <= n < len(blocks)]
            gaps = [_gap((d, t, size), other) for other in near]
            if not any(gap <= 1 and other[2] > 1 for gap, other in zip(gaps, near, strict=True)):
                continue
        close.append((d, t, size))
    return close


def _gap(one: Block, other: Block) -> int:
    first, second = sorted((one, other))
    return max(second[0] - first[0] - first[2], second[1] - first[1] - first[2])


def _of(tokens: Tokens, text: int) -> "npt.NDArray[np.uint64]":
    return tokens.hashes[tokens.offsets[text] : tokens.offsets[text + 1]]
