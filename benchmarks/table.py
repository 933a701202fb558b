"""Writes the table of docs/performance.md from the stored baselines.

    python benchmarks/table.py

Covers: one row a ratio that was measured in rounds, by wall and by CPU seconds, of each script's newest baseline; a
mark where the code has changed since. Leaves out: what was measured once (the quality of curation, for instance),
which is on the page of its part.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from measure import LEAST_ROUNDS
from measured_code import ROOT
from stale import Baseline, stored_baselines

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- Written by benchmarks/table.py. -->\n", "<!-- End of the table. -->\n"
OLDER = " **older than the code**"
TITLES = ("script", "ours / peer", "ratio (wall)", "ratio (CPU)", "limit", "machine", "commit")


def newest(baselines: list[Baseline]) -> list[Baseline]:
    """One a script: of the latest day (undated ones are earlier), and of those the full one rather than `--quick`."""
    chosen: dict[str, Baseline] = {}
    for baseline in sorted(baselines, key=lambda each: (each.result.get("date", ""), not each.quick)):
        chosen[baseline.script] = baseline
    return [chosen[script] for script in sorted(chosen)]


def table(baselines: list[Baseline], is_stale: Callable[[Baseline], bool]) -> str:
    """Markdown, a line a ratio."""
    lines = [TITLES, ("---",) * len(TITLES)]
    for baseline in newest(baselines):
        lines += _rows(baseline, OLDER if is_stale(baseline) else "")
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _rows(baseline: Baseline, mark: str) -> list[tuple[str, ...]]:
    result, machine = baseline.result, baseline.result["machine"]
    spread = result.get("spread") or result["figures"].get("spread", {})
    spread = {name: each for name, each in spread.items() if each["rounds"] >= LEAST_ROUNDS}
    refused = result.get("refused", {})
    names = [name for name in (*result["ratios"], *refused) if name in spread or name in refused]
    titles = dict.fromkeys(name.removesuffix(", CPU") for name in names)
    where = f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_at_start']:.0f}"
    commit = baseline.code.commit or "not recorded"
    return [
        (
            f"`{baseline.script}`{' --quick' if baseline.quick else ''}",
            title.replace("|", "/"),
            _cell(title, spread, refused),
            _cell(f"{title}, CPU", spread, refused),
            _limit(result, title, spread),
            where,
            commit + mark,
        )
        for title in titles
    ]


def _cell(name: str, spread: dict[str, Any], refused: dict[str, str]) -> str:
    if name in spread:
        one = spread[name]
        text = f"{one['median']:.3g} ({one['low']:.3g} to {one['high']:.3g})"
        return text + (" *undecided*" if one["low"] <= 1 <= one["high"] else "")
    return f"none: {refused[name]}" if name in refused else ""


def _limit(result: dict[str, Any], title: str, spread: dict[str, Any]) -> str:
    least = result.get("limits", {}).get(title)
    if least is None:
        return ""
    by_wall = title in result.get("by_wall", ())
    deciding = (not by_wall and spread.get(f"{title}, CPU")) or spread.get(title)
    text = f"at least {least:g}{' by wall' if by_wall else ''}"
    if not deciding:
        return text
    word = "met" if deciding["low"] >= least else "**missed**" if deciding["high"] < least else "*undecided*"
    return f"{text}: {word}"


def without_marks(page: str) -> str:
    """The page without what depends on the code of today."""
    return page.replace(OLDER, "")


def written(page: str, baselines: list[Baseline], is_stale: Callable[[Baseline], bool]) -> str:
    """`page` with the table between its two comments renewed. Raises ValueError where they are missing."""
    text, count = re.subn(
        f"(?s){re.escape(BEGIN)}.*?{re.escape(END)}",
        lambda _: f"{BEGIN}\n{table(baselines, is_stale)}\n{END}",
        page,
    )
    if count != 1:
        raise ValueError(f"{PAGE.name} has no {BEGIN.strip()}")
    return text


def main() -> None:
    PAGE.write_text(written(PAGE.read_text(), stored_baselines(), lambda baseline: bool(baseline.stale())))


if __name__ == "__main__":
    main()
