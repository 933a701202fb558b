"""Curate: a file of preference pairs becomes a snapshot that training can read, and a queue for people.

    python examples/curate_preferences.py my-rewards pairs.jsonl

Any layout that `assay data import` knows. Prints what came in, what was put aside and why, and the snapshots' names.
Then people vote, in a terminal or in a browser:

    assay annotate first --as ada --workspace my-rewards
    assay web --open --workspace my-rewards
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from assay.data.snapshots import Selection, create_split
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.annotation.queues import create_queue, items_of
from assay_pipelines.hygiene.cleaning import CleanConfig, clean
from assay_pipelines.hygiene.deduplication import dedup
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig

#: What nobody has decided yet: its label is the source's.
UNVERIFIED = Selection(("unverified",))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path, help="a folder that does not exist yet, or an empty one")
    parser.add_argument("file", type=Path, help="preference pairs")
    parser.add_argument("--people", type=int, default=20, help="pairs that two people each are asked about")
    arguments = parser.parse_args()

    workspace = Workspace.create(arguments.workspace)
    imported = run_import(workspace, open_import(workspace, ImportConfig(str(arguments.file))))
    print(
        f"{imported.rows} rows, {imported.new.comparisons} new comparisons, rejected: {json.dumps(imported.rejected)}"
    )

    config = CleanConfig()
    with start_run(workspace, "clean", asdict(config)) as run:
        print(f"put aside by cleaning: {json.dumps(clean(workspace, config, run.id))}")
    with start_run(workspace, "dedup", {}) as run:
        print(f"duplicates: {json.dumps(asdict(dedup(workspace, run.id)))}")

    with start_run(workspace, "snapshot", {"name": "mine"}) as run:
        split = create_split(workspace, "mine", UNVERIFIED, holdout=0.2, by="prompt", seed=0, run_id=run.id)
    for snapshot in split:
        print(f"snapshot {snapshot.name}: {snapshot.items} pairs")

    asked = items_of(workspace, UNVERIFIED, limit=arguments.people, reason="a first look")
    with start_run(workspace, "queue", {"name": "first"}) as run:
        queue = create_queue(workspace, "first", asked, overlap=2, run_id=run.id)
    print(f"queue {queue.name}: {queue.items} pairs, {queue.overlap} people each")


if __name__ == "__main__":
    main()
