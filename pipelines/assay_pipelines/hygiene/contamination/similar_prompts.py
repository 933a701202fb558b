"""Prompts whose embeddings are like those of a benchmark's prompts: what is left of a leak that was put in other words.

A paraphrase keeps much of the meaning and many of the rare words. Both are asked for: cosine similarity, and a share of
the benchmark prompt's information in words of any order, the less the nearer the embeddings are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay_pipelines.embedding.encoder import Encoder
from assay_pipelines.hygiene.contamination.benchmark_index import BenchmarkIndex
from assay_pipelines.hygiene.contamination.pool_texts import TextPage
from assay_pipelines.hygiene.tokens import Tokens

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CHARACTERS = 2_000  #: of a text that are encoded: about the window of an encoder
BLOCK = 1_024  #: texts of one matrix product
LEAST_INFORMATION = 1.5  #: of the words in common
LEAST_SHARE = 0.3  #: of the benchmark prompt's information, in words in common
LEAST_WORDS = 4


class PromptVectors:
    """Vectors of the benchmarks' prompts, encoded once a check."""

    def __init__(self, encoder: Encoder, index: BenchmarkIndex) -> None:
        import numpy as np

        self.encoder = encoder
        documents = index.documents
        enough = documents.is_prompt & (documents.tokens.counts >= LEAST_WORDS)
        self.document = np.flatnonzero(enough)
        texts = documents.content.gather(self.document).str.slice(0, CHARACTERS).to_list()
        self.vectors: npt.NDArray[np.float32] = encoder.encode(texts)


def find_similar(
    page: TextPage, tokens: Tokens, prompts: PromptVectors, index: BenchmarkIndex, similarity: float
) -> Iterator[tuple[int, int, float]]:
    """(text of the page, document, cosine similarity) of user turns and prompts of benchmarks."""
    import numpy as np
    import polars as pl
    import pyarrow.compute as pc

    user = pc.equal(page.roles, "user").to_numpy(zero_copy_only=False).astype(bool)
    some = np.flatnonzero(user & (tokens.counts >= LEAST_WORDS))
    texts = pl.Series("text", page.texts, dtype=pl.String).gather(some).str.slice(0, CHARACTERS)
    for low in range(0, len(some) if len(prompts.document) else 0, BLOCK):
        near = prompts.encoder.encode(texts[low : low + BLOCK].to_list()) @ prompts.vectors.T
        for text, column in zip(*np.nonzero(near >= similarity), strict=True):
            at, document = int(some[low + text]), int(prompts.document[column])
            if _in_common(tokens, at, index, document):
                yield at, document, min(float(near[text, column]), 1.0)


def _in_common(tokens: Tokens, text: int, index: BenchmarkIndex, document: int) -> bool:
    import numpy as np

    ours = tokens.hashes[tokens.offsets[text] : tokens.offsets[text + 1]]
    offsets = index.documents.tokens.offsets
    theirs = index.documents.tokens.hashes[offsets[document] : offsets[document + 1]]
    words, first = np.unique(theirs, return_index=True)
    weights = index.weights_of(document)[first]
    information = float(weights[np.isin(words, ours)].sum())
    return information >= LEAST_INFORMATION and information >= LEAST_SHARE * float(weights.sum())
