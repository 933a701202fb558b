"""The vote journal: a vote is on disk before it is acknowledged, whichever process holds the store.

Covers: `JournalWriter`, an append-only file per writer, fsynced line by line, a checksum per line;
withdrawn votes (nothing is deleted: the judgment is marked as withdrawn); `fold`, which puts both into the
store exactly once and retires a file only after the commit. Answers on principles are part of the vote.
Leaves out: who may vote on what (annotation queues), machine judgments (they go to the store directly).

A line is `{"check": ..., "vote": {...}}` or `{"check": ..., "withdrawal": {...}}` or, for what is no pair, `{"check":
..., "answer": {...}}`, or `{"check": ..., "change": {...}}` of a queue; `check` is the digest of the entry's canonical
JSON. A vote has the fields of its judgment and, where there are any, `principles` and `context`.

A writer holds a lock on its file while it lives: fold reads the file all the same,
but leaves it in place. A torn last line is an entry that was never acknowledged; it is counted and left behind. Damage
anywhere else is counted and the file set aside.
"""

import fcntl
import json
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from assay import ids
from assay.annotation.item_answers import ItemAnswer, check_answer, store_answers
from assay.annotation.queue_changes import QueueChange, VoteContext, store_changes, store_contexts
from assay.domain import ANSWERS, FULFILMENTS, AnnotatorKind, Judgment, PrincipleAnswer
from assay.errors import BackendError, BadInputError, BusyError
from assay.store import identity
from assay.store.database import Connection, registered
from assay.store.records import insert_annotator
from assay.system.atomic_files import sync_folder
from assay.system.closable import Closable
from assay.workspace import Workspace

_Entry: TypeAlias = tuple[str, dict[str, Any]]  # "vote", "answer", "withdrawal" or "change", and its fields

FOLDED, DAMAGED = "folded", "damaged"
ROTATE_BYTES = 1_000_000  #: a writer starts a new file past this, so that fold rereads little


class JournalWriter(Closable):
    """Appends votes for one process; threads may share it. Close it, or use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        """`folder`: `workspace.journal`."""
        self.folder = folder
        self._lock = threading.Lock()
        self._handle: int | None = None
        self._size = 0
        self._path: Path | None = None

    def append(
        self,
        judgment: Judgment,
        *,
        annotator: str,
        kind: AnnotatorKind = "human",
        run_id: str | None = None,
        at: datetime | None = None,
        principles: Sequence[PrincipleAnswer] = (),
        context: VoteContext | None = None,
    ) -> None:
        """Returns once the vote is on the disk: only then may it be acknowledged.

        `annotator`: the name behind `judgment.annotator_id`. `run_id`: the run that asked for the vote. `at`: when it
        was cast, default now. `principles`: what was said of them with the vote. `context`: what stood beside the item.
        Raises BadInputError for a judgment
        the store would refuse, BackendError when the disk fails; the vote is then not in the journal.
        """
        check_vote(judgment, annotator=annotator, kind=kind, principles=principles)
        vote = judgment.to_dict() | {"annotator": annotator, "kind": kind, "at": (at or datetime.now(UTC)).isoformat()}
        if principles:
            vote["principles"] = [asdict(answer) for answer in principles]
        if context is not None:
            vote["context"] = context.to_dict()
        self._write_line("vote", vote if run_id is None else vote | {"run_id": run_id})

    def append_answer(
        self, answer: ItemAnswer, *, at: datetime | None = None, context: VoteContext | None = None
    ) -> None:
        """As `append`, for an answer to what is no pair."""
        check_answer(answer)
        entry = {**answer.to_dict(), "at": (at or datetime.now(UTC)).isoformat()}
        self._write_line("answer", entry if context is None else entry | {"context": context.to_dict()})

    def append_change(self, change: QueueChange) -> None:
        """As `append`, for a change of a queue."""
        self._write_line("change", change.to_dict())

    def withdraw(self, judgment_id: str, reason: str, *, at: datetime | None = None) -> None:
        """Withdraw a vote: the judgment stays in the store, is marked and no longer counts. Durable on return."""
        if not (isinstance(judgment_id, str) and judgment_id.startswith(("j-", "v-", "t-", "u-"))):
            raise BadInputError(f"not the id of a judgment: {judgment_id!r}", field="judgment_id")
        when = (at or datetime.now(UTC)).isoformat()
        self._write_line("withdrawal", {"judgment_id": judgment_id, "reason": reason, "at": when})

    def _write_line(self, kind: str, entry: dict[str, Any]) -> None:
        line = _encode(kind, entry)
        with self._lock:
            if self._handle is None or self._size >= ROTATE_BYTES:
                self._start_file()
            assert self._handle is not None
            try:
                _write(self._handle, line)
                os.fsync(self._handle)
            except OSError as error:
                self._undo()
                raise BackendError(f"cannot write the vote to {self._path}: {error.strerror or error}") from error
            self._size += len(line)

    def close(self) -> None:
        """Let fold retire the file."""
        with self._lock:
            self._close_file()

    def _start_file(self) -> None:
        self._close_file()
        name = f"votes-{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        self._path = self.folder / name
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                sync_folder(self.folder)
            except BaseException:
                os.close(handle)
                raise
        except OSError as error:
            raise BackendError(f"cannot start {self._path}: {error.strerror or error}") from error
        self._handle, self._size = handle, 0

    def _undo(self) -> None:
        """Cut a half-written line off; if even that fails, the next vote goes to a new file."""
        assert self._handle is not None
        try:
            os.ftruncate(self._handle, self._size)
            os.fsync(self._handle)
        except OSError:
            self._close_file()

    def _close_file(self) -> None:
        if self._handle is not None:
            os.close(self._handle)  # releases the lock
            self._handle = None


@dataclass
class FoldReport:
    """`votes`: read from the journal; `new`: of them not yet in the store; `withdrawn`: votes newly taken back.
    `damaged` entries were acknowledged and cannot be read any more; their files lie in `journal/damaged`."""

    files: int = 0
    votes: int = 0
    new: int = 0
    withdrawn: int = 0
    torn: int = 0
    damaged: int = 0
    problems: list[str] = field(default_factory=list)


def fold(workspace: Workspace) -> FoldReport:
    """Put every vote of the journal into the store in one unit of work. Safe to repeat and to kill at any point.

    Raises BusyError when another process holds the store; the votes stay in the journal.
    """
    report = FoldReport()
    with _journal_files(workspace.journal) as files:
        entries: list[_Entry] = []
        sound: list[tuple[Path, bool]] = []
        for path, finished in files:
            file_entries, damaged = _read(path, report, finished)
            entries += file_entries
            if finished:
                sound.append((path, damaged))
        report.files = len(files)
        _store_entries(workspace, entries, report)
        for path, damaged in sound:  # the unit has committed
            target = workspace.journal / (DAMAGED if damaged else FOLDED)
            target.mkdir(exist_ok=True)
            path.rename(target / path.name)
    return report


def fold_again(workspace: Workspace) -> FoldReport:
    """Put what earlier folds have put into the store into it once more, for a store that was made anew. Votes that it
    has are left alone; of a damaged file what can be read is taken."""
    report = FoldReport()
    for folder in (FOLDED, DAMAGED):
        for path in sorted((workspace.journal / folder).glob("votes-*.jsonl")):
            entries, _ = _read(path, report, finished=False)
            report.files += 1
            _store_entries(workspace, entries, report)
    return report


def _store_entries(workspace: Workspace, entries: list[_Entry], report: FoldReport) -> None:
    """One unit of work for all of them, if there are any."""
    votes, answers, withdrawals, changes = (
        [entry for kind, entry in entries if kind == name] for name in ("vote", "answer", "withdrawal", "change")
    )
    report.votes += len(votes) + len(answers)
    if not entries:
        return
    with workspace.store.unit() as db:
        report.new += _store(db, votes, report) if votes else 0
        report.new += store_answers(db, ((_answer(entry), entry["at"]) for entry in answers))
        report.withdrawn += _store_withdrawals(db, withdrawals) if withdrawals else 0
        store_changes(db, (QueueChange(**change) for change in changes))
        judged = [(_judgment(vote).id, vote) for vote in votes] + [(_answer(entry).id, entry) for entry in answers]
        contexts = ((judgment, entry, entry.get("context")) for judgment, entry in judged)
        store_contexts(db, {j: (VoteContext(**c), entry.get("run_id")) for j, entry, c in contexts if c})


def _answer(entry: dict[str, Any]) -> ItemAnswer:
    return ItemAnswer(**{name: entry[name] for name in ItemAnswer.__dataclass_fields__})


@contextmanager
def _journal_files(folder: Path) -> Iterator[list[tuple[Path, bool]]]:
    """The files in order of their names, and whether their writer has gone: those are locked against other folds."""
    handles: list[int] = []
    files: list[tuple[Path, bool]] = []
    try:
        for path in sorted(folder.glob("votes-*.jsonl")):
            try:
                handle = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue  # another fold has just retired it
            handles.append(handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                finished = path.exists()
                if not finished:
                    continue
            except BlockingIOError:
                finished = False
            files.append((path, finished))
        yield files
    finally:
        for handle in handles:
            os.close(handle)


def fold_if_free(workspace: Workspace) -> FoldReport | None:
    """Fold if no other process holds the store; otherwise None, and the votes stay in the journal."""
    try:
        return fold(Workspace(workspace.root, wait=0.0))
    except BusyError:
        return None


def _read(path: Path, report: FoldReport, finished: bool) -> tuple[list[_Entry], bool]:
    """The entries of a file, and whether an acknowledged one is unreadable."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return [], False
    *lines, unfinished_line = content.split(b"\n")
    if unfinished_line and finished:
        report.torn += 1
        report.problems.append(f"{path.name}: the last line is torn; that vote was never acknowledged")
    entries, damaged = [], False
    for number, line in enumerate(lines, start=1):
        entry = _decode(line)
        if entry is not None:
            entries.append(entry)
        elif finished:
            damaged = True
            report.damaged += 1
            report.problems.append(f"{path.name}, line {number}: damaged, cannot be read")
    return entries, damaged


def _store(db: Connection, votes: list[dict[str, Any]], report: FoldReport) -> int:
    """Insert the votes with the time they were cast; returns how many were new."""
    for kind, name in {(vote["kind"], vote["annotator"]) for vote in votes}:
        insert_annotator(db, kind, name)
    import pyarrow as pa

    text, real = pa.string(), pa.float64()
    columns = {
        "comparison_id": text,
        "annotator_id": text,
        "answer": text,
        "strength": pa.int8(),
        "confidence": real,
        "rationale": text,
        "shown_order": text,
        "seconds": real,
        "origin": text,
        "run_id": text,
        "at": text,
    }
    rows = {_judgment(vote).id: vote for vote in reversed(votes)}  # of equal votes the first counts
    _store_principles(db, rows, report)  # before the votes, for it asks which of them are new
    arrays = [pa.array([vote.get(name) for vote in rows.values()], type=kind) for name, kind in columns.items()]
    with registered(db, "incoming", pa.table([pa.array(list(rows)), *arrays], names=["judgment_id", *columns])):
        row = db.execute(
            """INSERT INTO judgments (judgment_id, comparison_id, annotator_id, answer, strength, confidence, rationale,
                                      shown_order, seconds, origin, run_id, created_at)
               SELECT judgment_id, comparison_id, annotator_id, answer, strength, confidence, rationale,
                      shown_order, seconds, origin, run_id, "at"::TIMESTAMPTZ
               FROM incoming ANTI JOIN judgments USING (judgment_id)"""
        ).fetchone()
    return int(row[0]) if row else 0


def _store_principles(db: Connection, votes: dict[str, dict[str, Any]], report: FoldReport) -> None:
    """What was said of principles with those votes that the store does not have yet. `votes`: by judgment id."""
    import pyarrow as pa

    rows = [
        {**answer, "judgment_id": judgment, "comparison_id": vote["comparison_id"], "run_id": vote.get("run_id")}
        for judgment, vote in votes.items()
        for answer in vote.get("principles", ())
    ]
    if not rows:
        return
    names = ("judgment_id", "comparison_id", "response", "principle", "answer", "evidence", "run_id")
    table = pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in names]))
    with registered(db, "answered", table):
        db.execute(
            f"""INSERT INTO principles (principle_id, statement, run_id)
                SELECT {identity.principle_id("principle")} AS id, any_value(principle), any_value(run_id) FROM answered
                GROUP BY id HAVING NOT EXISTS (SELECT 1 FROM principles t WHERE t.principle_id = id)"""
        ).fetchall()
        db.execute(
            f"""INSERT INTO vote_principles (judgment_id, side, response_id, principle_id, answer, evidence, run_id)
                SELECT a.judgment_id, a.response, if(a.response = 'A', c.response_a, c.response_b),
                       {identity.principle_id("a.principle")}, a.answer, a.evidence, a.run_id
                FROM (SELECT * FROM answered ANTI JOIN judgments USING (judgment_id)) a
                JOIN comparisons c USING (comparison_id)"""
        ).fetchall()
        ((lost,),) = db.execute(
            """SELECT count(*) FROM answered ANTI JOIN judgments USING (judgment_id)
               ANTI JOIN comparisons USING (comparison_id)"""
        ).fetchall()
    if lost:
        report.problems.append(f"{lost} answers on principles are of comparisons that the store does not hold")


def _store_withdrawals(db: Connection, withdrawals: list[dict[str, Any]]) -> int:
    """Mark judgments as withdrawn, also those whose vote comes in a later fold; returns how many marks were new."""
    import pyarrow as pa

    rows = {w["judgment_id"]: w for w in reversed(withdrawals)}
    table = pa.table({name: [w[name] for w in rows.values()] for name in ("judgment_id", "reason", "at")})
    with registered(db, "incoming", table):
        row = db.execute(
            """INSERT INTO withdrawn_judgments (judgment_id, reason, withdrawn_at)
               SELECT judgment_id, reason, "at"::TIMESTAMPTZ
               FROM incoming ANTI JOIN withdrawn_judgments USING (judgment_id)"""
        ).fetchone()
    return int(row[0]) if row else 0


def _judgment(vote: dict[str, Any]) -> Judgment:
    return Judgment(**{name: vote[name] for name in Judgment.__dataclass_fields__})


def check_vote(
    judgment: Judgment, *, annotator: str, kind: AnnotatorKind, principles: Sequence[PrincipleAnswer] = ()
) -> None:
    """Raise BadInputError for what the journal refuses.

    What the store would refuse must not be acknowledged: one such vote would keep all others from being folded.
    """
    types = {
        **dict.fromkeys(("comparison_id", "annotator_id", "origin"), str),
        "rationale": str | None,
        "strength": int | None,
        "confidence": int | float | None,
        "seconds": int | float | None,
    }
    for name, expected_type in types.items():
        field_value = getattr(judgment, name)
        if not isinstance(field_value, expected_type) or isinstance(field_value, bool):
            raise BadInputError(f"wrong type: {field_value!r}", field=name)
        _check_unicode(name, field_value)
    if ids.annotator_id(kind, annotator) != judgment.annotator_id:
        raise BadInputError(f"is not the id of {kind} {annotator!r}", field="annotator_id")
    if judgment.answer not in ANSWERS:
        raise BadInputError(f"unknown answer {judgment.answer!r}; one of {', '.join(ANSWERS)}", field="answer")
    if judgment.strength is not None and not 0 <= judgment.strength <= 3:
        raise BadInputError("must be 0 to 3", field="strength")
    if judgment.confidence is not None and not 0 <= judgment.confidence <= 1:
        raise BadInputError("must be 0 to 1", field="confidence")
    if judgment.shown_order not in (None, "AB", "BA"):
        raise BadInputError("must be AB or BA", field="shown_order")
    if judgment.seconds is not None and not 0 <= judgment.seconds < float("inf"):
        raise BadInputError("must not be negative", field="seconds")
    _check_principles(principles)


def _check_principles(principles: Sequence[PrincipleAnswer]) -> None:
    seen = set()
    for answer in principles:
        if answer.response not in ("A", "B"):
            raise BadInputError("a principle is answered of response A or B", field="principles")
        if not isinstance(answer.principle, str) or not answer.principle.strip():
            raise BadInputError("a principle without text", field="principles")
        if answer.answer not in FULFILMENTS:
            raise BadInputError(
                f"unknown answer {answer.answer!r}; one of {', '.join(FULFILMENTS)}", field="principles"
            )
        if answer.evidence is not None and (not isinstance(answer.evidence, str) or not answer.evidence.strip()):
            raise BadInputError("evidence without text", field="principles")
        if (answer.response, answer.principle) in seen:
            raise BadInputError(f"two answers for {answer.response} on {answer.principle!r}", field="principles")
        seen.add((answer.response, answer.principle))
        _check_unicode("principles", answer.principle)
        _check_unicode("principles", answer.evidence)


def _check_unicode(name: str, value: object) -> None:
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise BadInputError("a lone surrogate: not valid Unicode", field=name) from error


def _canonical(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=True, sort_keys=True, separators=(",", ":"))


def _encode(kind: str, entry: dict[str, Any]) -> bytes:
    text = _canonical(entry)
    for name, value in entry.items():
        _check_unicode(name, value)
    return f'{{"check":"{ids.digest(text)}","{kind}":{text}}}\n'.encode("ascii")


def _decode(line: bytes) -> _Entry | None:
    try:
        record = json.loads(line)
        kind = next((name for name in ("vote", "answer", "change") if name in record), "withdrawal")
        entry = record[kind]
        return (kind, entry) if ids.digest(_canonical(entry)) == record["check"] else None
    except (ValueError, KeyError, TypeError):
        return None


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]
