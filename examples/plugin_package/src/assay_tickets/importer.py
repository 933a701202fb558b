"""The importer `tickets`."""

from __future__ import annotations

from assay.data.json_lines import RowError
from assay_pipelines.importers.layout import JsonRecord, RecordLayout
from assay_pipelines.importers.rows import PairRow, Row


class TicketLayout(RecordLayout):
    """Support tickets: the answer that was sent is preferred to the draft."""

    title = "support tickets"
    source = "tickets"

    def matches(self, record: JsonRecord) -> bool:
        return "ticket" in record and "sent" in record

    def parse(self, record: JsonRecord) -> list[Row | RowError]:
        if not record.get("draft"):
            raise RowError("no draft to compare the answer with", field="draft")
        turns = [{"role": "user", "content": record["ticket"]}]
        return [PairRow(turns, record["sent"], record["draft"], "first").check(("sent", "draft"))]
