"""RM-Bench: substance over style. Three right and three wrong responses in rising style, compared all with all.

Source: arXiv 2410.16184 and its repository (code read). Cell (i, j) of the matrix is the share of prompts
whose chosen response of style i scores above the rejected one of style j. hard = mean of the cells where the chosen
one is plainer, normal = mean of the diagonal, easy = the rest; a domain is the mean of the three; overall is the mean
of the four domains, with both safety parts pooled, and so is each cell over all domains (`overall/CELL`). The styles
come in the order concise, detailed, detailed with Markdown; a wrong order would exchange easy and hard.
"""

import re
from collections.abc import Sequence
from itertools import product

from assay_rm_training.benchmarks.benchmark import BenchmarkFigures, ScoredItems, TiePolicy, win
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, Record
from assay_rm_training.benchmarks.published import PublishedBenchmark
from assay_rm_training.benchmarks.strata import Floats, Means, mean_of, sizes_of

STYLES = ("concise", "detailed", "markdown")
CELLS = tuple(product(range(3), repeat=2))
CELL_NAMES = tuple(f"{STYLES[i]}>{STYLES[j]}" for i, j in CELLS)
DIFFICULTIES = {
    "easy": tuple(n for n, (i, j) in enumerate(CELLS) if i > j),
    "normal": tuple(n for n, (i, j) in enumerate(CELLS) if i == j),
    "hard": tuple(n for n, (i, j) in enumerate(CELLS) if i < j),
}
DOMAINS = ("chat", "math", "code", "safety")
SAFETY_PARTS = ("safety-refuse", "safety-response")
_IN_FILE_NAME = re.compile(r"(?<![a-z])(safety-refuse|safety-response|chat|math|code)(?![a-z])")
#: Fallback for rows whose file has another name: parts of subset names by domain.
_BY_SUBSET = (
    ("alpacaeval", "chat"),
    ("humaneval", "code"),
    ("math", "math"),
    ("prm", "math"),
    ("gsm", "math"),
    ("should-respond", "safety-response"),
    ("should-refuse", "safety-refuse"),
    ("refusal", "safety-refuse"),
    ("donotanswer", "safety-refuse"),
)


def wins(scores: Sequence[float], ties: TiePolicy = "official") -> list[float]:
    """The nine cells of one prompt, row by row; `scores`: three of the chosen, then three of the rejected responses."""
    return [win(scores[i], scores[3 + j], ties) for i, j in CELLS]


class RMBench(PublishedBenchmark, name="rm-bench"):
    def read(self, record: Record) -> BenchmarkItem:
        sides = {side: record.texts(side) for side in ("chosen", "rejected")}
        for side, texts in sides.items():
            if len(texts) != len(STYLES):
                raise record.error(f"{len(texts)} responses instead of {len(STYLES)}, one a style", side)
        domain = _domain(record)
        return BenchmarkItem(
            id=record.identity("id"),
            prompt=record.prompt("prompt"),
            responses=(*sides["chosen"], *sides["rejected"]),
            gold=(1.0,) * 3 + (0.0,) * 3,
            subset=str(record.values.get("subset") or domain),
            part=domain,
        )

    def credit(self, item: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> float:
        assert outcome.scores is not None
        return sum(wins(outcome.scores, ties)) / len(CELLS)

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        by_domain = scored.grouped(lambda item: item.part.split("-")[0])
        groups = {domain: by_domain[domain] for domain in DOMAINS if domain in by_domain}
        parts = scored.grouped(lambda item: item.part)
        groups |= {part: parts[part] for part in SAFETY_PARTS if part in parts}
        strata = scored.strata(groups, CELL_NAMES, lambda _, scores: wins(scores, scored.ties))
        shares = {f"{s.name}/{cell}": [(s.name, cell)] for s in strata for cell in CELL_NAMES}
        if len(domains := [s.name for s in strata if s.name in DOMAINS]) == 1:  # the mean over one is a share
            shares |= {f"overall/{cell}": [(domains[0], cell)] for cell in CELL_NAMES}
        return BenchmarkFigures(
            strata,
            _combine,
            shares=shares,
            sizes=sizes_of(strata),
            counts={
                "ties": sum(
                    outcome.scores is not None and outcome.scores[i] == outcome.scores[3 + j]
                    for outcome in scored.outcomes
                    for i, j in CELLS
                )
            },
            missing=[name for name in DOMAINS if name not in {stratum.name for stratum in strata}],
        )


def _domain(record: Record) -> str:
    """The row's `domain`, else from its file's name, else from its subset."""
    label = record.values.get("domain")
    if isinstance(label, str) and label:
        domain = label.strip().lower()
        if domain.split("-")[0] in DOMAINS:
            return domain
        raise record.error(f"{label!r} is not one of {', '.join((*DOMAINS, *SAFETY_PARTS))}", "domain")
    if not record.file.startswith("hub:") and (
        match := _IN_FILE_NAME.findall(record.file.rsplit("/", 1)[-1].lower().replace("_", " "))
    ):
        return str(match[0])
    subset = str(record.values.get("subset") or "").lower()
    for part, domain in _BY_SUBSET:
        if part in subset:
            return domain
    raise record.error("missing, and neither the file's name nor `subset` tells it", "domain")


def _combine(means: Means) -> dict[str, Floats]:
    combined: dict[str, Floats] = {}
    domains: dict[str, dict[str, Floats]] = {}
    cells_of: dict[str, list[Floats]] = {}
    for name in (*DOMAINS, *SAFETY_PARTS):
        if f"{name}/{CELL_NAMES[0]}" not in means:
            continue
        cells = [means[f"{name}/{cell}"] for cell in CELL_NAMES]
        levels = {level: mean_of([cells[n] for n in members]) for level, members in DIFFICULTIES.items()}
        combined[name] = mean_of(list(levels.values()))
        combined.update({f"{name}/{level}": value for level, value in levels.items()})
        combined.update({f"{name}/{cell}": value for cell, value in zip(CELL_NAMES, cells, strict=True)})
        if name in DOMAINS:
            domains[name], cells_of[name] = levels, cells
    if not domains:
        return {}
    overall = {level: mean_of([levels[level] for levels in domains.values()]) for level in DIFFICULTIES}
    together = {
        f"overall/{cell}": mean_of([cells[n] for cells in cells_of.values()]) for n, cell in enumerate(CELL_NAMES)
    }
    return {"overall": mean_of([combined[name] for name in domains]), **overall, **together, **combined}


BENCHMARK = RMBench()
