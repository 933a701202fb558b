"""Benchmarks whose title, source, hub splits and protocol in words are in `protocols/published.yaml`, by their name.

Leaves out: reading rows and computing figures (`protocols/`).
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import yaml

from assay_rm_training.benchmarks.benchmark import Benchmark, TiePolicy
from assay_rm_training.benchmarks.records import HubSplit


@cache
def _published() -> dict[str, dict[str, Any]]:
    text = (Path(__file__).parent / "protocols" / "published.yaml").read_text(encoding="utf-8")
    entries: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return entries


def published(name: str) -> Mapping[str, Any]:
    """The entry of the benchmark of this name."""
    return _published()[name]


class PublishedBenchmark(Benchmark):
    """Base of such a benchmark, whose subclass gives the `name` of an entry or is one of the benchmark it derives from.
    `described`: that entry; `protocol` is the statement, in which `tie_half` stands for `tie` under that policy."""

    described: ClassVar[Mapping[str, Any]]

    def __init_subclass__(cls, *, name: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if name is None:
            return
        described = published(name)
        cls.name, cls.described = name, described
        cls.title, cls.source = described["title"], described["source"]
        cls.hub = tuple(HubSplit(**split) for split in described.get("hub", ()))
        cls.obtain = described.get("obtain", "")
        cls.id_fields = tuple(described.get("id_fields", Benchmark.id_fields))
        cls.takes_decisions = described.get("takes_decisions", False)

    def statement(self, ties: TiePolicy) -> dict[str, str]:
        words = dict(self.described["protocol"])
        half = words.pop("tie_half", words["tie"])
        return words if ties == "official" else words | {"tie": half}
