"""How soon the data browser has the first rows of 1M comparisons: a page of each filter and search.

Two columns. "page": what somebody who looks around waits for, over HTTP from a running `assay web`, from sending the
request until the rows are parsed. "cold": `assay.browsing` with a new DuckDB instance, from before the file is opened
until the rows are there, with its CPU time, which depends less on what else the machine does. In both a page without
rows is asked on. Then a text that stands nowhere, searched to the end: its first answer and its longest.

Peers, asked for the same rows in the same run, cold as well: the plain SELECT over the view `pools` with its joins, and
Polars over the same rows in one flat Parquet file. The requirement is 300 ms / p95 of all pages: more than 1 holds it.

    python benchmarks/data_browser.py --quick
    python benchmarks/data_browser.py --folder /tmp/browser        # kept, and used again by the next run
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from measure import Cost, Report, arguments, compare, decided, spent
from preference_texts import write_pairs
from servers import free_port, server

MEASURES = (
    "platform/assay/browsing",
    "platform/assay/store",
    "web/assay_web/records",
    "web/assay_web/server",
)

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
LIMIT_MS = 300.0  #: within which they are to be there
NOWHERE = "heliotrope-quincunx"  #: stands in no text
RARE = "quincunx-heliotrope"  #: stands in one row of ten thousand


def fill(workspace: Workspace, rows: int, scratch: Path) -> None:
    """`rows` comparisons by bulk import; judges' opinions on a third, decisions on half, scores of a tenth."""
    import duckdb

    from assay_pipelines.importers.run import open_import, run_import
    from assay_pipelines.importers.source import ImportConfig

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
            pairs = db.execute(
                "SELECT comparison_id, answer, rowid FROM judgments WHERE rowid BETWEEN ? AND ? AND rowid % 3 = 0",
                places,
            ).fetchall()
            opinions = [
                Judgment(
                    comparison,
                    judge,
                    other[answer] if (position // 3 + k) % 8 == 0 else answer,
                    strength=2,
                    confidence=0.8,
                    rationale="The better one answers the question and says why.",
                    shown_order="AB" if position % 2 else "BA",
                )
                for comparison, answer, position in pairs
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
            decisions = []
            for comparison, position in ids:
                pool = pools[position // 2 % 7] if position % 100 else "gold"
                label = None if pool in ("discarded", "pending") else "A" if position % 3 else "B"
                if position % 10 == 0:
                    decisions.append(Decision(comparison, "pending", None, "queued", "waits for an answer"))
                decisions.append(Decision(comparison, pool, label, "rule", f"decided {pool}", iteration=1))  # type: ignore[arg-type]
            insert_decisions(db, decisions, None)


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


def browse(workspace: Workspace, criteria: Filter, options: dict[str, Any]) -> int:
    """The first page that has rows, each try with a DuckDB instance of its own. Returns how many rows."""
    from assay.browsing.page import first_rows
    from assay.store.instances import close_idle

    options = dict(options)
    while True:
        close_idle()
        with workspace.store.unit() as db:
            page = first_rows(db, criteria, limit=LIMIT, **options)
        if page.rows or page.after is None:
            return len(page.rows)
        options["after"] = page.after


@contextmanager
def pages(workspace: Workspace) -> Iterator[httpx.Client]:
    """Somebody at the pages of a running `assay web`."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "assay", "web", "--open", "--port", url.rpartition(":")[2]]
    with (
        server([*command, "--workspace", workspace.root], url, "/api/session"),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        client.post("/api/session", json={"name": "reader"}).raise_for_status()
        yield client


def asked_of_server(client: httpx.Client, criteria: Filter, options: dict[str, Any]) -> Iterator[int]:
    """Rows of each page until one has some."""
    parameters: dict[str, Any] = {
        "pool": criteria.pools,
        "source": criteria.sources,
        "category": criteria.categories,
        "label": criteria.labels,
    }
    parameters |= {name: getattr(criteria, name) for name in ("conflict", "scored_by", "reward_low", "text", "id")}
    parameters |= {"language": criteria.languages, "limit": LIMIT, **options}
    query = {name: str(v) if name == "after" else v for name, v in parameters.items() if v not in (None, "", ())}
    while True:
        page = client.get("/api/comparisons", params=query).raise_for_status().json()
        yield len(page["rows"])
        if page["rows"] or page["after"] is None:
            return
        query["after"] = page["after"]


def searched_to_the_end(client: httpx.Client, report: Report) -> None:
    """A text that stands nowhere: what somebody sees until the page says so."""
    from assay.browsing.filters import Filter

    waits: list[float] = []
    started = time.perf_counter()
    for rows in asked_of_server(client, Filter(text=NOWHERE), {}):
        if rows:
            raise RuntimeError("found what stands nowhere")
        waits.append(1e3 * (time.perf_counter() - started) - sum(waits))
    figures = {
        "first_answer_ms": round(waits[0]),
        "longest_answer_ms": round(max(waits)),
        "whole_s": round(sum(waits) / 1e3, 1),
        "answers": len(waits),
    }
    print("text that stands nowhere: " + ", ".join(f"{name} {value}" for name, value in figures.items()))
    report.figures["nowhere"] = figures


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


def all_cases(workspace: Workspace, client: httpx.Client, rounds: int, report: Report) -> list[float]:
    """Milliseconds of every page."""
    all_filters = cases(report.figures["rows"])
    cold: dict[str, list[tuple[float, float]]] = {name: [] for name in all_filters}
    page: dict[str, list[float]] = {name: [] for name in all_filters}
    for _ in range(rounds):
        for name, (criteria, options) in all_filters.items():
            cold[name].append(measured(lambda w=criteria, o=options: browse(workspace, w, o)))  # type: ignore[misc]
        for name, (criteria, options) in all_filters.items():
            page[name].append(measured(lambda w=criteria, o=options: sum(asked_of_server(client, w, o)))[0])  # type: ignore[misc]
    print(f"{'first rows of':<30}{'page p50':>10}{'p95 ms':>8}{'cold p50':>10}{'p95 ms':>8}{'CPU ms':>8}")
    figures = {}
    for name in [*all_filters, "all"]:
        walls = page[name] if name in page else [wall for values in page.values() for wall in values]
        colds = cold[name] if name in cold else [pair for values in cold.values() for pair in values]
        figures[name] = {
            "page_p50_ms": round(percentile(walls, 0.5)),
            "page_p95_ms": round(percentile(walls, 0.95)),
            "cold_p50_ms": round(percentile([wall for wall, _ in colds], 0.5)),
            "cold_p95_ms": round(percentile([wall for wall, _ in colds], 0.95)),
            "cold_cpu_ms": round(statistics.median(cpu for _, cpu in colds)),
        }
        line = zip(figures[name].values(), (10, 8, 10, 8, 8), strict=True)
        print(f"{name:<30}" + "".join(f"{value:>{width}}" for value, width in line), flush=True)
    report.figures["first_rows"] = figures
    return [percentile([values[n] for values in page.values()], 0.95) for n in range(rounds)]


def against_peers(workspace: Workspace, file: Path, options: argparse.Namespace, report: Report) -> None:
    """All cases that the peers can answer in turn, in each round."""
    all_filters = cases(report.figures["rows"])
    works: dict[str, Callable[[str, str], int]] = {
        "assay": lambda case, _: browse(workspace, *all_filters[case]),
        "select": lambda _, condition: plain_select(workspace, condition),
        "polars": lambda case, _: polars_head(file, polars_condition(case)),
    }
    milliseconds: dict[str, dict[str, list[float]]] = {case: {name: [] for name in works} for case in PLAIN}

    def turn(name: str) -> Callable[[], Cost]:
        def pages() -> None:
            for case, condition in PLAIN.items():
                milliseconds[case][name].append(measured(lambda: works[name](case, condition))[0])  # noqa: B023

        return lambda: spent(pages, amount=len(PLAIN), least_s=0.3)

    compared = compare({name: turn(name) for name in works}, options, rounds=options.peer_rounds)
    for case, by_name in milliseconds.items():
        medians = {name: round(statistics.median(values)) for name, values in by_name.items()}
        print(f"{case:<30}" + "".join(f"  {name} {ms} ms" for name, ms in medians.items()), flush=True)
        report.figures.setdefault("peers_ms", {})[case] = medians
    report.ratios["first rows / SELECT over pools"] = compared.ratio("assay", "select")
    report.ratios["first rows / Polars over Parquet"] = compared.ratio("assay", "polars")


def main() -> None:
    from assay.workspace import Workspace

    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9, help="of every case")
    parser.add_argument("--peer-rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the store is kept for the next run; default: nowhere")
    options = parser.parse_args()
    rows, rounds = (50_000, 3) if options.quick else (options.rows, options.rounds)
    report = Report("data_browser", measures=MEASURES, figures={"rows": rows})
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        file = folder / "flat.parquet"
        if not file.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            workspace = Workspace.create(folder / "workspace")
            fill(workspace, rows, folder)
            flatten(workspace, file)
        workspace = Workspace.open(folder / "workspace")
        with pages(workspace) as client:
            p95 = all_cases(workspace, client, rounds, report)
            searched_to_the_end(client, report)
        title = "300 ms / p95 of all pages"
        report.ratios[title], report.limits[title] = decided([LIMIT_MS / ms for ms in p95]), 1.0
        against_peers(workspace, file, options, report)
    report.finish(options)


if __name__ == "__main__":
    main()
