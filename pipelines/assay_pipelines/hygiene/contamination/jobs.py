"""What is computed of each shard of the pool's texts, and the files with the benchmarks that workers read.

Covers: prompts whose embeddings are like those of a benchmark's prompts, which is left of a leak that was put in other
words. A paraphrase keeps much of the meaning and many of the rare words. Both are asked for: cosine similarity, and a
share of the benchmark prompt's information in words of any order, the less the nearer the embeddings are.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from assay.compute.job import hash_of, write_table
from assay.compute.stage import FOLDER
from assay.system.name_lock import locked_name
from assay.workspace import Workspace
from assay_pipelines.embedding.encoder import Encoder
from assay_pipelines.embedding.encoder_loader import open_encoder
from assay_pipelines.hygiene.contamination.benchmark_index import (
    BOILERPLATE,
    BenchmarkIndex,
    PoolFrequencies,
    build_index,
    documents_of,
)
from assay_pipelines.hygiene.contamination.candidates import match_table
from assay_pipelines.hygiene.contamination.evidence import Rule
from assay_pipelines.hygiene.contamination.matching import find_matches
from assay_pipelines.hygiene.contamination.pool_texts import TextPage, text_page
from assay_pipelines.hygiene.tokens import Tokens, Unit, tokenise

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


PAGE = b"assay.page"  #: of a result: the shard's `responses` (or prompts), `texts` and `imports`
_DOCUMENTS, _FREQUENCIES, _ABOUT = "documents.parquet", "frequencies.parquet", b"assay.benchmarks"


class Matching:
    """Job: what the texts of a shard have in common with benchmarks (`match_table`). `benchmarks`: a folder of
    `benchmark_files`; the others as in `check.CheckConfig`."""

    def __init__(
        self, benchmarks: str, ngram: int, unit: Unit, containment: float, encoder: str = "", similarity: float = 1.0
    ) -> None:
        self._folder, self._unit, self._rule = Path(benchmarks), unit, Rule(ngram, containment)
        self._encoder, self._similarity = encoder, similarity

    def open(self) -> None:
        encoder = open_encoder(self._encoder) if self._encoder else None
        self.index = read_index(self._folder, self._rule, self._unit)
        self._vectors = PromptVectors(encoder, self.index) if encoder is not None else None

    def map(self, shard: pa.Table) -> pa.Table:
        page = text_page(shard)
        tokens = tokenise(page.texts, self._unit)
        contained = self._rule.containment > 0
        some = bool(len(page.texts))
        matches = find_matches(tokens, self.index, self._rule.ngram, self._unit, contained=contained) if some else []
        vectors = self._vectors if some and page.response_ids is None else None
        similar = find_similar(page, tokens, vectors, self.index, self._similarity) if vectors is not None else ()
        table = match_table(page, tokens, matches, similar, self.index, self._rule, self._unit)
        about = {"responses": page.response_ids is not None, "texts": len(page.texts), "imports": page.imports}
        return table.replace_schema_metadata({PAGE: json.dumps(about)})


@contextmanager
def benchmark_files(
    workspace: Workspace, rows: pa.Table, content_hashes: Mapping[str, str], frequencies: PoolFrequencies
) -> Iterator[Path]:
    """A folder with what `read_index` reads, named by its content, for the time of the block.

    Raises BadInputError where another process has it.
    """
    import pyarrow as pa

    about = json.dumps([dict(content_hashes), frequencies.texts])
    content = json.dumps(rows.to_pylist()).encode() + frequencies.counts.tobytes() + about.encode()
    folder = workspace.root / FOLDER / f".benchmarks-{hash_of(content)}"
    with locked_name(folder, hint="wait for it"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_table(rows, folder / _DOCUMENTS, {_ABOUT: about.encode()})
            write_table(pa.table({"counts": frequencies.counts}), folder / _FREQUENCIES, {})
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def read_index(folder: Path, rule: Rule, unit: Unit) -> BenchmarkIndex:
    """The same in every process."""
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / _DOCUMENTS)
    content_hashes, texts = json.loads(rows.schema.metadata[_ABOUT])
    documents = documents_of(rows, content_hashes, unit)
    counts = pq.read_table(folder / _FREQUENCIES).column("counts").to_numpy()
    frequencies = PoolFrequencies(documents, unit, counts, texts)
    # without containment, runs count whether they are common or not
    return build_index(documents, frequencies, rule.ngram, unit, boilerplate=BOILERPLATE if rule.containment else 0)


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
