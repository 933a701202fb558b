"""The benchmark `tickets`."""

from __future__ import annotations

from assay_rm_training.benchmarks.item import BenchmarkItem, Record
from assay_rm_training.benchmarks.protocols.pair_file import PairFile


class TicketBenchmark(PairFile):
    """Whether a model prefers the answer that was sent to the draft."""

    name = "tickets"
    title = "Support tickets"
    source = "the share of tickets whose sent answer scores higher than the draft"

    def read(self, record: Record) -> BenchmarkItem | None:
        if record.values.get("draft") is None:
            return None
        return BenchmarkItem(
            id=f"row-{record.row}",
            prompt=record.prompt("ticket"),
            responses=(record.text("sent"), record.text("draft")),
            gold=(1.0, 0.0),
        )
