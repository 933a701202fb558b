"""What the questions on single responses and lists share: passing an item on, and the keys of a terminal form."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from assay.errors import BadInputError
from assay_pipelines.annotation.question_types.pair import SKIP, SKIPS, SkipReason
from assay_pipelines.annotation.question_types.question_type import ANSWERED, Submission, Terminal, VoteRecord


def passed_on(submission: Submission) -> VoteRecord | None:
    """The record of a skip; None for a submission that is none. Raises BadInputError for an unknown reason."""
    if (reason := submission.skip) is None:
        return None
    if reason not in get_args(SkipReason):
        raise BadInputError(f"unknown reason {reason!r}; one of {', '.join(get_args(SkipReason))}", field="reason")
    rationale = f"{reason}: {submission.rationale}" if submission.rationale else reason
    return VoteRecord("skip", rationale=rationale, labels={})


def answered(submission: Submission, **labels: Sequence[Mapping[str, Any]]) -> VoteRecord:
    return VoteRecord(ANSWERED, rationale=submission.rationale or None, labels=labels)


def list_in(submission: Submission, name: str) -> list[Any]:
    """A list of the submission's own fields. Raises BadInputError."""
    value = submission.response.get(name)
    if not isinstance(value, list):
        raise BadInputError(f"the answer has a list {name!r}", field="response")
    return value


class ItemForm(ABC):
    """A form with the keys that every item has: skip, rationale, `z` takes the last step back."""

    def __init__(self) -> None:
        self.submission: Submission | None = None
        self._rationale = ""

    @abstractmethod
    def own_keys(self) -> Sequence[tuple[str, str]]:
        """(key, meaning) of the question."""

    @abstractmethod
    def own_notes(self) -> Sequence[str]:
        """What has been answered so far."""

    @abstractmethod
    def take(self, key: str, terminal: Terminal) -> bool:
        """As `press`, for the question's own keys."""

    def keys(self) -> Sequence[tuple[str, str]]:
        return [*self.own_keys(), ("z", "back"), (SKIP.key, SKIP.short), ("r", "rationale")]

    def notes(self) -> Sequence[str]:
        return [*self.own_notes(), *([f"rationale: {self._rationale}"] if self._rationale else [])]

    def press(self, key: str, terminal: Terminal) -> bool:
        if key == "r":
            self._rationale = terminal.read_line("rationale: ")
        elif key == SKIP.key:
            reason = terminal.choose("why?", [(skip.key, skip.label) for skip in SKIPS])
            name = next((skip.name for skip in SKIPS if skip.key == reason), None)
            self.submission = None if name is None else Submission(skip=name, rationale=self._rationale)
        else:
            return self.take(key, terminal)
        return True

    def submit(self, response: Mapping[str, Any]) -> None:
        self.submission = Submission(rationale=self._rationale or None, response=response)
