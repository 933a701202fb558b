"""The texts of benchmarks, prepared for matching: hashes of runs and of equal texts, word weights, anchors.

A document is one prompt or one response of a benchmark. Its words weigh by how rare they are in the pool (inverse
document frequency, scaled to at most 1). Its anchors are pairs of words, adjacent or with one word between, that are
rare in the pool and occur in few documents: what a text must share to be compared with the document at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.store.database import Connection
from assay_pipelines.hygiene.tokens import Tokens, Unit, ngrams, normalised, tokenise, whole_texts, words_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl
    import pyarrow as pa

    from assay_pipelines.hygiene.tokens import Hashes, Offsets

BITS = 24  #: of the filters before a look-up
ANCHORS = 32  #: of a document at most, spread over it
SHARED_BY = 8  #: documents of one benchmark; an anchor of more is none
BOILERPLATE = 5  #: prompts of one benchmark; a run that so many share is common text
LEAST_POOL = 1_000  #: texts that a smaller pool counts as: its frequencies say little
#: The least weight; the most of a number or a name, which edits change first.
LEAST_WEIGHT, EDITED_WEIGHT = 0.1, 0.3
_NAME = re.compile(r"(?<=[a-z,;)\'\"] )[A-Z][^\W\d_]+")
_SKIP = 0xD6E8FEB86659FD93  # odd multipliers, so that the three kinds of pair differ
_NEXT = 0xA0761D6478BD642F


@dataclass(frozen=True)
class Postings:
    """Entry i of `keys`, sorted, occurs in document `document[i]` at word `position[i]`."""

    keys: Hashes
    document: Offsets
    position: Offsets

    def match(self, hashes: Any) -> tuple[Any, Any]:
        """(index into `hashes`, index of a posting), for every posting of every hash."""
        import numpy as np

        low = np.searchsorted(self.keys, hashes, side="left")
        counts = np.searchsorted(self.keys, hashes, side="right") - low
        of_hash = np.repeat(np.arange(len(hashes)), counts)
        within = np.arange(len(of_hash)) - np.repeat(np.cumsum(counts) - counts, counts)
        return of_hash, low[of_hash] + within


@dataclass(frozen=True)
class BenchmarkDocuments:
    """The documents of all benchmarks; `benchmark[i]` is a position in `names`, `is_prompt[i]` False for responses."""

    names: list[str]
    content_hashes: list[str]
    benchmark: Offsets
    prompt_id: list[str]
    is_prompt: npt.NDArray[np.bool_]
    content: pl.Series
    tokens: Tokens


@dataclass(frozen=True)
class BenchmarkIndex:
    """`weights`: of each token of the documents; `total`: of each document. `edited`: weights again, with little for
    what edits change first. `anchors_of`: how many each document has."""

    documents: BenchmarkDocuments
    runs: Postings
    equal: Postings
    anchors: Postings
    weights: npt.NDArray[np.float64]
    total: npt.NDArray[np.float64]
    edited: npt.NDArray[np.float64]
    anchors_of: Offsets
    run_filter: npt.NDArray[np.bool_]
    anchor_filter: npt.NDArray[np.bool_]

    def weights_of(self, document: int, *, edited: bool = False) -> npt.NDArray[np.float64]:
        offsets = self.documents.tokens.offsets
        return (self.edited if edited else self.weights)[offsets[document] : offsets[document + 1]]

    def share(self, document: int, weight: float) -> float:
        """`weight` of the document's equal."""
        return weight / max(float(self.total[document]), 1e-9)


def read_documents(db: Connection, names: Sequence[str]) -> pa.Table:
    """(benchmark, prompt_id, is_prompt, content) of these benchmarks."""
    return db.sql(
        """SELECT benchmark, prompt_id, true AS is_prompt, content FROM benchmark_prompts
           WHERE list_contains($names, benchmark)
           UNION ALL SELECT benchmark, prompt_id, false, content FROM benchmark_responses
           WHERE list_contains($names, benchmark) ORDER BY benchmark, is_prompt DESC, prompt_id, content""",
        params={"names": list(names)},
    ).to_arrow_table()


def documents_of(rows: pa.Table, content_hashes: Mapping[str, str], unit: Unit) -> BenchmarkDocuments:
    """`rows`: of `read_documents`. `content_hashes`: of the benchmarks, by name."""
    import numpy as np
    import polars as pl

    names = list(content_hashes)
    number_of = {name: number for number, name in enumerate(names)}
    contents = rows.column("content").combine_chunks()
    return BenchmarkDocuments(
        names,
        list(content_hashes.values()),
        np.array([number_of[name] for name in rows.column("benchmark").to_pylist()], np.int64),
        rows.column("prompt_id").to_pylist(),
        rows.column("is_prompt").to_numpy().astype(bool),
        pl.Series("content", contents, dtype=pl.String),
        tokenise(contents, unit),
    )


def word_pairs(tokens: Tokens, unit: Unit) -> list[tuple[Hashes, Offsets]]:
    """(hash, token at which it begins) of the pairs within one text: adjacent words, and those with one word between.
    Of characters, runs of five."""
    import numpy as np

    if unit == "character":
        grams = ngrams(tokens, 5)
        start = np.arange(len(grams.hashes)) - np.repeat(grams.offsets[:-1] - tokens.offsets[:-1], grams.counts)
        return [(grams.hashes, start)]
    pairs = []
    text = np.repeat(np.arange(len(tokens.counts)), tokens.counts)
    for gap, factor in ((1, _NEXT), (2, _SKIP)):
        start = np.flatnonzero(text[:-gap] == text[gap:])
        pairs.append((tokens.hashes[start] * np.uint64(factor) + tokens.hashes[start + gap], start))
    return pairs


def bit_filter(*keys: Hashes) -> npt.NDArray[np.bool_]:
    """Whether a hash's low bits occur among the keys: excludes nearly all others with one look-up."""
    import numpy as np

    bits = np.zeros(1 << BITS, bool)
    for some in keys:
        bits[low_bits(some)] = True
    return bits


def low_bits(hashes: Hashes) -> Any:
    import numpy as np

    return (hashes & np.uint64((1 << BITS) - 1)).astype(np.int64)


class PoolFrequencies:
    """How many texts of a sample of the pool have each word and each word pair of the documents."""

    def __init__(
        self, documents: BenchmarkDocuments, unit: Unit, counts: Offsets | None = None, texts: int = 0
    ) -> None:
        """`counts`, `texts`: of a sample that was counted before."""
        import numpy as np

        self.unit, self.texts = unit, texts
        pairs = [hashes for hashes, _ in word_pairs(documents.tokens, unit)]
        self._keys = np.unique(np.concatenate([documents.tokens.hashes, *pairs]))
        self.counts = np.zeros(len(self._keys), np.int64) if counts is None else counts
        self._filter = bit_filter(self._keys)

    def add(self, tokens: Tokens) -> None:
        """Count each key once a text."""
        import numpy as np

        text = np.repeat(np.arange(len(tokens.counts)), tokens.counts)
        self.texts += len(tokens.counts)
        kinds = [(tokens.hashes, np.arange(len(tokens.hashes))), *word_pairs(tokens, self.unit)]
        for hashes, start in kinds:
            likely = np.flatnonzero(self._filter[low_bits(hashes)])
            key = np.minimum(np.searchsorted(self._keys, hashes[likely]), max(len(self._keys) - 1, 0))
            right = self._keys[key] == hashes[likely] if len(self._keys) else np.empty(0, bool)
            once = np.unique(key[right] * len(tokens.counts) + text[start[likely[right]]])
            self.counts += np.bincount(once // max(len(tokens.counts), 1), minlength=len(self.counts))

    def of(self, hashes: Hashes) -> Offsets:
        """Texts with each of these hashes, all of them the documents'."""
        import numpy as np

        counts: Offsets = self.counts[np.searchsorted(self._keys, hashes)]
        return counts


def build_index(
    documents: BenchmarkDocuments,
    frequencies: PoolFrequencies,
    ngram: int,
    unit: Unit,
    *,
    boilerplate: int = BOILERPLATE,
) -> BenchmarkIndex:
    """`boilerplate`: runs that so many prompts of a benchmark share are left out; 0: none is."""
    import numpy as np

    tokens = documents.tokens
    document = np.repeat(np.arange(len(tokens.counts)), tokens.counts)
    weights = _weights(documents, frequencies)
    running = np.concatenate([[0.0], np.cumsum(weights)])
    total = running[tokens.offsets[1:]] - running[tokens.offsets[:-1]]
    grams = ngrams(tokens, ngram)
    of_run = np.repeat(np.arange(len(grams.counts)), grams.counts)
    position = np.arange(len(grams.hashes)) - np.repeat(grams.offsets[:-1], grams.counts)
    of_prompt = documents.is_prompt[of_run]
    runs = _runs(grams.hashes[of_prompt], of_run[of_prompt], position[of_prompt], documents.benchmark, boilerplate)
    short = np.flatnonzero((tokens.counts > 0) & (tokens.counts < ngram) & documents.is_prompt)
    short_hashes = whole_texts(tokens)[short]
    order = np.argsort(short_hashes, kind="stable")
    equal = Postings(short_hashes[order], short[order], np.zeros(len(short), np.int64))
    anchors = _anchors(documents, document, frequencies, unit)
    return BenchmarkIndex(
        documents,
        runs,
        equal,
        anchors,
        weights,
        total,
        _edited_weights(documents, weights, unit),
        np.bincount(anchors.document, minlength=len(tokens.counts)),
        bit_filter(runs.keys),
        bit_filter(anchors.keys),
    )


def _weights(documents: BenchmarkDocuments, frequencies: PoolFrequencies) -> npt.NDArray[np.float64]:
    """log(N / df) / log N, at least LEAST_WEIGHT."""
    import numpy as np

    size = max(frequencies.texts, LEAST_POOL)
    counts = np.maximum(frequencies.of(documents.tokens.hashes), 1)
    weights: npt.NDArray[np.float64] = np.maximum(np.log(size / counts) / np.log(size), LEAST_WEIGHT)
    return weights


def _edited_weights(
    documents: BenchmarkDocuments, weights: npt.NDArray[np.float64], unit: Unit
) -> npt.NDArray[np.float64]:
    """The weights, those of names and numbers at most EDITED_WEIGHT."""
    import numpy as np

    if unit == "character" or not len(weights):
        return weights
    words = words_of(normalised(documents.content.to_arrow()))
    edited = np.concatenate([_edited(*of) for of in zip(documents.content, words, strict=True)])
    return np.where(edited, np.minimum(weights, EDITED_WEIGHT), weights)


def _edited(content: str, words: pl.Series) -> npt.NDArray[np.bool_]:
    """Of each word, whether it is a number or a name: a capital within a sentence, unless every third word has one."""
    import numpy as np

    names = {name.lower() for name in _NAME.findall(content)}
    if 3 * len(names) > len(words):
        names = set()
    return np.array([word in names or word.isdecimal() for word in words.to_list()], bool)


def _runs(hashes: Hashes, document: Offsets, position: Offsets, benchmark: Offsets, boilerplate: int) -> Postings:
    """The first occurrence of each run in each benchmark."""
    import polars as pl

    frame = pl.DataFrame({"key": hashes, "document": document, "position": position, "benchmark": benchmark[document]})
    rows = (
        frame.lazy()
        .group_by("key", "benchmark")
        .agg(
            pl.col("document", "position").sort_by("document", "position").first(),
            pl.col("document").n_unique().alias("documents"),
        )
        .filter((pl.col("documents") < boilerplate) | (pl.lit(boilerplate) == 0))
        .sort("key", "benchmark")
        .collect()
    )
    return Postings(rows["key"].to_numpy(), rows["document"].to_numpy(), rows["position"].to_numpy())


def _anchors(documents: BenchmarkDocuments, document: Offsets, frequencies: PoolFrequencies, unit: Unit) -> Postings:
    import numpy as np
    import polars as pl

    rare = max(2, frequencies.texts // 500)
    parts = []
    for hashes, start in word_pairs(documents.tokens, unit):
        keep = frequencies.of(hashes) <= rare
        of = document[start[keep]]
        parts.append(
            pl.DataFrame(
                {
                    "key": hashes[keep],
                    "document": of,
                    "position": start[keep] - documents.tokens.offsets[:-1][of],
                    "benchmark": documents.benchmark[of],
                    "is_prompt": documents.is_prompt[of],
                }
            )
        )
    rows = (
        pl.concat(parts)
        .unique(["key", "document"], keep="first", maintain_order=True)
        .filter(pl.len().over("key", "benchmark", "is_prompt") <= SHARED_BY)
        .sort("document", "position")
        .with_columns(number_of=pl.int_range(pl.len()).over("document"), of=pl.len().over("document"))
        # every k-th, so that they are spread over the document
        .filter(pl.col("number_of") * ANCHORS // pl.col("of") != (pl.col("number_of") - 1) * ANCHORS // pl.col("of"))
        .sort("key", "document")
    )
    return Postings(rows["key"].to_numpy().astype(np.uint64), rows["document"].to_numpy(), rows["position"].to_numpy())
