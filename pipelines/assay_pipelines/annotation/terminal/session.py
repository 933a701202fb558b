"""One annotator's session at a queue in a terminal: votes, undo, adjudication, leaving at any moment.

Keys are single presses in a terminal, which is restored afterwards whatever happens, or the same characters of a pipe.
"""

import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TextIO

from rich.console import Console
from rich.text import Text

from assay.errors import AssayError, BackendError, BadInputError
from assay_pipelines.annotation.assignment import Assignment
from assay_pipelines.annotation.question_types.question_type import TASKS, QuestionType, TerminalForm, question_type
from assay_pipelines.annotation.service import AnnotationService, Receipt
from assay_pipelines.annotation.terminal.item_view import (
    answer_words,
    draw_item,
    draw_keys,
    draw_opinions,
    draw_options,
    draw_votes,
    plain,
)

END = ""  #: no more input
ESCAPE = "\x1b"


class KeyReader(Protocol):
    def key(self) -> str:
        """The next key, or END. Ctrl-C raises KeyboardInterrupt."""

    def line(self, prompt: str) -> str:
        """A line of text, with the line editing that the terminal offers."""


class PipedKeys:
    """Characters of a stream; white space between keys means nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def key(self) -> str:
        while (character := self._stream.read(1)) and character.isspace():
            pass
        return character

    def line(self, prompt: str) -> str:
        return self._stream.readline().strip()


class TerminalKeys:
    """The controlling terminal of standard input."""

    def __init__(self) -> None:
        self._handle = sys.stdin.fileno()
        self._waiting = b""

    def key(self) -> str:
        with self._raw():
            first = self._byte()
            if first == b"\x04":  # Ctrl-D
                return END
            if first == b"\x1b":  # an arrow or function key is several bytes: none of them is a key of ours
                while select.select([self._handle], [], [], 0.02)[0]:
                    os.read(self._handle, 32)
                return ESCAPE
            length = 1 if first < b"\x80" else 2 if first < b"\xe0" else 3 if first < b"\xf0" else 4
            following = b"".join(self._byte() for _ in range(length - 1)) if first else b""
            return (first + following).decode("utf-8", "replace")

    def line(self, prompt: str) -> str:
        try:
            return input(prompt).strip()
        except EOFError:
            return ""

    def _byte(self) -> bytes:
        return os.read(self._handle, 1)

    @contextmanager
    def _raw(self) -> Iterator[None]:
        import termios
        import tty

        before = termios.tcgetattr(self._handle)
        try:
            tty.setcbreak(self._handle, termios.TCSADRAIN)  # keeps what was typed ahead, and Ctrl-C
            yield
        finally:
            termios.tcsetattr(self._handle, termios.TCSADRAIN, before)


def open_keys() -> KeyReader:
    return TerminalKeys() if sys.stdin.isatty() else PipedKeys(sys.stdin)


@dataclass
class SessionCounts:
    """What was undone is not counted among the votes and skips. `finished`: nothing was left for this annotator; else
    they left."""

    votes: int = 0
    skipped: int = 0
    undone: int = 0
    finished: bool = False


class TerminalSession:
    """`clear`: begin each item on an empty screen."""

    def __init__(
        self,
        service: AnnotationService,
        queue: str,
        annotator: str,
        console: Console,
        keys: KeyReader,
        *,
        adjudicate: bool = False,
        clear: bool = False,
    ) -> None:
        self.service, self.queue, self.annotator = service, queue, annotator
        self.console, self.keys = console, keys
        self.adjudicate, self.clear = adjudicate, clear
        self.counts = SessionCounts()
        self._guideline = service.guideline(queue)
        self._note = Text()
        self._assignment: Assignment | None = None
        self._skips: list[bool] = []  # of this session's votes, whether each was a skip

    def run(self) -> SessionCounts:
        """Until the queue has nothing for this annotator, they quit, or the input ends. Ctrl-C raises
        KeyboardInterrupt; in every case the item before them goes back to the queue."""
        try:
            undone = False
            while True:
                assignment = self._next()
                if assignment is None:
                    if self._last_undone():
                        undone = True
                        continue
                    self.counts.finished = True
                    return self.counts
                self._assignment = assignment
                outcome = self._ask(assignment, undone)
                if outcome == "quit":
                    return self.counts
                undone = outcome == "undone"
        finally:
            if self._assignment is not None:
                self.service.release(self._assignment)

    def choose(self, title: str, options: Sequence[tuple[str, str]]) -> str | None:
        """As `question_type.Terminal` has it."""
        draw_options(self.console, title, options)
        key = self.keys.key()
        return key if key in dict(options) else None

    def read_line(self, prompt: str) -> str:
        return self.keys.line(prompt)

    def _next(self) -> Assignment | None:
        if self.adjudicate:
            return self.service.next_conflict(self.queue, self.annotator)
        return self.service.next(self.queue, self.annotator)

    def _ask(self, assignment: Assignment, undone: bool) -> str:
        """Draw an item and take keys until it is decided: voted, undone or quit."""
        name = assignment.content.question
        form = _form_of(question_type(name), assignment)
        if form is None:
            raise BadInputError(f"a terminal cannot ask the question {name!r}: use the web page")
        if self.clear:
            self.console.clear()
        number = self.counts.votes + self.counts.skipped + 1
        progress = self.service.progress(self.queue)
        self._print_note()
        draw_item(self.console, assignment, progress, number=number, guideline=self._guideline, undone=undone)
        started = time.monotonic()
        self._draw_keys(assignment, form)
        while True:
            key = self.keys.key()
            if key in (END, "q"):
                return "quit"
            if key == "u":
                if self._undo(assignment):
                    return "undone"
            elif key == "v" and self.adjudicate:
                assignment = self._assignment = self.service.reveal(assignment)
                draw_votes(self.console, self.service.votes_on(assignment), assignment)
                self._draw_keys(assignment, form)
            elif not form.press(key, self):
                self.console.print(Text(f"{plain(key)!r} is no key here", style="dim"))
            elif form.submission is None:
                self._draw_keys(assignment, form)
            elif self._cast(assignment, form, time.monotonic() - started):
                return "voted"

    def _cast(self, assignment: Assignment, form: TerminalForm, seconds: float) -> bool:
        assert form.submission is not None
        submission, form.submission = replace(form.submission, seconds=seconds), None
        try:
            receipt = self.service.cast(assignment.ticket, self.annotator, submission)
        except BackendError as error:  # not acknowledged: the same key again casts the same vote
            self.console.print(Text(f"not stored: {error}; press the key again", style="bold red"))
            return False
        except AssayError as error:  # its lease ran out and somebody else has it
            self._note = Text(str(error), style="bold red")
            self._assignment = None
            return True
        self._assignment = None
        self._count(receipt, skipped=receipt.answer == "skip")
        words = answer_words(receipt.answer, assignment.shown_order, submission.strength)
        if submission.skip is not None:
            words = f"skipped: {submission.skip.replace('_', ' ')}"
        self._note = Text(f"stored: {words}", style="green")
        if receipt.opinions or assignment.role == "blind":
            self._print_note()
            draw_opinions(self.console, receipt.opinions, assignment.shown_order)
            if assignment.role == "blind":
                draw_votes(self.console, self.service.votes_on(assignment), assignment)
            if self.clear:
                self.console.print(Text("any key: continue", style="dim"))
                self.keys.key()
        return True

    def _count(self, receipt: Receipt, *, skipped: bool) -> None:
        if receipt.repeated:
            return
        self._skips.append(skipped)
        if skipped:
            self.counts.skipped += 1
        else:
            self.counts.votes += 1

    def _last_undone(self) -> bool:
        """At the end of the queue the last vote can still be taken back."""
        self._print_note()
        if not self._skips:
            return False
        self.console.print(Text("Nothing is left for you. u: undo the last vote; any other key: leave", style="bold"))
        return self.keys.key() == "u" and self._undo(None)

    def _undo(self, assignment: Assignment | None) -> bool:
        again = self.service.undo(self.queue, self.annotator, adjudication=self.adjudicate)
        if again is None:
            self.console.print(Text("nothing to undo", style="dim"))
            return False
        self.counts.undone += 1
        if self._skips:  # else the vote was of an earlier session
            if self._skips.pop():
                self.counts.skipped -= 1
            else:
                self.counts.votes -= 1
        if assignment is not None:
            self.service.release(assignment)  # it comes again after the undone one
        self._assignment = None
        return True

    def _draw_keys(self, assignment: Assignment, form: TerminalForm) -> None:
        extra = [("u", "undo"), ("q", "quit")]
        if self.adjudicate and assignment.role != "open":
            extra.insert(1, ("v", "see the votes"))
        draw_keys(self.console, [*form.keys(), *extra], form.notes())

    def _print_note(self) -> None:
        if self._note:
            self.console.print(self._note)
            self._note = Text()


def _form_of(asked: QuestionType, assignment: Assignment) -> TerminalForm | None:
    """The form of an item. Types of one's own may take no item."""
    return asked.form(assignment.payload) if assignment.content.question in TASKS else asked.form()
