"""One person's sitting at a queue in a terminal: keys in, votes out.

Covers: what each key does, undo, drafts of strength and rationale, adjudication, leaving at any moment without losing
anything. Leaves out: reading keys (`keys`), the picture (`drawing`), the rules (`desk`).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from assay.errors import AssayError, BackendError
from assay_pipelines.annotation.assignment import Assignment
from assay_pipelines.annotation.items import Choice
from assay_pipelines.annotation.service import Desk, Receipt
from assay_pipelines.annotation.terminal.item_view import (
    SKIP_KEYS,
    STRENGTHS,
    draw_item,
    draw_keys,
    draw_opinions,
    draw_skips,
    draw_votes,
    plain,
    shown_answer,
)
from assay_pipelines.annotation.terminal.keys import END, Keys

CHOICES: dict[str, Choice] = {"a": "first", "b": "second", "t": "tie", "g": "both_good", "x": "both_bad"}


@dataclass
class Sitting:
    """What came of it; what was undone is not counted among the votes and skips. `finished`: there was nothing left for
    this person; else they left."""

    votes: int = 0
    skipped: int = 0
    undone: int = 0
    finished: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class _Draft:
    strength: int | None = None
    rationale: str = ""
    started: float = 0.0


class Session:
    """`clear`: begin each item on an empty screen."""

    def __init__(
        self,
        desk: Desk,
        queue: str,
        person: str,
        console: Console,
        keys: Keys,
        *,
        adjudicate: bool = False,
        clear: bool = False,
    ) -> None:
        self.desk, self.queue, self.person = desk, queue, person
        self.console, self.keys = console, keys
        self.adjudicate, self.clear = adjudicate, clear
        self.sitting = Sitting()
        self._guideline = desk.guideline(queue)
        self._note = Text()
        self._held: Assignment | None = None
        self._cast: list[bool] = []  # of this sitting, whether each was a skip

    def run(self) -> Sitting:
        """Until the queue has nothing for this person, they quit, or the input ends. Ctrl-C raises KeyboardInterrupt;
        in every case the item before them goes back to the queue."""
        try:
            undone = False
            while True:
                given = self._next()
                if given is None:
                    if self._last_undone():
                        undone = True
                        continue
                    self.sitting.finished = True
                    return self.sitting
                self._held = given
                outcome = self._item(given, undone)
                if outcome == "quit":
                    return self.sitting
                undone = outcome == "undone"
        finally:
            if self._held is not None:
                self.desk.release(self._held)

    def _next(self) -> Assignment | None:
        if self.adjudicate:
            return self.desk.next_conflict(self.queue, self.person)
        return self.desk.next(self.queue, self.person)

    def _item(self, given: Assignment, undone: bool) -> str:
        """Draw an item and take keys until it is decided: voted, undone or quit."""
        if self.clear:
            self.console.clear()
        number = self.sitting.votes + self.sitting.skipped + 1
        progress = self.desk.progress(self.queue)
        self._say_note()
        draw_item(self.console, given, progress, number=number, guideline=self._guideline, undone=undone)
        draft = _Draft(started=time.monotonic())
        self._keys(given, draft)
        while True:
            key = self.keys.key()
            if key in (END, "q"):
                return "quit"
            if key == "u":
                if self._undo(given):
                    return "undone"
            elif key in CHOICES or key == "s":
                if self._decide(given, draft, key):
                    return "voted"
            elif key == "v" and self.adjudicate:
                given = self._held = self.desk.reveal(given)
                draw_votes(self.console, self.desk.votes_on(given), given.shown_order)
                self._keys(given, draft)
            elif key in "0123":
                draft.strength = None if draft.strength == int(key) else int(key)
                self._keys(given, draft)
            elif key == "r":
                draft.rationale = self.keys.line("rationale: ")
                self._keys(given, draft)
            else:
                self.console.print(Text(f"{plain(key)!r} is no key here", style="dim"))

    def _decide(self, given: Assignment, draft: _Draft, key: str) -> bool:
        seconds = time.monotonic() - draft.started
        try:
            if key == "s":
                draw_skips(self.console)
                reason = SKIP_KEYS.get(self.keys.key())
                if reason is None:
                    self._keys(given, draft)
                    return False
                receipt = self.desk.skip(given, reason, text=draft.rationale, seconds=seconds)
                said = f"skipped: {reason.replace('_', ' ')}"
            else:
                strength = draft.strength if key in "ab" else None
                receipt = self.desk.vote(
                    given, CHOICES[key], strength=strength, rationale=draft.rationale or None, seconds=seconds
                )
                said = shown_answer(receipt.answer, given.shown_order)
                said += f", {STRENGTHS[strength]} better" if strength is not None else ""
        except BackendError as error:  # not acknowledged: the same key again casts the same vote
            self.console.print(Text(f"not stored: {error}; press the key again", style="bold red"))
            return False
        except AssayError as error:  # the time ran out and somebody else has it
            self._note = Text(str(error), style="bold red")
            self._held = None
            return True
        self._held = None
        self._count(receipt, skipped=key == "s")
        self._note = Text(f"stored: {said}", style="green")
        if receipt.opinions or given.role == "blind":
            self.console.print(self._note)
            self._note = Text()
            draw_opinions(self.console, receipt.opinions, given.shown_order)
            if given.role == "blind":
                draw_votes(self.console, self.desk.votes_on(given), given.shown_order)
            if self.clear:
                self.console.print(Text("any key: on", style="dim"))
                self.keys.key()
        return True

    def _count(self, receipt: Receipt, *, skipped: bool) -> None:
        if receipt.repeated:
            return
        self._cast.append(skipped)
        if skipped:
            self.sitting.skipped += 1
        else:
            self.sitting.votes += 1

    def _last_undone(self) -> bool:
        """At the end of the queue the last vote can still be taken back."""
        self._say_note()
        if not self._cast:
            return False
        self.console.print(Text("Nothing is left for you. u: undo the last vote; any other key: leave", style="bold"))
        return self.keys.key() == "u" and self._undo(None)

    def _undo(self, given: Assignment | None) -> bool:
        back = self.desk.undo(self.queue, self.person, adjudication=self.adjudicate)
        if back is None:
            self.console.print(Text("nothing to undo", style="dim"))
            return False
        self.sitting.undone += 1
        if self._cast:  # else it was of an earlier sitting
            if self._cast.pop():
                self.sitting.skipped -= 1
            else:
                self.sitting.votes -= 1
        if given is not None:
            self.desk.release(given)  # it comes again after the undone one
        self._held = None
        return True

    def _keys(self, given: Assignment, draft: _Draft) -> None:
        draw_keys(
            self.console,
            strength=draft.strength,
            rationale=draft.rationale,
            adjudicating=self.adjudicate,
            sees_votes=given.role == "open",
        )

    def _say_note(self) -> None:
        if self._note:
            self.console.print(self._note)
            self._note = Text()
