"""A workspace: one folder that holds a store, its runs and the models they made.

Covers: creating, opening and finding it. Leaves out: what runs do (`assay.runs.record`), the schema (`assay.store`).

    WORKSPACE/
      assay.toml       marker: format version, creation time
      assay.duckdb     the store                log/           its redo log: the store can be made from it
      models/NAME/     checkpoints           runs/RUN_ID/   metrics, logs, samples
      reports/         HTML                  journal/       acknowledged votes on their way into the store
      media/           images of conversations, by their hash
      rows/            data that Python code passed as rows, by content
      samples/         responses that `assay measure` generated, by content; may be removed
      decoding/        responses and value models of `assay decode`, by content; may be removed
      evaluations/     scores of evaluations that go on; may be removed
      annotation.sqlite                      state of the annotation queues; rebuilt from store and journal if lost
"""

import os
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from assay.errors import BadInputError, NotFoundError
from assay.store.database import Database
from assay.store.instances import require_duckdb_path
from assay.store.media import MediaFolder

MARKER = "assay.toml"
FORMAT = 1
ENVIRONMENT = "ASSAY_WORKSPACE"


@dataclass(frozen=True)
class Workspace:
    """An existing workspace folder. `wait`: seconds to wait for a store that another process holds."""

    root: Path
    wait: float = 30.0

    @classmethod
    def create(cls, root: str | Path) -> "Workspace":
        """Make a workspace in a new or empty folder; an existing workspace is opened and left as it is.

        Raises BadInputError, and makes nothing, for a folder that the store cannot be in.
        """
        folder = Path(root).expanduser().resolve()
        require_duckdb_path(folder)
        if (folder / MARKER).exists():
            return cls.open(folder)
        if folder.exists() and not folder.is_dir():
            raise BadInputError("is a file; a workspace is a folder", file=folder)
        for name in ("models", "runs", "reports", "journal"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        workspace = cls(folder)
        with workspace.store.unit():
            pass  # runs the migrations
        created = datetime.now(UTC).isoformat(timespec="seconds")
        (folder / MARKER).write_text(f'format = {FORMAT}\ncreated = "{created}"\n', encoding="utf-8")
        return workspace

    @classmethod
    def open(cls, root: str | Path, *, wait: float = 30.0) -> "Workspace":
        """Raises NotFoundError where there is none, BadInputError for one of an unknown format or in a folder that the
        store cannot be in."""
        folder = Path(root).expanduser().resolve()
        marker = folder / MARKER
        if not marker.is_file():
            raise NotFoundError(f"no workspace at {folder}; make one with: assay init {root}")
        require_duckdb_path(folder)
        try:
            marker_format = tomllib.loads(marker.read_text(encoding="utf-8")).get("format")
        except tomllib.TOMLDecodeError as error:
            raise BadInputError(f"not readable: {error}", file=marker) from error
        if marker_format != FORMAT:
            raise BadInputError(f"workspace format {marker_format}, this Assay reads {FORMAT}", file=marker)
        return cls(folder, wait=wait)

    @classmethod
    def of(cls, workspace: "Workspace | str | Path | None") -> "Workspace":
        """The workspace itself; that of a folder, created where there is none; None: the one that `find` gives."""
        if isinstance(workspace, Workspace):
            return workspace
        return cls.find() if workspace is None else cls.create(workspace)

    @classmethod
    def find(cls, root: str | Path | None = None, *, wait: float = 30.0) -> "Workspace":
        """The named folder, else $ASSAY_WORKSPACE, else the nearest workspace at or above the current folder."""
        if root is not None:
            return cls.open(root, wait=wait)
        if configured := os.environ.get(ENVIRONMENT):
            return cls.open(configured, wait=wait)
        here = Path.cwd()
        for folder in (here, *here.parents):
            if (folder / MARKER).is_file():
                return cls.open(folder, wait=wait)
        raise NotFoundError(
            f"no workspace at or above {here}; make one with `assay init`, "
            f"or name one with --workspace (in Python workspace=FOLDER makes one) or ${ENVIRONMENT}"
        )

    @classmethod
    def find_optional(cls, root: str | Path | None = None) -> "Workspace | None":
        """As `find`, for work that needs no workspace: None where none is named and none is there."""
        try:
            return cls.find(root)
        except NotFoundError:
            if root is not None:
                raise
            return None

    @cached_property
    def store(self) -> Database:
        return Database(self.root / "assay.duckdb", wait=self.wait)

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def media(self) -> MediaFolder:
        return MediaFolder(self.root / "media")

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    def stored_path(self, path: Path) -> str:
        """How the store names a path: relative to the workspace where it is inside, so that a copy names its own."""
        absolute = path.expanduser().resolve()
        return str(absolute.relative_to(self.root) if absolute.is_relative_to(self.root) else absolute)

    def located_path(self, stored: str) -> Path:
        """Inverse of `stored_path`."""
        return self.root / stored
