"""Matches that may be evidence, kept in a scratch table while the pool is read, and stored as hits at the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from assay.compute.scratch_store import Scratch
from assay.store.database import registered
from assay.workspace import Workspace
from assay_pipelines.hygiene.contamination.benchmark_index import BenchmarkIndex
from assay_pipelines.hygiene.contamination.evidence import Commonness, Rule, is_evidence, span, tier_of
from assay_pipelines.hygiene.contamination.matching import Match
from assay_pipelines.hygiene.contamination.pool_texts import TextPage
from assay_pipelines.hygiene.tokens import Tokens, Unit, normalised, whole_texts, words_of

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

SHOWN_WORDS = 60  #: of the text in common that is kept
_PAGE = 20_000  #: hits of one unit of work
_TEXTS = ("prompt_id", "response_id", "tier", "overlap")
_NUMBERS = ("item", "turn", "document", "at", "runs", "run_text", "run_document")
_STRONGEST = """
    CREATE TABLE strongest AS SELECT row_number() OVER () - 1 AS item, * FROM (
        SELECT * FROM hits QUALIFY row_number() OVER (
            PARTITION BY check_id, prompt_id, response_id
            ORDER BY tier = 'embedding', tier = 'run', score DESC, ngrams DESC, turn, "position",
                benchmark_prompt_id) = 1)"""


class EvidenceCandidates:
    """Of one check."""

    def __init__(self, temporary: Scratch, index: BenchmarkIndex, rule: Rule, unit: Unit) -> None:
        self._temporary, self._index, self._rule, self._unit = temporary, index, rule, unit
        self._commonness = Commonness(index)
        self._count = 0

    def add(self, page: TextPage, tokens: Tokens, matches: Iterable[Match]) -> None:
        """Count the matches of a page, and keep those that are evidence unless their words turn out common."""
        hashes = whole_texts(tokens)
        rows = []
        for match in matches:
            self._commonness.add(match, int(hashes[match.text]))
            if not is_evidence(match, self._index, self._rule, in_response=page.response_ids is not None):
                continue
            tier = tier_of(match, self._index, self._rule)
            at, size = (match.run_text, self._rule.ngram) if tier == "run" else span(match.blocks)
            score = 1.0 if match.equal else min(self._index.share(match.document, match.covered), 1.0)
            rows.append(_row(page, match, tier, score, at, min(size, max(SHOWN_WORDS, self._rule.ngram))))
        self._append(page, rows)

    def add_similar(self, page: TextPage, tokens: Tokens, similar: Iterable[tuple[int, int, float]]) -> None:
        """(text of the page, document, cosine similarity)."""
        rows = []
        for text, document, similarity in similar:
            match = Match(text, document, 0, -1, -1, False, (), 0.0)
            rows.append(_row(page, match, "embedding", similarity, 0, min(int(tokens.counts[text]), SHOWN_WORDS)))
        self._append(page, rows)

    def store(self, workspace: Workspace, check_ids: list[str], limit: int) -> None:
        """Store the strongest of each prompt and response, for each benchmark, without those on common text.

        `check_ids`: by benchmark, as the index counts them. `limit`: of `Commonness.common`.
        """
        columns = "item, * EXCLUDE (item)"
        for page in self._temporary.item_pages("candidates", columns, self._count, page=_PAGE) if self._count else ():
            if hits := [hit for row in page.to_pylist() if (hit := self._hit(row, check_ids, limit)) is not None]:
                self._temporary.append("hits", _hit_table(hits))
        if not self._temporary.has("hits"):
            return
        self._temporary.db.execute(_STRONGEST)
        total = self._temporary.number("SELECT count(*) FROM strongest")
        for page in self._temporary.item_pages("strongest", columns, total, page=_PAGE):
            with workspace.store.unit() as db, registered(db, "incoming_hits", page):
                db.execute("INSERT INTO contamination_hits BY NAME SELECT * EXCLUDE (item) FROM incoming_hits")

    def _append(self, page: TextPage, rows: list[dict[str, Any]]) -> None:
        import numpy as np
        import pyarrow as pa

        if not rows:
            return
        texts, text_row = np.unique([row["text"] for row in rows], return_inverse=True)
        words = normalised(page.texts.take(pa.array(texts)))
        overlap = _cut(words, text_row, [row["at"] for row in rows], [row["size"] for row in rows], self._unit)
        numbered = [
            {**row, "overlap": words, "item": number}
            for number, (row, words) in enumerate(zip(rows, overlap.to_list(), strict=True), start=self._count)
        ]
        self._count += len(rows)
        fields: list[Any] = [(name, pa.string()) for name in _TEXTS] + [(name, pa.int64()) for name in _NUMBERS]
        fields += [("score", pa.float64()), ("covered", pa.float64()), ("blocks", pa.list_(pa.int64()))]
        self._temporary.append("candidates", pa.Table.from_pylist(numbered, schema=pa.schema(fields)))

    def _hit(self, row: dict[str, Any], check_ids: list[str], limit: int) -> dict[str, Any] | None:
        documents, document = self._index.documents, row["document"]
        if row["tier"] != "embedding":
            flat = row["blocks"]
            blocks = tuple(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
            run = (row["runs"], row["run_text"], row["run_document"])
            match = Match(0, document, *run, row["tier"] == "whole", blocks, row["covered"])
            common, in_response = self._commonness.common(document, limit), row["response_id"] is not None
            if not is_evidence(match, self._index, self._rule, common, in_response=in_response):
                return None
        is_prompt = bool(documents.is_prompt[document])
        return {
            **{name: row[name] for name in ("prompt_id", "response_id", "turn", "overlap", "tier", "score")},
            "check_id": check_ids[int(documents.benchmark[document])],
            "position": row["at"] + 1,
            "benchmark_prompt_id": documents.prompt_id[document],
            "ngrams": row["runs"],
            "part": "prompt" if is_prompt else "response",
            "benchmark_text": None if is_prompt else documents.content[document],
        }


def _row(page: TextPage, match: Match, tier: str, score: float, at: int, size: int) -> dict[str, Any]:
    row = int(page.row[match.text])
    return {
        "prompt_id": page.prompt_ids[row].as_py(),
        "response_id": page.response_ids[row].as_py() if page.response_ids is not None else None,
        "turn": int(page.turn[match.text]),
        "text": match.text,
        "document": match.document,
        "tier": tier,
        "score": score,
        "at": at,
        "size": size,
        "runs": match.runs,
        "run_text": match.run_text,
        "run_document": match.run_document,
        "blocks": [number for block in match.blocks for number in block],
        "covered": match.covered,
    }


def _hit_table(hits: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    texts = ("check_id", "prompt_id", "response_id", "overlap", "tier", "part", "benchmark_prompt_id", "benchmark_text")
    fields: list[Any] = [(name, pa.string()) for name in texts]
    fields += [(name, pa.int64()) for name in ("turn", "position", "ngrams")]
    return pa.Table.from_pylist(hits, schema=pa.schema([*fields, ("score", pa.float64())]))


def _cut(text: pl.Series, row: Any, position: Any, size: Any, unit: Unit) -> pl.Series:
    """`size` words or characters of text `row`, from `position` on."""
    import polars as pl

    frame = pl.DataFrame({"at": position, "size": size})
    if unit == "character":
        frame = frame.with_columns(text=text.str.replace_all(" ", "").gather(row))
        return frame.select(pl.col("text").str.slice(pl.col("at"), pl.col("size"))).to_series()
    frame = frame.with_columns(words=words_of(text).gather(row))
    return frame.select(pl.col("words").list.slice(pl.col("at"), pl.col("size")).list.join(" ")).to_series()
