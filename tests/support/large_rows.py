"""Files of large preference rows, and a program that imports one and prints its report and its highest memory."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

#: Arguments: the workspace's folder, the file, the bytes of a batch.
IMPORT = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from assay.errors import AssayError
from assay.workspace import Workspace
from assay_pipelines.importers import rows
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig

workspace = Workspace.create(Path(sys.argv[1]))
rows.BATCH_BYTES = int(sys.argv[3])
report = {}
try:
    report = asdict(run_import(workspace, open_import(workspace, ImportConfig(sys.argv[2]))))
except AssayError as error:
    report["error"] = str(error)
status = Path("/proc/self/status").read_text()
report["peak_mb"] = int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
print(json.dumps(report))
"""


def rows(sizes: Sequence[int], *, unpaired: bool = False) -> Iterator[dict[str, Any]]:
    """A row of about so many bytes each: a tenth of it the prompt, the rest the responses."""
    source = random.Random(0)
    words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 9))) for _ in range(5000)]

    def text(name: str, size: int) -> str:
        piece = " ".join(random.Random(name).choices(words, k=400)) + " "
        return (f"{name} " + piece * (size // len(piece) + 1))[:size]

    for number, size in enumerate(sizes):
        if unpaired:
            prompt = text(f"p{number // 2}", size // 10 + 20)
            yield {"prompt": prompt, "completion": text(f"c{number}", size * 9 // 10), "label": number % 2 == 0}
        else:
            sides = {"chosen": text(f"c{number}", size * 45 // 100), "rejected": text(f"r{number}", size * 45 // 100)}
            yield {"prompt": text(f"p{number}", size // 10 + 20), **sides}


def write(path: Path, sizes: Sequence[int], *, unpaired: bool = False) -> Path:
    """The rows as JSON Lines, as one JSON array, as CSV or as Parquet, by the file's ending."""
    records = rows(sizes, unpaired=unpaired)
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(list(records)), path)
    elif path.suffix == ".csv":
        import csv

        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, ["prompt", "chosen", "rejected"])
            writer.writeheader()
            writer.writerows(records)
    else:
        start, between, end = ("[", ",\n", "]") if path.suffix == ".json" else ("", "\n", "\n")
        with path.open("w") as stream:
            stream.write(start)
            for number, record in enumerate(records):
                stream.write((between if number else "") + json.dumps(record))
            stream.write(end)
    return path
