"""The record of every attempt at calling a model, durable before its answer is used, and the cost of a run's calls.

An attempt is appended to the fsynced `journal/calls-ANNOTATOR.jsonl` as soon as its reply arrives, and folded into the
table `model_calls`. One process at a time calls for one annotator: the file is locked meanwhile.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields

from assay.errors import AssayError, BackendError, BusyError
from assay.store.database import Connection, registered
from assay.system.atomic_files import sync_folder
from assay.workspace import Workspace
from assay_serving.chat.client import ANSWERED

log = logging.getLogger(__name__)

FOLD_EVERY_S, FOLD_EVERY = 20.0, 2_000  #: bounds the file and the memory, not what a kill can lose: that is nothing
_TYPES = {"attempt": "big", "sample": "big", "status": "big", "tokens_in": "big", "tokens_out": "big"}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One row of `model_calls`; the migration says what the columns mean."""

    call_id: str
    call_key: str
    attempt: int
    task: str
    ref: str
    annotator_id: str
    shown_order: str | None
    sample: int
    model: str
    endpoint: str
    prompt_hash: str
    outcome: str
    status: int | None
    tokens_in: int | None
    tokens_out: int | None
    cost: float | None
    seconds: float
    error: str | None
    response: str | None
    run_id: str | None
    created_at: str  #: ISO 8601, UTC


class CallLog:
    """Of one annotator. A context manager; threads may share it. Raises BusyError when another process has it open."""

    def __init__(self, workspace: Workspace, annotator_id: str) -> None:
        self.workspace, self.annotator_id = workspace, annotator_id
        self._path = workspace.journal / f"calls-{annotator_id}.jsonl"
        self._lock, self._folding = threading.Lock(), threading.Lock()
        self._handle = -1
        self._pending: list[Attempt] = []
        self._folded = time.monotonic()

    def __enter__(self) -> CallLog:
        try:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            sync_folder(self._path.parent)
        except OSError as error:
            raise BackendError(f"cannot open {self._path}: {error.strerror or error}") from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._pending = _read(self._path.read_bytes())
            self.fold()
        except BlockingIOError:
            os.close(self._handle)
            raise BusyError("another process is calling the model as this annotator; wait for it to end") from None
        except BaseException:
            os.close(self._handle)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.fold()
        except AssayError as error:  # they stay in the file; whoever opens the log next folds them
            log.warning("calls stay in %s for now: %s", self._path.name, error)
        finally:
            os.close(self._handle)  # gives the lock back

    def append(self, attempt: Attempt) -> None:
        """Returns once the attempt survives this process; after `sync` it survives the machine."""
        line = json.dumps(asdict(attempt), ensure_ascii=True).encode("ascii") + b"\n"
        with self._lock:
            try:
                written = 0
                while written < len(line):
                    written += os.write(self._handle, line[written:])
            except OSError as error:
                raise BackendError(f"cannot write to {self._path}: {error.strerror or error}") from error
            self._pending.append(attempt)

    def sync(self) -> None:
        """Returns once everything appended is on the disk."""
        try:
            os.fsync(self._handle)
        except OSError as error:
            raise BackendError(f"cannot write to {self._path}: {error.strerror or error}") from error

    @property
    def due(self) -> bool:
        """Whether it is time to fold."""
        return len(self._pending) >= FOLD_EVERY or (
            bool(self._pending) and time.monotonic() - self._folded > FOLD_EVERY_S
        )

    def fold(self) -> None:
        """Move what is in the file into the store. Raises BusyError when another process holds the store."""
        with self._folding:
            with self._lock:
                batch = list(self._pending)
            if batch:  # outside the lock: another process may hold the store for a while, and replies keep coming
                with self.workspace.store.unit() as db:
                    insert_attempts(db, batch)
            with self._lock:
                self._pending = self._pending[len(batch) :]
                if not self._pending:
                    os.ftruncate(self._handle, 0)  # with a torn last line: its attempt was in flight
                self._folded = time.monotonic()

    def answers(self, keys: Iterable[str]) -> dict[str, str]:
        """call key -> text of an answer to exactly that call, for those that have one."""
        with self._lock:
            pending = {
                a.call_key: a.response for a in self._pending if a.outcome == ANSWERED and a.response is not None
            }
        requested = set(keys)
        with self.workspace.store.unit() as db:
            rows = db.execute(
                """SELECT call_key, arg_max(response, created_at)
                   FROM model_calls JOIN (SELECT unnest($keys) AS call_key) USING (call_key)
                   WHERE annotator_id = $annotator AND outcome = $answered AND response IS NOT NULL
                   GROUP BY call_key""",
                {"keys": sorted(requested), "annotator": self.annotator_id, "answered": ANSWERED},
            ).fetchall()
        return dict(rows) | {key: text for key, text in pending.items() if key in requested}


def fold_calls(workspace: Workspace) -> None:
    """Fold the logs of ended processes into the store; logs that are in use are skipped."""
    for path in sorted(workspace.journal.glob("calls-*.jsonl")):
        if path.stat().st_size:
            try:
                with CallLog(workspace, path.stem.removeprefix("calls-")):
                    pass
            except BusyError:
                continue


def waiting_attempts(workspace: Workspace) -> list[Attempt]:
    """Attempts in the journals that are not in the store yet, also of logs in use; each once."""
    attempts = {}
    for path in sorted(workspace.journal.glob("calls-*.jsonl")):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            continue
        attempts.update({attempt.call_id: attempt for attempt in _read(content)})
    return list(attempts.values())


def insert_attempts(db: Connection, attempts: Iterable[Attempt]) -> None:
    """Attempts that are stored already are skipped."""
    import pyarrow as pa

    kinds = {"big": pa.int64(), "real": pa.float64(), "text": pa.string()}
    rows = list({a.call_id: a for a in attempts}.values())
    names = [field.name for field in fields(Attempt)]
    columns = [
        pa.array(
            [getattr(row, name) for row in rows],
            kinds["real" if name in ("cost", "seconds") else _TYPES.get(name, "text")],
        )
        for name in names
    ]
    listed = ", ".join(names)
    with registered(db, "incoming_calls", pa.table(columns, names=names)):
        db.execute(
            f"""INSERT INTO model_calls ({listed})
                SELECT {listed.replace("created_at", "created_at::TIMESTAMPTZ")} FROM incoming_calls i
                WHERE NOT EXISTS (SELECT 1 FROM model_calls m WHERE m.call_id = i.call_id)"""
        )


def _read(content: bytes) -> list[Attempt]:
    """The complete lines; a torn line is an attempt whose answer was never used."""
    attempts = []
    for line in content.split(b"\n"):
        try:
            attempts.append(Attempt(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return attempts


@dataclass(frozen=True, slots=True)
class RunSpending:
    """`calls`: attempts, failed ones too. `tokens`: in and out. `cost`: None where a reply has no price."""

    calls: int
    tokens: int
    cost: float | None


def spending_of_runs(workspace: Workspace, runs: Sequence[str]) -> dict[str, RunSpending]:
    """For the runs that called a model. Raises BusyError while another process holds the store."""
    if not runs:
        return {}
    # First: an attempt that is folded meanwhile is then in both, never in neither; its id shows it.
    waiting = [attempt for attempt in waiting_attempts(workspace) if attempt.run_id in runs]
    with workspace.store.unit() as db:
        stored = db.execute(
            """SELECT run_id, count(*), sum(coalesce(tokens_in, 0) + coalesce(tokens_out, 0))::BIGINT,
                      coalesce(sum(cost), 0),
                      count(*) FILTER (cost IS NULL AND coalesce(tokens_in, 0) + coalesce(tokens_out, 0) > 0)
               FROM model_calls
               WHERE list_contains($runs, run_id) AND NOT list_contains($waiting, call_id) GROUP BY run_id""",
            {"runs": list(runs), "waiting": [attempt.call_id for attempt in waiting]},
        ).fetchall()
    by_run: dict[str, RunSpending] = {
        run: RunSpending(calls, tokens, None if unpriced else cost) for run, calls, tokens, cost, unpriced in stored
    }
    for attempt in waiting:
        tokens = (attempt.tokens_in or 0) + (attempt.tokens_out or 0)
        cost = attempt.cost if attempt.cost is not None or tokens else 0.0  # without a reply there is nothing to pay
        before = by_run.get(str(attempt.run_id), RunSpending(0, 0, 0.0))
        cost_so_far = None if before.cost is None or cost is None else before.cost + cost
        by_run[str(attempt.run_id)] = RunSpending(before.calls + 1, before.tokens + tokens, cost_so_far)
    return by_run
