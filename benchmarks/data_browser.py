"""How soon `assay.browsing` has the first rows of 1M comparisons: a page of each filter and search.

Peers, asked for the same rows in the same run: the plain SELECT over the view `pools` with its joins, and Polars over
the same rows in one flat Parquet file. Times are from before the file is opened, with a new DuckDB instance, until the
page's rows are there; a page without rows is asked on. CPU time is printed beside it: it depends less on what else the
machine does.

    python benchmarks/data_browser.py --quick
    python benchmarks/data_browser.py --folder /tmp/browser        # kept, and used again by the next run
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Report, arguments, interleaved, ratio, versions
from preference_texts import write_pairs

if TYPE_CHECKING:
    import polars as pl

    from assay.browsing.filters import Filter
    from assay.workspace import Workspace

#: Words of a row: as long as HH-RLHF's, about 1.5 kB.
LENGTHS = {"prompt": (10, 120), "chosen": (20, 160), "rejected": (20, 160)}
#: Source -> its share of the comparisons.
SOURCES = {"chat": 0.4, "code": 0.2, "maths": 0.2, "world": 0.15, "expert": 0.05}
CATEGORIES = ("advice", "facts", "writing", "reasoning", "safety", "other")
LANGUAGES = ("en", "en", "en", "de", "zh")
BATCH = 50_000
LIMIT = 30  #: rows of a page: a screen of them
RARE = "quincunx-heliotrope"  #: stands in one row of ten thousand


def fill(workspace: Workspace, rows: int, scratch: Path) -> None:
    """`rows` comparisons by bulk import; judges' opinions on a third, decisions on half, scores of a tenth."""
    import duckdb

    from assay_pipelines.importers.formats import ImportConfig
    from assay_pipelines.importing import open_import, run_import

    category, language = (
        f"{list(CATEGORIES)!r}[(1 + hash(n) % 6)::INTEGER]",
        f"{list(LANGUAGES)!r}[(1 + hash(n + 1) % 5)::INTEGER]",
    )
    for number, (source, share) in enumerate(SOURCES.items()):
        texts, file = scratch / f"{source}.texts.jsonl", scratch / f"{source}.jsonl"
        write_pairs(texts, round(rows * share), seed=number, lengths=LENGTHS)
        with duckdb.connect(config={"memory_limit": "2GB"}) as db:
            db.execute(
                f"""COPY (SELECT '{source}-' || n AS id, prompt,
                      if(n % 10000 = 77, chosen || ' {RARE} ', chosen) AS chosen, rejected, '{source}' AS source,
                      {category} AS category, {language} AS language, 'MIT' AS license, n % 4 AS strength
                    FROM (SELECT *, row_number() OVER () AS n FROM read_json('{texts}', format = 'newline_delimited')))
                    TO '{file}' (FORMAT json)"""
            )
        texts.unlink()
        run_import(workspace, open_import(workspace, ImportConfig(str(file))))
        file.unlink()
        print(f"imported {source}", file=sys.stderr, flush=True)
    _judge(workspace)
    _decide(workspace)
    _score(workspace)


def _judge(workspace: Workspace) -> None:
    """Two judges look at every third comparison; one in eight of their opinions is the other than the source's."""
    from assay.domain import Answer, Judgment
    from assay.store.records import insert_annotator, insert_judgments

    other: dict[str, Answer] = {"A": "B", "B": "A"}
    for places in _batches(workspace):
        with workspace.store.unit() as db:
            judges = [insert_annotator(db, "llm", name) for name in ("judge-small", "judge-large")]
            said = db.execute(
                "SELECT comparison_id, answer, rowid FROM judgments WHERE rowid BETWEEN ? AND ? AND rowid % 3 = 0",
                places,
            ).fetchall()
            opinions = [
                Judgment(
                    comparison,
                    judge,
                    other[answer] if (place // 3 + k) % 8 == 0 else answer,
                    strength=2,
                    confidence=0.8,
                    rationale="The better one answers the question and says why.",
                    shown_order="AB" if place % 2 else "BA",
                )
                for comparison, answer, place in said
                for k, judge in enumerate(judges)
            ]
        with workspace.store.unit() as db:
            insert_judgments(db, opinions, None)


def _decide(workspace: Workspace) -> None:
    """Half of the comparisons are in a pool, in blocks as stages leave them; some were decided twice."""
    from assay.domain import Pool
    from assay.store.records import Decision, insert_decisions

    pools: tuple[Pool, ...] = ("silver", "silver", "silver", "discarded", "gold", "recycled", "pending")
    for places in _batches(workspace):
        with workspace.store.unit() as db:
            ids = db.execute(
                "SELECT comparison_id, rowid FROM comparisons WHERE rowid BETWEEN ? AND ? AND rowid % 2 = 0", places
            ).fetchall()
            made = []
            for comparison, place in ids:
                pool = pools[place // 2 % 7] if place % 100 else "gold"
                label = None if pool in ("discarded", "pending") else "A" if place % 3 else "B"
                if place % 10 == 0:
                    made.append(Decision(comparison, "pending", None, "queued", "waits for an answer"))
                made.append(Decision(comparison, pool, label, "rule", f"decided {pool}", iteration=1))  # type: ignore[arg-type]
            insert_decisions(db, made, None)


def _score(workspace: Workspace) -> None:
    """Two reward models' scores of the responses of every tenth comparison; one in fifty failed."""
    from assay.score import Score, ScoreFailure, ScoreResult
    from assay.store.records import insert_scores

    for places in _batches(workspace):
        with workspace.store.unit() as db:
            rows = db.execute(
                """SELECT unnest([response_a, response_b]) FROM comparisons
                   WHERE rowid BETWEEN ? AND ? AND rowid % 10 = 0""",
                places,
            ).fetchall()
            for model in ("rm-small", "rm-large"):
                scores: list[tuple[str, ScoreResult]] = [
                    (
                        response,
                        ScoreFailure("too_long", "4097 tokens", model)
                        if n % 50 == 0
                        else Score((n % 997) / 100 - 5, model, f"v-{model}", "t", tokens=200, truncated=False),
                    )
                    for n, (response,) in enumerate(rows)
                ]
                insert_scores(db, scores, model=model, version=f"v-{model}", template_hash="t", run_id=None)


def _batches(workspace: Workspace) -> Iterator[list[int]]:
    with workspace.store.unit() as db:
        row = db.execute("SELECT count(*) FROM comparisons").fetchone()
    assert row is not None
    for low in range(0, int(row[0]), BATCH):
        yield [low, low + BATCH - 1]


def cases(rows: int) -> dict[str, tuple[Filter, dict[str, Any]]]:
    """Name -> filter, and further arguments of `first_rows`."""
    from assay.browsing.filters import Filter
    from assay.browsing.walk import Cursor

    return {
        "everything": (Filter(), {}),
        "from the middle": (Filter(), {"after": Cursor(rows // 2)}),
        "newest first": (Filter(), {"order": "newest"}),
        "source, 40 %": (Filter(sources=("chat",)), {}),
        "source, 20 %, one block": (Filter(sources=("maths",)), {}),
        "source, 5 %, at the end": (Filter(sources=("expert",)), {}),
        "category": (Filter(categories=("safety",)), {}),
        "source and language": (Filter(sources=("code",), languages=("zh",)), {}),
        "pool gold": (Filter(pools=("gold",)), {}),
        "pool unverified": (Filter(pools=("unverified",)), {}),
        "label B": (Filter(labels=("B",)), {}),
        "disagreement": (Filter(conflict="any"), {}),
        "against the source": (Filter(conflict="against_source"), {}),
        "reward range": (Filter(scored_by="rm-small", reward_low=4.0), {}),
        "reward range, rare": (Filter(scored_by="rm-small", reward_low=4.95), {}),
        "record id": (Filter(id="maths-17"), {}),
        "text, common": (Filter(text="日本語"), {}),
        "text, rare": (Filter(text=RARE.upper()), {}),
        "text, rare, 10,000 rows away": (Filter(text=RARE.upper()), {"order": "newest"}),
    }


def browse(workspace: Workspace, wanted: Filter, options: dict[str, Any]) -> int:
    """The first page that has rows, each try with a DuckDB instance of its own. Returns how many rows."""
    from assay.browsing.page import first_rows
    from assay.store.instances import close_idle

    options = dict(options)
    while True:
        close_idle()
        with workspace.store.unit() as db:
            page = first_rows(db, wanted, limit=LIMIT, **options)
        if page.rows or page.after is None:
            return len(page.rows)
        options["after"] = page.after


#: What the same question is in plain SQL over the views, and in Polars over the flat file.
PLAIN = {
    "everything": "true",
    "source, 20 %, one block": """EXISTS (SELECT 1 FROM origins o
        WHERE o.comparison_id = p.comparison_id AND o.source = 'maths')""",
    "pool gold": "p.pool = 'gold'",
    "label B": "p.label = 'B'",
    "text, rare": f"""contains(lower(a.content), '{RARE}') OR contains(lower(b.content), '{RARE}')
        OR contains(lower(q.messages[-1].content), '{RARE}')""",
}


def plain_select(workspace: Workspace, condition: str) -> int:
    from assay.store.instances import close_idle

    close_idle()
    with workspace.store.unit() as db:
        return len(
            db.execute(
                f"""SELECT p.comparison_id, left(q.messages[-1].content, 240), left(a.content, 240),
                      left(b.content, 240), p.pool, p.label, p.rule,
                      (SELECT list(DISTINCT o.source) FROM origins o WHERE o.comparison_id = p.comparison_id)
                    FROM pools p JOIN prompts q USING (prompt_id) JOIN responses a ON a.response_id = p.response_a
                    JOIN responses b ON b.response_id = p.response_b
                    WHERE {condition} ORDER BY p.comparison_id LIMIT {LIMIT}"""
            ).fetchall()
        )


def polars_condition(case: str) -> pl.Expr:
    import polars as pl

    return {
        "everything": pl.lit(True),
        "source, 20 %, one block": pl.col("source") == "maths",
        "pool gold": pl.col("pool") == "gold",
        "label B": pl.col("label") == "B",
        "text, rare": pl.any_horizontal(
            pl.col(name).str.to_lowercase().str.contains(RARE, literal=True) for name in ("prompt", "a", "b")
        ),
    }[case]


def polars_head(file: Path, condition: pl.Expr) -> int:
    import polars as pl

    return pl.scan_parquet(file).filter(condition).head(LIMIT).collect(engine="streaming").height


def flatten(workspace: Workspace, file: Path) -> None:
    """The store's rows as one Parquet file in the order of import: what the peer reads."""
    import pyarrow.parquet as pq

    part = file.with_name(file.name + ".part")
    writer: Any = None
    with workspace.store.unit() as db:
        db.execute("CREATE TEMP TABLE labelled AS SELECT comparison_id, pool, label FROM pools")
        total = db.execute("SELECT count(*) FROM comparisons").fetchall()[0][0]
        for low in range(0, total, 2 * BATCH):
            rows = db.sql(
                """SELECT c.comparison_id, q.messages[-1].content AS prompt, a.content AS a, b.content AS b, p.pool,
                          p.label, o.source, o.category, o.language
                   FROM comparisons c JOIN labelled p USING (comparison_id) JOIN origins o USING (comparison_id)
                   JOIN prompts q ON q.prompt_id = c.prompt_id JOIN responses a ON a.response_id = c.response_a
                   JOIN responses b ON b.response_id = c.response_b
                   WHERE c.rowid BETWEEN ? AND ? ORDER BY c.rowid""",
                params=[low, low + 2 * BATCH - 1],
            ).to_arrow_table()
            writer = writer or pq.ParquetWriter(part, rows.schema)
            writer.write_table(rows)
    writer.close()
    part.rename(file)


def measured(work: Callable[[], int]) -> tuple[float, float]:
    """Milliseconds of wall clock and of CPU time."""
    started, used = time.perf_counter(), time.process_time()
    rows = work()
    wall, cpu = 1e3 * (time.perf_counter() - started), 1e3 * (time.process_time() - used)
    if not rows:
        raise RuntimeError("no rows: the store is not what this benchmark fills it with")
    return wall, cpu


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, round(share * (len(values) - 1)))]


def all_cases(workspace: Workspace, rounds: int, report: Report) -> None:
    asked = cases(report.figures["rows"])
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
    for _ in range(rounds):
        for name, (wanted, options) in asked.items():
            found[name].append(measured(lambda wanted=wanted, options=options: browse(workspace, wanted, options)))  # type: ignore[misc]
    print(f"{'first rows of':<30}{'p50 ms':>8}{'p95 ms':>8}{'CPU ms':>8}")
    figures = {}
    for name, values in found.items():
        walls = [wall for wall, _ in values]
        figures[name] = {
            "p50_ms": round(percentile(walls, 0.5)),
            "p95_ms": round(percentile(walls, 0.95)),
            "cpu_ms": round(statistics.median(cpu for _, cpu in values)),
        }
        print(f"{name:<30}" + "".join(f"{value:>8}" for value in figures[name].values()), flush=True)
    report.figures["first_rows"] = figures
    walls = [wall for values in found.values() for wall, _ in values]
    report.figures["all"] = {"p50_ms": round(percentile(walls, 0.5)), "p95_ms": round(percentile(walls, 0.95))}
    print(f"{'all':<30}" + "".join(f"{value:>8}" for value in report.figures["all"].values()))


def against_peers(workspace: Workspace, file: Path, rounds: int, report: Report) -> None:
    asked = cases(report.figures["rows"])
    speeds: dict[str, list[float]] = {"assay": [], "select": [], "polars": []}
    for case, condition in PLAIN.items():
        wanted, options = asked[case]
        contenders: dict[str, Callable[[], float]] = {
            "assay": lambda w=wanted, o=options: 1e3 / measured(lambda: browse(workspace, w, o))[0],  # type: ignore[misc]
            "select": lambda c=condition: 1e3 / measured(lambda: plain_select(workspace, c))[0],  # type: ignore[misc]
            "polars": lambda c=case: 1e3 / measured(lambda: polars_head(file, polars_condition(c)))[0],  # type: ignore[misc]
        }
        rates = interleaved(contenders, rounds)
        for name, values in rates.items():
            speeds[name] += values
        told = {name: round(1e3 / statistics.median(values)) for name, values in rates.items()}
        print(f"{case:<30}" + "".join(f"  {name} {ms} ms" for name, ms in told.items()), flush=True)
        report.figures.setdefault("peers_ms", {})[case] = told
    report.ratios["first rows / SELECT over pools"] = ratio(speeds["assay"], speeds["select"])
    report.ratios["first rows / Polars over Parquet"] = ratio(speeds["assay"], speeds["polars"])


def main() -> None:
    from assay.workspace import Workspace

    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9, help="of every case")
    parser.add_argument("--peer-rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the store is kept for the next run; default: nowhere")
    options = parser.parse_args()
    rows, rounds, peer_rounds = options.rows, options.rounds, options.peer_rounds
    if options.quick:
        rows, rounds, peer_rounds = 50_000, 2, 1
    report = Report("data_browser", figures={"rows": rows, "versions": versions("duckdb", "polars")})
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        file = folder / "flat.parquet"
        if not file.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            workspace = Workspace.create(folder / "workspace")
            fill(workspace, rows, folder)
            flatten(workspace, file)
        workspace = Workspace.open(folder / "workspace")
        all_cases(workspace, rounds, report)
        against_peers(workspace, file, peer_rounds, report)
    report.finish(options)


if __name__ == "__main__":
    main()
