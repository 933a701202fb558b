"""The score cache's tier on disk: scores by content address in one DuckDB file that this process holds open.

Covers: reads and batched writes in separate threads, a bound on rows (oldest first out), locked, foreign, broken and
full files. Leaves out: keys and the tier in memory (`score_cache`).

A score is stored when its batch is committed; a killed process loses at most the latest scores, never the file. A disk
that fails later is logged once and disables only this tier.
"""

import asyncio
import atexit
import json
import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from assay.errors import BackendError, BadInputError, BusyError
from assay.score import Score, score_from_dict
from assay.store.database import Connection, holder_of, is_held
from assay.store.instances import require_duckdb_path

logger = logging.getLogger("assay.serving")

FILE = "scores.duckdb"
FLUSH_S = 0.25  #: how long a score may wait to be written in a batch
BATCH = 2000  #: scores in one commit
_WAITING = 50_000  #: unwritten scores; beyond it new ones are not stored
_QUERY_KEYS = 500  #: keys in one query
_KEEP = 0.9  #: share of the maximum rows after pruning, so that not every batch prunes
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "512MB",
    "threads": 1,  # the cores are the engine's
    "autoinstall_known_extensions": "false",
}


class DiskScoreCache:
    """An open file, from `open`; `close` writes what is queued."""

    def __init__(self, db: Connection, file: Path, max_rows: int) -> None:
        self.file = file
        self.max_rows = max_rows
        self._db = db
        self._reading = db.cursor()
        self._known = _Sketch(max_rows)
        self._rows = 0
        for batch in db.sql("SELECT key FROM scores").to_arrow_reader(100_000):
            self._known.add_all(batch.column(0).to_pylist())
            self._rows += len(batch)
        [(self._place,)] = db.execute("SELECT coalesce(max(place), 0) FROM scores").fetchall()
        self._insert([])  # the first insert imports for most of a second: not while scores wait
        self._usable = True
        self._waiting: deque[tuple[bytes, Score]] = deque()
        self._wake = threading.Event()  # something to write, or closing
        self._closing = threading.Event()
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="score-cache-read")
        self._writer = threading.Thread(target=self._write, name="score-cache-write", daemon=True)
        self._writer.start()
        atexit.register(self.close)  # the thread must not be killed inside DuckDB at exit

    @classmethod
    def open(cls, folder: Path, *, max_rows: int) -> "DiskScoreCache":
        """The cache in `folder`, which is created. Raises BusyError where another process holds the file, BadInputError
        for a file that is something else, BackendError where the disk fails."""
        import duckdb

        file = folder / FILE
        require_duckdb_path(folder.resolve())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            db = duckdb.connect(str(file), config={**_CONFIG, "temp_directory": str(folder / "spill")})
        except OSError as error:
            raise BadInputError(f"no folder for a score cache: {error.strerror}", file=folder) from error
        except duckdb.IOException as error:
            if is_held(str(error)):
                raise BusyError(f"the score cache {file} is held by {holder_of(str(error))}") from error
            # DuckDB reports a file of another format as unreadable, like a failing disk.
            if "valid DuckDB" in str(error):
                raise BadInputError("not a score cache; remove it or name another folder", file=file) from error
            raise BackendError(f"cannot open the score cache {file}: {_line(error)}") from error
        except duckdb.Error as error:
            raise BadInputError(f"not a score cache, or a broken one: {_line(error)}", file=file) from error
        try:
            tables = {row[0] for row in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
            if tables - {"scores"}:
                raise BadInputError("a DuckDB file of something else; name another folder", file=file)
            db.execute(
                "CREATE TABLE IF NOT EXISTS scores (key BLOB PRIMARY KEY, place BIGINT, score VARCHAR)"
            ).fetchall()
            return cls(db, file, max_rows)
        except duckdb.Error as error:
            db.close()
            raise BadInputError(f"not a score cache, or a broken one: {_line(error)}", file=file) from error
        except BaseException:
            db.close()
            raise

    def may_have(self, key: bytes) -> bool:
        """False: certainly not stored, so that new items cost no query. On any thread."""
        return self._usable and key in self._known

    async def find(self, keys: Sequence[bytes]) -> dict[bytes, Score]:
        """The stored ones of `keys`, in one query off the event loop; none where the disk fails."""
        if not self._usable:
            return {}
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._find, keys)

    def keep(self, key: bytes, score: Score) -> None:
        """Store a score in the background. On any thread; never blocks."""
        if self._usable and len(self._waiting) < _WAITING:
            self._known.add(key)
            self._waiting.append((key, score))
            self._wake.set()

    def close(self) -> None:
        """Write what is queued and close the file. Closing it again does nothing."""
        atexit.unregister(self.close)
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake.set()
        self._writer.join()
        self._usable = False
        self._readers.shutdown()
        self._reading.close()
        self._db.close()

    def _find(self, keys: Sequence[bytes]) -> dict[bytes, Score]:
        import duckdb

        rows: list[tuple[bytes, str]] = []
        try:
            for start in range(0, len(keys), _QUERY_KEYS):
                batch = list(keys[start : start + _QUERY_KEYS])
                places = ",".join("?" * len(batch))
                rows += self._reading.execute(
                    f"SELECT key, score FROM scores WHERE key IN ({places})", batch
                ).fetchall()
            return {key: score for key, text in rows if isinstance(score := score_from_dict(json.loads(text)), Score)}
        except (duckdb.Error, ValueError, KeyError, TypeError) as error:
            self._fail("read", error)
            return {}

    def _write(self) -> None:
        import duckdb

        while not (self._closing.is_set() and not self._waiting):
            self._wake.wait()
            self._closing.wait(FLUSH_S)
            self._wake.clear()
            while self._waiting and self._usable:
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                try:
                    self._insert(batch)
                except (duckdb.Error, OSError) as error:
                    self._fail("written", error)
            if not self._usable:
                self._waiting.clear()

    def _insert(self, batch: Sequence[tuple[bytes, Score]]) -> None:
        import pyarrow as pa

        columns = {
            "key": pa.array([key for key, _ in batch], pa.binary()),
            "place": pa.array(range(self._place + 1, self._place + 1 + len(batch)), pa.int64()),
            "score": pa.array([json.dumps(score.to_dict()) for _, score in batch], pa.string()),
        }
        self._place += len(batch)
        self._db.register("batch", pa.table(columns))
        # DuckDB refuses further work on a connection whose last result was not read to its end.
        [(new,)] = self._db.execute("INSERT INTO scores SELECT * FROM batch ON CONFLICT DO NOTHING").fetchall()
        self._db.unregister("batch")
        self._rows += new
        if self._rows > self.max_rows:
            spare = self._rows - int(_KEEP * self.max_rows)
            oldest = "SELECT place FROM scores ORDER BY place LIMIT 1 OFFSET ?"
            [(deleted,)] = self._db.execute(f"DELETE FROM scores WHERE place < ({oldest})", [spare]).fetchall()
            self._rows -= deleted

    def _fail(self, action: str, error: Exception) -> None:
        if self._usable:
            self._usable = False
            logger.error(
                "the score cache %s cannot be %s any more (%s); scores are kept in memory only",
                self.file,
                action,
                _line(error),
            )


class _Sketch:
    """Which keys may be stored: one bit per key, with few false positives. Bits are never cleared."""

    def __init__(self, capacity: int) -> None:
        self._size = max(1 << 16, 64 * capacity)
        self._bits = bytearray(self._size // 8 + 1)

    def add(self, key: bytes) -> None:
        bit = int.from_bytes(key[:8], "little") % self._size
        self._bits[bit >> 3] |= 1 << (bit & 7)

    def add_all(self, keys: Sequence[bytes]) -> None:
        places = np.frombuffer(b"".join(key[:8] for key in keys), "<u8") % np.uint64(self._size)
        bits = np.left_shift(np.uint8(1), (places & np.uint64(7)).astype(np.uint8))
        np.bitwise_or.at(np.frombuffer(self._bits, np.uint8), places >> np.uint64(3), bits)

    def __contains__(self, key: bytes) -> bool:
        bit = int.from_bytes(key[:8], "little") % self._size
        return bool(self._bits[bit >> 3] >> (bit & 7) & 1)


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]
