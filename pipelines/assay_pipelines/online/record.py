"""What a loop puts into the store: pairs, decisions on their labels, and the snapshot that a refit reads.

With these a vote can be followed: judgment -> decision -> snapshot -> refit -> reward model -> score -> rollout. Leaves
out: judgments of judges and people, which they write themselves.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay import ids
from assay.conversation.message import is_typed
from assay.data.snapshots import Selection, Snapshot, create_snapshot
from assay.domain import Judgment, Pool, prompt_of
from assay.store.intake import pair_schema, store_pairs
from assay.store.records import Decision, Evidence, insert_annotator, insert_decisions, insert_judgments
from assay.workspace import Workspace
from assay_pipelines.online.journal import LabelRow

RULE = "online_label"
TRAINING, HELD_OUT = "training", "held-out"  #: categories of a loop's pairs


@dataclass(frozen=True)
class LoopRecord:
    """`name`: the source under which the store has the loop's pairs. `pool`: of what its label source says."""

    workspace: Workspace
    name: str
    pool: Pool

    def add_pairs(self, rows: Sequence[LabelRow], metas: Sequence[Mapping[str, Any]], run_id: str) -> None:
        """Before they are asked about: a label source finds them in the store. `metas`: of the prompts, JSON-ready."""
        import pyarrow as pa

        pairs = [
            {
                "row": number,
                "messages": [{"role": m.role, "content": m.text} for m in prompt],
                "conversation": ids.conversation_json(prompt) if is_typed(prompt) else None,
                "first": row.responses[0],
                "second": row.responses[1],
                "source": self.name,
                "record_id": f"{row.step}/{row.comparison_id}",
                "category": HELD_OUT if row.held_out else TRAINING,
                "meta": json.dumps({**meta, "step": row.step, "selector": row.selector, "why": dict(row.why)}),
            }
            for number, (row, meta) in enumerate(zip(rows, metas, strict=True), 1)
            for prompt in [prompt_of(row.prompt)]
        ]
        with self.workspace.store.unit() as db:
            store_pairs(db, pa.Table.from_pylist(pairs, pair_schema()), run_id)

    def judged(self, rows: Sequence[LabelRow], run_id: str) -> list[LabelRow]:
        """With a judgment in the store for each label of a source that writes none itself."""
        if not (bare := [row for row in rows if row.label is not None and not row.judgments]):
            return list(rows)
        with self.workspace.store.unit() as db:
            annotators = {row.source: insert_annotator(db, "verifier", row.source) for row in bare}
            judgments = {
                row.comparison_id: Judgment(row.comparison_id, annotators[row.source], row.label)
                for row in bare
                if row.label is not None
            }
            insert_judgments(db, judgments.values(), run_id)
        return [
            replace(row, judgments=(judgments[row.comparison_id].id,)) if row.comparison_id in judgments else row
            for row in rows
        ]

    def decide(self, rows: Iterable[LabelRow], run_id: str) -> None:
        """Each label as a decision that rests on its judgments."""
        decisions = [
            Decision(
                row.comparison_id,
                self.pool,
                row.label,
                RULE,
                f"{self.name}: {row.source} said {row.label}",
                basis=[Evidence("counted", judgment) for judgment in row.judgments],
            )
            for row in rows
            if row.label is not None
        ]
        with self.workspace.store.unit() as db:
            insert_decisions(db, decisions, run_id)

    def snapshot(self, labels: Iterable[LabelRow], run_id: str) -> Snapshot:
        """Of the labels that are trained on, so far."""
        labelled = sorted(f"{row.comparison_id}{row.label}" for row in labels if row.label and not row.held_out)
        digest = hashlib.sha256("\n".join([self.name, *labelled]).encode()).hexdigest()[:8]
        name = "-".join("".join(c if c.isalnum() or c in "_.+" else " " for c in self.name).split())
        selection = Selection(sources=(self.name,), categories=(TRAINING,))
        return create_snapshot(self.workspace, f"{name}-{digest}", selection, run_id, keep=True)
