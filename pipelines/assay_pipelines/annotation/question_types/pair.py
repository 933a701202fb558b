"""Pair voting: which of two responses is better, a tie of three kinds, or a skip with a reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from assay.domain import Answer, ShownOrder
from assay.errors import BadInputError
from assay_pipelines.annotation.question_types.question_type import (
    COUNTED_SKIPS,
    Submission,
    Terminal,
    TerminalForm,
    VoteRecord,
)

#: What an annotator may choose, by position: `first` is on the left or on top, whatever its canonical letter.
Choice: TypeAlias = Literal["first", "second", "tie", "both_good", "both_bad"]
SkipReason: TypeAlias = Literal["cannot_decide", "broken", "not_for_me", "later"]
#: A stored answer by the positions on a reader's screen.
PlacedChoice: TypeAlias = Literal["first", "second", "tie", "both_good", "both_bad", "skip"]


@dataclass(frozen=True, slots=True)
class Option:
    """One thing to choose. `label`: a sentence; `short`: the name of its key."""

    name: str
    key: str
    label: str
    short: str


CHOICES: tuple[Option, ...] = (
    Option("first", "a", "A is better", "A better"),
    Option("second", "b", "B is better", "B better"),
    Option("tie", "t", "Tie", "tie"),
    Option("both_good", "g", "Both good", "both good"),
    Option("both_bad", "x", "Both bad", "both bad"),
)
SKIPS: tuple[Option, ...] = (
    Option("cannot_decide", "c", "I cannot decide which is better", "cannot decide"),
    Option("broken", "k", "The texts are broken or unreadable", "broken"),
    Option("not_for_me", "n", "Not my field, or I should not judge this one", "not for me"),
    Option("later", "l", "Not now; somebody else may take it", "later"),
)
STRENGTHS = ("barely", "slightly", "clearly", "far")  #: by number, 0 to 3
SKIP = Option("skip", "s", "Skipped", "skip")


class PairPreference:
    """The judgment is the choice in canonical order; a skip's reason begins its rationale."""

    component: ClassVar[str] = "PairPreference"

    def words(self) -> Mapping[str, Any]:
        def listed(options: Sequence[Option]) -> list[dict[str, str]]:
            return [{"name": o.name, "key": o.key, "label": o.label, "short": o.short} for o in options]

        return {
            "choices": listed(CHOICES),
            "skip": listed([SKIP])[0],
            "skips": listed(SKIPS),
            "counted_skips": sorted(COUNTED_SKIPS),
            "strengths": list(STRENGTHS),
        }

    def form(self, item: Mapping[str, Any] | None = None) -> TerminalForm:
        return _PairForm()

    def record(
        self, submission: Submission, item: Mapping[str, Any], order: ShownOrder, vote: VoteRecord | None
    ) -> VoteRecord:
        choice, reason = submission.choice, submission.skip
        if (choice is None) == (reason is None):
            raise BadInputError("a vote has a choice or a reason to skip", field="choice")
        if reason is not None:
            if reason not in get_args(SkipReason):
                raise BadInputError(
                    f"unknown reason {reason!r}; one of {', '.join(get_args(SkipReason))}", field="reason"
                )
            rationale = f"{reason}: {submission.rationale}" if submission.rationale else reason
            return VoteRecord("skip", rationale=rationale)
        if choice not in get_args(Choice):
            raise BadInputError(f"unknown choice {choice!r}; one of {', '.join(get_args(Choice))}", field="choice")
        answer: Answer = letter(choice, order) if choice in ("first", "second") else choice  # type: ignore[assignment, arg-type]
        return VoteRecord(answer, submission.strength, submission.confidence, submission.rationale or None)


def letter(position: Literal["first", "second"], order: ShownOrder) -> Literal["A", "B"]:
    """The canonical letter of the response at a position."""
    return "A" if (position == "first") == (order == "AB") else "B"


def placed(answer: str, order: ShownOrder) -> PlacedChoice:
    """A canonical answer by the positions on the screen."""
    if answer in ("A", "B"):
        return "first" if answer == order[0] else "second"
    return answer if answer in ("tie", "both_good", "both_bad") else "skip"  # type: ignore[return-value]


class _PairForm:
    """Strength and rationale are set before the key that decides."""

    def __init__(self) -> None:
        self.submission: Submission | None = None
        self._strength: int | None = None
        self._rationale = ""

    def keys(self) -> Sequence[tuple[str, str]]:
        options = [(option.key, option.short) for option in (*CHOICES, SKIP)]
        return [*options, ("0-3", "strength"), ("r", "rationale")]

    def notes(self) -> Sequence[str]:
        notes = [] if self._strength is None else [f"strength {self._strength}: {STRENGTHS[self._strength]} better"]
        return [*notes, *([f"rationale: {self._rationale}"] if self._rationale else [])]

    def press(self, key: str, terminal: Terminal) -> bool:
        if key in ("0", "1", "2", "3"):
            self._strength = None if self._strength == int(key) else int(key)
        elif key == "r":
            self._rationale = terminal.read_line("rationale: ")
        elif key == SKIP.key:
            reason = terminal.choose("why?", [(skip.key, skip.label) for skip in SKIPS])
            name = next((skip.name for skip in SKIPS if skip.key == reason), None)
            self.submission = None if name is None else Submission(skip=name, rationale=self._rationale)
        elif (choice := next((option.name for option in CHOICES if option.key == key), None)) is not None:
            strength = self._strength if choice in ("first", "second") else None
            self.submission = Submission(choice=choice, strength=strength, rationale=self._rationale or None)
        else:
            return False
        return True
