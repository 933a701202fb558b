"""The labelling configurations `preference` and `pairwise`, the settings of a project, and what a choice means.

`preference` can say a tie, both good, both bad and skip, with a strength and a rationale; `pairwise` is Label Studio's
own template. In a choice `A` is the response on the left; the task's `shown_order` says which of the canonical two.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge

from assay.domain import Answer
from assay.errors import BadInputError
from assay.settings import Help, check_settings

Template: TypeAlias = Literal["preference", "pairwise"]
CONTROL: dict[str, str] = {"preference": "preference", "pairwise": "comparison"}  #: name of the answering control
RATIONALE = "rationale"

#: Value in the annotation (aliases of `preference.xml`) -> (answer as shown, strength 0 to 3 or None).
CHOICES: dict[str, tuple[Answer, int | None]] = {
    "A>>B": ("A", 3),
    "A>B": ("A", 2),
    "A>=B": ("A", 1),
    "tie": ("tie", None),
    "both good": ("both_good", None),
    "both bad": ("both_bad", None),
    "B>=A": ("B", 1),
    "B>A": ("B", 2),
    "B>>A": ("B", 3),
    "skip": ("skip", None),
}


@dataclass(frozen=True)
class ProjectConfig:
    """What a project asks, and how its answers are read.

    `show_predictions`: off, Label Studio still shows them to those who open a task from the table and not by `Label all
    tasks`: better push none.
    """

    template: Annotated[Template, Help("preference (with ties, strength), or pairwise.")] = "preference"
    overlap: Annotated[int, Ge(1), Help("Annotations per task.")] = 1
    seed: int = 0  #: of the random order in which the two responses are shown
    show_predictions: Annotated[
        bool, Help("Show the judges' answers as already chosen. This biases people.", "--show-predictions")
    ] = False
    empty_means_tie: Annotated[
        bool, Help("pairwise: submitted without a choice is a tie, not a skip.", "--empty-means-tie")
    ] = False
    guideline: str = ""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.empty_means_tie and self.template != "pairwise":
            raise BadInputError("only for the template 'pairwise': the other one has a choice for a tie")

    @property
    def label_config(self) -> str:
        """Label Studio's XML."""
        return Path(__file__).with_name(f"{self.template}.xml").read_text(encoding="utf-8")


def choice_for(answer: Answer, strength: int | None) -> str:
    """The value in the template `preference` that says this answer, as shown; no strength is a plain `better`."""
    if answer in ("A", "B"):
        rounded = {None: 2, 0: 1}.get(strength, strength)
        return next(value for value, choice in CHOICES.items() if choice == (answer, rounded))
    return next(value for value, (choice, _) in CHOICES.items() if choice == answer)
