"""The data card of an export: counts, licences, lineage and what was left out, as a README of the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from assay.runs.record import code_version
from assay_pipelines.exporters.job import JUDGMENTS, PAIRS, ExportJob

SHOWN = 50  #: rows of a table in the card; the others are counted


@dataclass(frozen=True)
class CardFacts:
    """`sources`: (source, licence, pairs); licence 'not stated' if none. `runs`: (run, kind, start, code)."""

    title: str
    pairs: int
    ties: int
    undecided: int
    barred: int  #: pairs that the form has no place for
    judgments: int
    rationales: bool
    snapshot: dict[str, str] | None
    selection: dict[str, Any] | None
    run_id: str | None
    code: str
    written_at: str
    sources: list[tuple[str, str, int]]
    pools: list[tuple[str, int]]
    categories: list[tuple[str, int]]
    languages: list[tuple[str, int]]
    annotators: list[tuple[str, int, int]]
    runs: list[tuple[str, str, str, str]]


def facts_of(job: ExportJob, judgments: int) -> CardFacts:
    """Counted in the store, in the unit of work that wrote the files."""

    def rows(query: str) -> list[Any]:
        return job.db.execute(query).fetchall()

    def counted(column: str) -> list[tuple[str, int]]:
        return rows(f"SELECT coalesce({column}, '(none)'), count(*) FROM {PAIRS} GROUP BY 1 ORDER BY 2 DESC, 1")

    counts, snapshot, selection = job.counts, job.snapshot, job.selection
    return CardFacts(
        job.title,
        pairs := int(rows(f"SELECT count(*) FROM {PAIRS}")[0][0]),
        counts.ties,
        counts.matched - counts.pairs - counts.ties,
        counts.pairs - pairs,
        judgments,
        job.rationales,
        {"name": snapshot.name, "id": snapshot.id, "content_hash": snapshot.content_hash} if snapshot else None,
        {"pools": selection.pools, "sources": selection.sources, "categories": selection.categories}
        if selection
        else None,
        job.run_id,
        code_version(),
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        sources=rows(
            f"""SELECT source, coalesce(license, 'not stated'), count(DISTINCT comparison_id)
                FROM origins SEMI JOIN {PAIRS} USING (comparison_id) GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2"""
        ),
        pools=counted("pool"),
        categories=counted("category"),
        languages=counted("language"),
        annotators=rows(
            f"""SELECT kind, count(DISTINCT annotator_id), count(*)
               FROM {JUDGMENTS} SEMI JOIN items USING (comparison_id) JOIN annotators USING (annotator_id)
               GROUP BY 1 ORDER BY 3 DESC, 1"""
        ),
        runs=rows(
            """SELECT run_id, kind, strftime(started_at, '%Y-%m-%d %H:%M'), code_version FROM runs WHERE run_id IN (
                   SELECT run_id FROM origins SEMI JOIN items USING (comparison_id)
                   UNION SELECT run_id FROM decisions SEMI JOIN items USING (comparison_id)
                   UNION SELECT run_id FROM judgments SEMI JOIN items USING (comparison_id))
               ORDER BY started_at, run_id"""
        ),
    )


def card(facts: CardFacts) -> str:
    """The README, Markdown with a YAML block in front."""
    import yaml

    licences = sorted({licence for _, licence, _ in facts.sources})
    meta = {
        "pretty_name": facts.title,
        "license": "other" if licences != ["not stated"] else "unknown",
        "license_name": ", ".join(licences),
        "tags": ["preference", "reward-model", "assay"],
        "size_categories": [_size(facts.pairs)],
        "configs": [
            {"config_name": "pairs", "default": True, "data_files": [_split("pairs")]},
            {"config_name": "judgments", "data_files": [_split("judgments")]},
        ],
    }
    block = yaml.safe_dump(meta, sort_keys=False, allow_unicode=True)
    if facts.snapshot is not None:
        what = f"snapshot `{facts.snapshot['name']}` (`{facts.snapshot['id']}`)"
        lineage = f"Content hash of the snapshot: `{facts.snapshot['content_hash']}`."
    else:
        chosen = facts.selection or {}
        what = "; ".join(f"{name}: {', '.join(values)}" for name, values in chosen.items() if values)
        lineage = "A selection, not a snapshot: the same selection of a later store can hold other pairs."
    reasons = "with the annotators' own reasons" if facts.rationales else "without the annotators' reasons"
    sections = [
        f"---\n{block}---\n\n# {facts.title}",
        f"{facts.pairs} preference pairs, written by Assay from {what}.",
        "Load them with `datasets.load_dataset(FOLDER)`: `prompt` is a list of messages; so are `chosen` and "
        "`rejected`, as a rule one of the assistant. `datasets.load_dataset(FOLDER, 'judgments')` has "
        f"{facts.judgments} judgments of the same comparisons, ties included, {reasons}; its `A` and `B` are "
        "`response_a` and `response_b`.",
        f"Left out of the pairs: {facts.ties} ties, {facts.undecided} comparisons without a label, "
        f"{facts.barred} pairs that have no place in this form.",
        "People appear under pseudonyms by a hash whose salt was drawn for this export and kept nowhere.",
        _table("Sources and licences", ("source", "licence", "pairs"), facts.sources),
        "A pair that several sources hold counts under each. Each source's licence still applies to its pairs.",
        _table("Pools", ("pool", "pairs"), facts.pools),
        _table("Categories", ("category", "pairs"), facts.categories),
        _table("Languages", ("language", "pairs"), facts.languages),
        _table("Annotators", ("kind", "annotators", "judgments"), facts.annotators),
        "## Lineage",
        f"{lineage} Written by run `{facts.run_id}` with Assay {facts.code} on {facts.written_at}.",
        _table("Runs that made the data", ("run", "kind", "started (UTC)", "code version"), facts.runs, level=3),
    ]
    return "\n\n".join(sections) + "\n"


def _split(name: str) -> dict[str, str]:
    return {"split": "train", "path": f"{name}/train.parquet"}


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], level: int = 2) -> str:
    lines = [f"{'#' * level} {title}", "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows[:SHOWN]]
    if len(rows) > SHOWN:
        lines += ["", f"... and {len(rows) - SHOWN} more; all are in the table of the machine-readable facts."]
    return "\n".join(lines)


def _cell(cell: Any) -> str:
    return " ".join(str(cell).split()).replace("|", "\\|")


def _size(pairs: int) -> str:
    """The Hub's size categories."""
    for limit, name in ((1000, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M")):
        if pairs < limit:
            return name
    return "1M<n<10M" if pairs < 10**7 else "n>10M"
