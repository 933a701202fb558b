"""Download of a snapshot's pairs in TRL's format.

The file is complete and already unlinked before its first byte is sent, so an aborted download leaves nothing behind.
Leaves out: pairs with images, other formats and larger snapshots, which are `assay data export`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO
from urllib.parse import quote

from assay.data.snapshots import get_snapshot
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.exporters.export import export

MOST_ITEMS = 50_000  #: the store is held meanwhile
CHUNK = 1 << 18


@dataclass(frozen=True)
class Download:
    """An open file of `size` bytes and `rows` lines, which `chunks` reads once and closes."""

    name: str
    rows: int
    size: int
    stream: BinaryIO

    @property
    def disposition(self) -> str:
        """The header that names the file; a header is ASCII, a snapshot's name may have any letters (RFC 6266)."""
        quoted = quote(self.name, safe="+")
        return (
            f'attachment; filename="{self.name}"' if quoted == self.name else f"attachment; filename*=UTF-8''{quoted}"
        )

    def chunks(self) -> Iterator[bytes]:
        with self.stream:
            while part := self.stream.read(CHUNK):
                yield part


def download_of(workspace: Workspace, name: str) -> Download:
    """Raises NotFoundError, BadInputError where nothing is decided or there is too much."""
    snapshot = get_snapshot(workspace, name)
    if snapshot.items > MOST_ITEMS:
        raise BadInputError(
            f"{snapshot.name} has {snapshot.items} comparisons, more than the {MOST_ITEMS} that are downloaded from "
            f"the page; in the workspace's folder: assay data export {snapshot.name}.jsonl --snapshot {snapshot.name}"
        )
    with TemporaryDirectory(prefix="assay-download-") as folder:
        path = Path(folder) / f"{snapshot.name}.jsonl"
        report = export(workspace, path, snapshot.name, format="trl", images=False)
        stream = path.open("rb")
    return Download(path.name, report.rows, os.fstat(stream.fileno()).st_size, stream)
