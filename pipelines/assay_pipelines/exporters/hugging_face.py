"""A folder for `datasets.load_dataset`: Parquet in the configurations `pairs` and `judgments`, and a data card.

Metadata of the sources, record ids, times and decisions' reasons are left out, because they can name people. The card
has counts, licences, lineage and what was left out, as a README of the Hugging Face Hub.
"""

import json
import shutil
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from assay.runs.record import code_version
from assay_pipelines.exporters.job import CHOSEN, JUDGMENTS, PAIRS, REJECTED, RESOLVED, ExportFormat, ExportJob, Written
from assay_pipelines.exporters.message_forms import EVERYTHING, MessageForm

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
    from jinja2 import Environment, PackageLoader, StrictUndefined

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
    selected = "; ".join(f"{name}: {', '.join(chosen)}" for name, chosen in (facts.selection or {}).items() if chosen)
    environment = Environment(
        loader=PackageLoader("assay_pipelines.exporters", "."), trim_blocks=True, undefined=StrictUndefined
    )
    environment.filters["one_line"] = lambda text: " ".join(text.split())
    template = environment.get_template("card.md.j2")
    return template.render(facts=facts, meta=block, selected=selected, shown=SHOWN)


def _split(name: str) -> dict[str, str]:
    return {"split": "train", "path": f"{name}/train.parquet"}


def _size(pairs: int) -> str:
    """The Hub's size categories."""
    for limit, name in ((1000, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M")):
        if pairs < limit:
            return name
    return "1M<n<10M" if pairs < 10**7 else "n>10M"


MARKER = "assay-export.json"  #: marks the folder as an export, which a later one may replace


def write_folder(job: ExportJob) -> Written:
    for name in ("pairs", "judgments"):
        (job.target / name).mkdir()
    columns = job.forms.columns(images=_embedded_images(job))
    pairs = job.copy(
        f"""SELECT prompt, {CHOSEN} AS chosen, {REJECTED} AS rejected, comparison_id, source, category, license,
                   language, margin, {columns}pool
            FROM {PAIRS} ORDER BY comparison_id""",
        job.target / "pairs" / "train.parquet",
        ".parquet",
    )
    sides = "turns_a AS response_a, turns_b AS response_b" if job.forms.typed else "response_a, response_b"
    reason = "j.rationale" if job.rationales else "NULL::VARCHAR"
    judgments = job.copy(
        f"""SELECT comparison_id, prompt, {sides}, {columns}{job.pseudonyms.name()} AS annotator,
                   n.kind, j.answer, j.strength, j.confidence, j.shown_order, {reason} AS rationale
            FROM {RESOLVED} JOIN {JUDGMENTS} j USING (comparison_id) JOIN annotators n USING (annotator_id)
            ORDER BY comparison_id, annotator""",
        job.target / "judgments" / "train.parquet",
        ".parquet",
    )
    facts = facts_of(job, judgments)
    (job.target / MARKER).write_text(json.dumps(asdict(facts), indent=1, default=str) + "\n", encoding="utf-8")
    (job.target / "README.md").write_text(card(facts), encoding="utf-8")
    return Written(pairs, (f"{judgments} judgments",))


def _embedded_images(job: ExportJob) -> str:
    """SQL: the images of a row as `datasets` has them, {bytes, path}, in place of files."""
    if not job.copies.written:
        return ""
    folder = job.copies.folder
    job.db.execute("CREATE OR REPLACE TEMP TABLE image_files (path VARCHAR, content BLOB)")
    for path in folder.iterdir():
        job.db.execute("INSERT INTO image_files VALUES (?, ?)", [f"{folder.name}/{path.name}", path.read_bytes()])
    shutil.rmtree(folder)
    places = "SELECT unnest(images) AS path, unnest(range(len(images))) AS place"
    listed = "list({'bytes': content, 'path': path} ORDER BY place)"
    return f"(SELECT {listed} FROM ({places}) JOIN image_files USING (path)) AS images"


HUGGING_FACE = ExportFormat((), write_folder, form=MessageForm(EVERYTHING))
