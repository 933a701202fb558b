"""Matches of a page of texts as a table; those that may be evidence, kept until the pool is read, and then stored."""

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
_MATCH = ("document", "runs", "run_text", "run_document", "equal", "blocks", "covered")
_NUMBERS = ("turn", "document", "at", "runs", "run_text", "run_document")
_STRONGEST = """
    CREATE TABLE strongest AS SELECT row_number() OVER () - 1 AS item, * FROM (
        SELECT * FROM hits QUALIFY row_number() OVER (
            PARTITION BY check_id, prompt_id, response_id
            ORDER BY tier = 'embedding', tier = 'run', score DESC, ngrams DESC, turn, "position",
                benchmark_prompt_id) = 1)"""


class EvidenceCandidates:
    """Of one check."""

    def __init__(self, temporary: Scratch, index: BenchmarkIndex, rule: Rule) -> None:
        self._temporary, self._index, self._rule = temporary, index, rule
        self._commonness = Commonness(index)
        self._count = 0

    def add(self, matches: "pa.Table") -> None:
        """Count the matches of a page, and keep those that are evidence unless their words turn out common."""
        import numpy as np
        import pyarrow.compute as pc

        for row in matches.select(["text_hash", *_MATCH]).to_pylist():
            if row["text_hash"] is not None:
                self._commonness.add(_match(row), row["text_hash"])
        rows = matches.filter(pc.is_valid(matches.column("tier"))).drop_columns(["text_hash"])
        if rows.num_rows:
            items = np.arange(self._count, self._count + rows.num_rows)
            self._temporary.append("candidates", rows.append_column("item", [items]))
            self._count += rows.num_rows

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

    def _hit(self, row: dict[str, Any], check_ids: list[str], limit: int) -> dict[str, Any] | None:
        documents, document = self._index.documents, row["document"]
        if row["tier"] != "embedding":
            common, in_response = self._commonness.common(document, limit), row["response_id"] is not None
            if not is_evidence(_match(row), self._index, self._rule, common, in_response=in_response):
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


def match_table(
    page: TextPage,
    tokens: Tokens,
    matches: Iterable[Match],
    similar: Iterable[tuple[int, int, float]],
    index: BenchmarkIndex,
    rule: Rule,
    unit: Unit,
) -> "pa.Table":
    """The matches of a page; `tier` and `overlap` of those that are evidence unless their words turn out common.

    `similar`: (text of the page, document, cosine similarity); they have no `text_hash`.
    """
    import pyarrow as pa

    hashes, rows = whole_texts(tokens), list[dict[str, Any]]()
    for match in matches:
        tier, at, size, score = None, 0, 0, 0.0
        if is_evidence(match, index, rule, in_response=page.response_ids is not None):
            tier = tier_of(match, index, rule)
            at, size = (match.run_text, rule.ngram) if tier == "run" else span(match.blocks)
            score = 1.0 if match.equal else min(index.share(match.document, match.covered), 1.0)
            size = min(size, max(SHOWN_WORDS, rule.ngram))
        rows.append({**_row(page, match, tier, score, at, size), "text_hash": int(hashes[match.text])})
    for text, document, similarity in similar:
        match = Match(text, document, 0, -1, -1, False, (), 0.0)
        rows.append(_row(page, match, "embedding", similarity, 0, min(int(tokens.counts[text]), SHOWN_WORDS)))
    shown = [row for row in rows if row["tier"] is not None]
    for row, words in zip(shown, _overlaps(page, shown, unit), strict=True):
        row["overlap"] = words
    fields: list[Any] = [(name, pa.string()) for name in _TEXTS] + [(name, pa.int64()) for name in _NUMBERS]
    fields += [("score", pa.float64()), ("covered", pa.float64()), ("blocks", pa.list_(pa.int64()))]
    fields += [("equal", pa.bool_()), ("text_hash", pa.uint64())]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def _overlaps(page: TextPage, rows: list[dict[str, Any]], unit: Unit) -> list[str]:
    """The words in common that are shown of each row."""
    import numpy as np
    import pyarrow as pa

    if not rows:
        return []
    texts, text_row = np.unique([row["text"] for row in rows], return_inverse=True)
    words = normalised(page.texts.take(pa.array(texts)))
    return _cut(words, text_row, [row["at"] for row in rows], [row["size"] for row in rows], unit).to_list()


def _match(row: dict[str, Any]) -> Match:
    flat = row["blocks"]
    blocks = tuple(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
    run = (row["runs"], row["run_text"], row["run_document"])
    return Match(0, row["document"], *run, row["equal"], blocks, row["covered"])


def _row(page: TextPage, match: Match, tier: str | None, score: float, at: int, size: int) -> dict[str, Any]:
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
        "equal": match.equal,
        "blocks": [number for block in match.blocks for number in block],
        "covered": match.covered,
    }


def _hit_table(hits: list[dict[str, Any]]) -> "pa.Table":
    import pyarrow as pa

    texts = ("check_id", "prompt_id", "response_id", "overlap", "tier", "part", "benchmark_prompt_id", "benchmark_text")
    fields: list[Any] = [(name, pa.string()) for name in texts]
    fields += [(name, pa.int64()) for name in ("turn", "position", "ngrams")]
    return pa.Table.from_pylist(hits, schema=pa.schema([*fields, ("score", pa.float64())]))


def _cut(text: "pl.Series", row: Any, position: Any, size: Any, unit: Unit) -> "pl.Series":
    """`size` words or characters of text `row`, from `position` on."""
    import polars as pl

    frame = pl.DataFrame({"at": position, "size": size})
    if unit == "character":
        frame = frame.with_columns(text=text.str.replace_all(" ", "").gather(row))
        return frame.select(pl.col("text").str.slice(pl.col("at"), pl.col("size"))).to_series()
    frame = frame.with_columns(words=words_of(text).gather(row))
    return frame.select(pl.col("words").list.slice(pl.col("at"), pl.col("size")).list.join(" ")).to_series()
