"""The score cache's tier on disk: scores by content address in one DuckDB file that this process holds open.

Covers: reads and batched writes in threads of their own, a bound on rows (the oldest go first), what a locked, foreign,
broken or full file means. Leaves out: keys (`score_keys`), the tier in memory (`score_cache`).

A score counts as stored when its batch is committed; a killed process loses at most the last moments' scores, never the
file. A disk that fails later is logged once and costs only this tier: nothing is read or written any more.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from assay.errors import BackendError, BadInputError, BusyError
from assay.score import Score, score_from_dict
from assay.store.database import holder_of, is_held
from assay.store.instances import require_duckdb_path

if TYPE_CHECKING:
    import duckdb

logger = logging.getLogger("assay.serving")

FILE = "scores.duckdb"
FLUSH_S = 0.25  #: how long a score may wait for others to be written with
BATCH = 2000  #: scores in one commit
_WAITING = 50_000  #: scores not yet written; past it new ones are not stored
_ASKED = 500  #: keys in one query
_KEEP = 0.9  #: of the rows allowed, after pruning: so that not every batch prunes
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "512MB",
    "threads": 1,  # the cores are the engine's
    "autoinstall_known_extensions": "false",
}


class StoredScores:
    """An open file. Make it with `open`; `close` writes what waits."""

    def __init__(self, db: duckdb.DuckDBPyConnection, file: Path, max_rows: int) -> None:
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
        self._insert([])  # the first time loads what it needs, for most of a second: not while scores wait
        self._usable = True
        self._waiting: deque[tuple[bytes, Score]] = deque()
        self._told = threading.Event()  # something to write, or the end
        self._ending = threading.Event()
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="score-cache-read")
        self._writer = threading.Thread(target=self._write, name="score-cache-write", daemon=True)
        self._writer.start()
        atexit.register(self.close)  # whatever ends the process, the thread must not be killed inside of DuckDB

    @classmethod
    def open(cls, folder: Path, *, max_rows: int) -> StoredScores:
        """The cache in `folder`, which is made. Raises BusyError where another process holds the file, BadInputError
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
            # DuckDB says of a file that is none of its own that it cannot be read, as of a disk that fails.
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
        """False: certainly not stored, so that what is new costs no query. On any thread."""
        return self._usable and key in self._known

    async def find(self, keys: Sequence[bytes]) -> dict[bytes, Score]:
        """The stored ones of `keys`, in one query off the event loop; none where the disk fails."""
        if not self._usable:
            return {}
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._find, keys)

    def keep(self, key: bytes, score: Score) -> None:
        """Store a score soon. On any thread; never waits."""
        if self._usable and len(self._waiting) < _WAITING:
            self._known.add(key)
            self._waiting.append((key, score))
            self._told.set()

    def close(self) -> None:
        """Write what waits and close the file. Closing it again does nothing."""
        atexit.unregister(self.close)
        if self._ending.is_set():
            return
        self._ending.set()
        self._told.set()
        self._writer.join()
        self._usable = False
        self._readers.shutdown()
        self._reading.close()
        self._db.close()

    def _find(self, keys: Sequence[bytes]) -> dict[bytes, Score]:
        import duckdb

        rows: list[tuple[bytes, str]] = []
        try:
            for start in range(0, len(keys), _ASKED):
                asked = list(keys[start : start + _ASKED])
                places = ",".join("?" * len(asked))
                rows += self._reading.execute(
                    f"SELECT key, score FROM scores WHERE key IN ({places})", asked
                ).fetchall()
            return {key: score for key, text in rows if isinstance(score := score_from_dict(json.loads(text)), Score)}
        except (duckdb.Error, ValueError, KeyError, TypeError) as error:
            self._fail("read", error)
            return {}

    def _write(self) -> None:
        import duckdb

        while not (self._ending.is_set() and not self._waiting):
            self._told.wait()
            self._ending.wait(FLUSH_S)
            self._told.clear()
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
            [(gone,)] = self._db.execute(f"DELETE FROM scores WHERE place < ({oldest})", [spare]).fetchall()
            self._rows -= gone

    def _fail(self, done: str, error: Exception) -> None:
        if self._usable:
            self._usable = False
            logger.error(
                "the score cache %s cannot be %s any more (%s); scores are kept in memory only",
                self.file,
                done,
                _line(error),
            )


class _Sketch:
    """Which keys may be there: one bit a key, so that few that are not seem to be. Its bits are never taken back."""

    def __init__(self, capacity: int) -> None:
        self._size = max(1 << 16, 64 * capacity)
        self._bits = bytearray(self._size // 8 + 1)

    def add(self, key: bytes) -> None:
        place = int.from_bytes(key[:8], "little") % self._size
        self._bits[place >> 3] |= 1 << (place & 7)

    def add_all(self, keys: Sequence[bytes]) -> None:
        places = np.frombuffer(b"".join(key[:8] for key in keys), "<u8") % np.uint64(self._size)
        bits = np.left_shift(np.uint8(1), (places & np.uint64(7)).astype(np.uint8))
        np.bitwise_or.at(np.frombuffer(self._bits, np.uint8), places >> np.uint64(3), bits)

    def __contains__(self, key: bytes) -> bool:
        place = int.from_bytes(key[:8], "little") % self._size
        return bool(self._bits[place >> 3] >> (place & 7) & 1)


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]
