"""Checking the store's prompts against registered benchmarks by shared n-grams, and discarding what overlaps.

After the normalisation of `hygiene.tokens`, a prompt overlaps when one of its turns shares `n` consecutive words (or
characters) with a benchmark's first-turn prompt, or equals a benchmark prompt shorter than `n`. Skywork-Reward-V2 used
n = 13 words; the first Skywork-Reward's "more than 7 consecutive words" is n = 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Le

from assay import ids
from assay.data.snapshots import POOLS, Selection
from assay.errors import NotFoundError
from assay.runs.progress_bar import Advance, silent
from assay.settings import Help, check_settings
from assay.store.database import Connection, registered
from assay.workspace import Workspace
from assay_pipelines.hygiene.discarding import discard
from assay_pipelines.hygiene.scratch_store import row_pages
from assay_pipelines.hygiene.tokens import Unit, ngrams, normalised, tokenise, whole_texts, words_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl
    import pyarrow as pa

RULE = "contamination"
PAGE = 50_000  #: prompts of one unit of work
_BITS = 24  #: of the filter before the look-up


@dataclass(frozen=True)
class CheckConfig:
    """What counts as an overlap, and with which benchmarks; empty = every registered one."""

    ngram: Annotated[int, Ge(1), Le(200), Help("So many consecutive units in common are an overlap.")] = 13
    unit: Annotated[Unit, Help("word, or character for scripts without spaces.")] = "word"
    benchmarks: Annotated[
        tuple[str, ...], Help("Registered benchmark; repeatable. Default: all of them.", option="--benchmark")
    ] = ()

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class CheckReport:
    """One benchmark's outcome: `hits` of the `prompts` checked overlap, `comparisons` have such a prompt."""

    benchmark: str
    content_hash: str
    check_id: str
    prompts: int
    hits: int
    comparisons: int


class _Index:
    """The n-grams of one benchmark, sorted by hash, and its short prompts by the hash of the text."""

    def __init__(self, name: str, content_hash: str, prompt_ids: list[str], texts: pa.Array, config: CheckConfig):
        import numpy as np

        self.name, self.content_hash, self.prompt_ids = name, content_hash, prompt_ids
        self.text = normalised(texts)
        tokens = tokenise(texts, config.unit)
        grams = ngrams(tokens, config.ngram)
        self.prompt = np.repeat(np.arange(len(prompt_ids)), grams.counts)
        self.position = np.arange(len(grams.hashes)) - np.repeat(grams.offsets[:-1], grams.counts)
        order = np.argsort(grams.hashes, kind="stable")
        self.hashes, self.prompt, self.position = grams.hashes[order], self.prompt[order], self.position[order]
        short = np.flatnonzero((tokens.counts > 0) & (tokens.counts < config.ngram))
        short_hashes = whole_texts(tokens)[short]
        order = np.argsort(short_hashes, kind="stable")
        self.whole, self.whole_prompt = short_hashes[order], short[order]


def check_benchmarks(
    workspace: Workspace, config: CheckConfig, run_id: str, *, page: int = PAGE, advance: Advance = silent
) -> list[CheckReport]:
    """Check every prompt of the store. `advance` by prompts. A check that is killed leaves no entry in the ledger.

    Raises NotFoundError for a benchmark that is not registered, and where none is.
    """
    indices = _indices(workspace, config)
    checks = {index.name: "k-" + ids.digest(f"{run_id}{ids.FIELD}{index.name}") for index in indices}
    seen: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    bits = _filter(indices)
    query = "SELECT prompt_id, run_id, messages FROM prompts WHERE rowid BETWEEN $low AND $high"
    for table in row_pages(workspace, "prompts", query, page=page):
        seen.update(_runs(table))
        if table.num_rows:
            overlaps = _overlaps(table, indices, bits, config)
            if overlaps:
                _store(workspace, overlaps, checks)
                hits.update({name: len(frame) for name, frame in overlaps.items()})
        advance(table.num_rows)
    return [_finish(workspace, index, checks[index.name], config, run_id, seen, hits) for index in indices]


def discard_overlaps(
    workspace: Workspace, reports: Sequence[CheckReport], config: CheckConfig, selection: Selection, run_id: str
) -> dict[str, int]:
    """Discard the comparisons of the selection whose prompt overlaps; benchmark -> how many.

    Gold too: an overlap does not depend on judgments. A comparison restored after this rule had discarded it stays.
    """
    every = not selection.sources and not selection.categories and set(selection.pools) == set(POOLS)
    where, values = ("true", {}) if every else selection.where()
    discarded = {}
    for report in reports:
        discarded[report.benchmark] = 0
        if report.hits:
            with workspace.store.unit() as db:
                rows = db.sql(
                    f"""SELECT p.comparison_id, 'turn ' || h.turn
                            || if(h.ngrams = 0, ' is', ', from {config.unit} ' || h.position
                                  || ' on, shares {config.ngram} {config.unit}s with')
                            || ' prompt ' || h.benchmark_prompt_id || ' of ' || $benchmark || ': "' || h.overlap || '"'
                            AS reason, [{{'relation': 'overlaps', 'ref': h.benchmark_prompt_id}}] AS basis
                        FROM {"comparisons" if every else "pools"} p
                        JOIN contamination_hits h ON h.prompt_id = p.prompt_id AND h.check_id = $check
                        WHERE {where} ORDER BY p.comparison_id""",
                    params={**values, "check": report.check_id, "benchmark": report.benchmark},
                ).to_arrow_table()
            discarded[report.benchmark] = discard(workspace, rows, RULE, run_id, leave=())
    return discarded


def count_prompts(workspace: Workspace) -> int:
    with workspace.store.unit() as db:
        row = db.execute("SELECT count(*) FROM prompts").fetchone()
    return int(row[0]) if row else 0


def chosen_benchmarks(db: Connection, names: Sequence[str]) -> dict[str, str]:
    """name -> content hash of the selected registered benchmarks: all, unless `names` are given. Raises NotFoundError
    where none is registered, and for an unknown name."""
    content_hashes = dict(db.execute("SELECT benchmark, content_hash FROM benchmarks ORDER BY benchmark").fetchall())
    if not content_hashes:
        raise NotFoundError("no benchmark is registered: assay data benchmarks add NAME FILE")
    for name in names:
        if name not in content_hashes:
            raise NotFoundError(f"no benchmark {name!r}; there are: {', '.join(content_hashes)}")
    return {name: digest for name, digest in content_hashes.items() if not names or name in names}


def _indices(workspace: Workspace, config: CheckConfig) -> list[_Index]:
    with workspace.store.unit() as db:
        content_hashes = chosen_benchmarks(db, config.benchmarks)
        tables = {
            name: db.sql(
                "SELECT prompt_id, content FROM benchmark_prompts WHERE benchmark = $name ORDER BY prompt_id",
                params={"name": name},
            ).to_arrow_table()
            for name in content_hashes
        }
    return [
        _Index(n, content_hashes[n], t.column(0).to_pylist(), t.column(1).combine_chunks(), config)
        for n, t in tables.items()
    ]


def _runs(table: pa.Table) -> dict[str, int]:
    counts = table.column("run_id").value_counts()
    return {count["values"] or "": count["counts"] for count in counts.to_pylist()}


def _filter(indices: list[_Index]) -> npt.NDArray[np.bool_]:
    """Whether a hash's low bits occur in any benchmark: excludes nearly all n-grams with one look-up."""
    import numpy as np

    bits = np.zeros(1 << _BITS, bool)
    for index in indices:
        for hashes in (index.hashes, index.whole):
            bits[(hashes & np.uint64((1 << _BITS) - 1)).astype(np.int64)] = True
    return bits


def _overlaps(
    table: pa.Table, indices: list[_Index], bits: npt.NDArray[np.bool_], config: CheckConfig
) -> dict[str, pl.DataFrame]:
    """benchmark -> one row a prompt that overlaps: prompt_id, turn, position, benchmark_prompt_id, overlap, ngrams."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    messages = table.column("messages").combine_chunks()
    turns = pc.list_flatten(messages)
    texts = turns.field("content") if isinstance(turns, pa.StructArray) else pc.struct_field(turns, "content")
    owner = pc.list_parent_indices(messages).to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = pc.list_value_length(messages).to_numpy(zero_copy_only=False).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    number = np.arange(len(owner)) - first[owner] + 1
    tokens = tokenise(texts, config.unit)
    grams = ngrams(tokens, config.ngram)
    mask = np.uint64((1 << _BITS) - 1)
    likely = np.flatnonzero(bits[(grams.hashes & mask).astype(np.int64)])
    likely_turn = np.searchsorted(grams.offsets, likely, side="right") - 1
    text_hashes = whole_texts(tokens)
    short = np.flatnonzero((tokens.counts > 0) & (tokens.counts < config.ngram))
    overlaps = {}
    for index in indices:
        run, match = _match(grams.hashes[likely], index.hashes)
        equal, text_match = _match(text_hashes[short], index.whole)
        none = np.zeros(len(equal), np.int64)
        turn = np.concatenate([likely_turn[run], short[equal]])
        position = np.concatenate([likely[run] - grams.offsets[likely_turn[run]], none])
        theirs = np.concatenate([index.prompt[match], index.whole_prompt[text_match]])
        their_position = np.concatenate([index.position[match], none])
        size = np.concatenate([np.full(len(run), config.ngram), tokens.counts[short[equal]]])
        if not len(turn):
            continue
        frame = _evidence(texts, index, turn, position, theirs, their_position, size, config.unit)
        frame = frame.with_columns(owner=owner[turn], turn=number[turn], n=np.where(size < config.ngram, 0, 1))
        if len(frame := _first_of_each(frame, table.column("prompt_id"), index)):
            overlaps[index.name] = frame
    return overlaps


def _match(hashes: Any, sorted_hashes: Any) -> tuple[Any, Any]:
    """Positions in `hashes` whose value occurs in `sorted_hashes`, and the first position there."""
    import numpy as np

    if not len(sorted_hashes):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    index = np.minimum(np.searchsorted(sorted_hashes, hashes), len(sorted_hashes) - 1)
    equal = np.flatnonzero(sorted_hashes[index] == hashes)
    return equal, index[equal]


def _evidence(
    texts: Any, index: _Index, turn: Any, position: Any, theirs: Any, their_position: Any, size: Any, unit: Unit
) -> pl.DataFrame:
    """The words at both positions: the evidence, which also confirms that equal hashes are equal texts."""
    import numpy as np
    import polars as pl

    some, back = np.unique(turn, return_inverse=True)
    other, other_back = np.unique(theirs, return_inverse=True)
    ours = normalised(texts.take(some))
    benchmark_texts = index.text.gather(other.tolist())
    return pl.DataFrame(
        {
            "overlap": _cut(ours, back, position, size, unit),
            "their_words": _cut(benchmark_texts, other_back, their_position, size, unit),
            "position": position + 1,
            "theirs": theirs,
        }
    )


def _cut(text: pl.Series, row: Any, position: Any, size: Any, unit: Unit) -> pl.Series:
    import polars as pl

    frame = pl.DataFrame({"at": position, "size": size})
    if unit == "character":
        frame = frame.with_columns(text=text.str.replace_all(" ", "").gather(row))
        return frame.select(pl.col("text").str.slice(pl.col("at"), pl.col("size"))).to_series()
    frame = frame.with_columns(words=words_of(text).gather(row))
    return frame.select(pl.col("words").list.slice(pl.col("at"), pl.col("size")).list.join(" ")).to_series()


def _first_of_each(frame: pl.DataFrame, prompt_ids: Any, index: _Index) -> pl.DataFrame:
    import polars as pl

    overlaps = (
        frame.filter(pl.col("overlap") == pl.col("their_words"))
        .sort("owner", "turn", "position")
        .group_by("owner", maintain_order=True)
        .agg(pl.col("turn", "position", "theirs", "overlap").first(), pl.col("n").sum().alias("ngrams"))
    )
    return overlaps.select(
        prompt_id=pl.Series(prompt_ids).gather(overlaps["owner"]),
        turn="turn",
        position="position",
        benchmark_prompt_id=pl.Series(index.prompt_ids).gather(overlaps["theirs"]),
        overlap="overlap",
        ngrams="ngrams",
    )


def _store(workspace: Workspace, overlaps: dict[str, pl.DataFrame], checks: dict[str, str]) -> None:
    with workspace.store.unit() as db:
        for name, frame in overlaps.items():
            with registered(db, "incoming_hits", frame.to_arrow()):
                db.execute(
                    """INSERT INTO contamination_hits
                           (check_id, prompt_id, turn, "position", benchmark_prompt_id, overlap, ngrams)
                       SELECT $check, prompt_id, turn, "position", benchmark_prompt_id, overlap, ngrams
                       FROM incoming_hits""",
                    {"check": checks[name]},
                )


def _finish(
    workspace: Workspace,
    index: _Index,
    check: str,
    config: CheckConfig,
    run_id: str,
    seen: Counter[str],
    hits: Counter[str],
) -> CheckReport:
    prompts = sum(seen.values())
    with workspace.store.unit() as db:
        if seen:
            db.executemany(
                "INSERT INTO contamination_coverage (check_id, import_run, prompts) VALUES (?, ?, ?)",
                [[check, run, count] for run, count in seen.items()],
            )
        db.execute(
            """INSERT INTO contamination_checks
                   (check_id, benchmark, benchmark_hash, ngram, unit, prompts, hits, run_id)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
            [check, index.name, index.content_hash, config.ngram, config.unit, prompts, hits[index.name], run_id],
        )
        row = db.execute(
            """SELECT count(*) FROM comparisons
               WHERE prompt_id IN (SELECT prompt_id FROM contamination_hits WHERE check_id = ?)""",
            [check],
        ).fetchone()
    return CheckReport(index.name, index.content_hash, check, prompts, hits[index.name], int(row[0]) if row else 0)
