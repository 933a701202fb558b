"""The labelling configurations `preference` and `pairwise`, the settings of a project, and what a choice means.

`preference` can say a tie, both good, both bad and skip, with a strength and a rationale; `pairwise` is Label Studio's
own template. In a choice `A` is the response on the left; the task's `shown_order` says which of the canonical two.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge

from assay.domain import Answer
from assay.errors import BadInputError
from assay.settings import Help, check_settings

Template: TypeAlias = Literal["preference", "pairwise"]
CONTROL: dict[str, str] = {"preference": "preference", "pairwise": "comparison"}  #: name of the answering control
RATIONALE = "rationale"

#: Value in the annotation -> (answer as shown, strength 0 to 3 or None).
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
_WORDS: dict[str, tuple[str, str]] = {  # what a person reads, and the key that chooses it
    "A>>B": ("A is much better", "1"),
    "A>B": ("A is better", "2"),
    "A>=B": ("A is slightly better", "3"),
    "tie": ("About the same", "4"),
    "both good": ("Both good", "5"),
    "both bad": ("Both bad", "6"),
    "B>=A": ("B is slightly better", "7"),
    "B>A": ("B is better", "8"),
    "B>>A": ("B is much better", "9"),
    "skip": ("I cannot decide", "0"),
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
        return _PREFERENCE if self.template == "preference" else _PAIRWISE


def choice_for(answer: Answer, strength: int | None) -> str:
    """The value in the template `preference` that says this answer, as shown; no strength is a plain `better`."""
    if answer in ("A", "B"):
        rounded = {None: 2, 0: 1}.get(strength, strength)
        return next(value for value, choice in CHOICES.items() if choice == (answer, rounded))
    return next(value for value, (choice, _) in CHOICES.items() if choice == answer)


def _escaped(value: str) -> str:
    return value.replace(">", "&gt;")


def _choice(value: str) -> str:
    words, key = _WORDS[value]
    return f'      <Choice alias="{_escaped(value)}" value="{words}" hotkey="{key}"/>'


_STYLE = """  <Style>
    .assay-pair { display: grid; grid-template-columns: 1fr 1fr; gap: 16px; }
    .assay-box { border: 1px solid rgba(128, 128, 128, 0.5); border-radius: 6px; padding: 8px 16px; }
    .assay-box .lsf-richtext__line { white-space: pre-wrap; }
  </Style>
"""

_PREFERENCE = (
    "<View>\n"
    + _STYLE
    + """  <View className="assay-box">
    <Header value="Prompt" size="5"/>
    <Text name="prompt" value="$prompt"/>
  </View>
  <View className="assay-pair" style="margin-top: 16px">
    <View className="assay-box">
      <Header value="Response A" size="5"/>
      <Text name="answer1" value="$answer1"/>
    </View>
    <View className="assay-box">
      <Header value="Response B" size="5"/>
      <Text name="answer2" value="$answer2"/>
    </View>
  </View>
  <Header value="Which response is better?" size="5"/>
  <Choices name="preference" toName="prompt" choice="single" showInline="true" required="true"
           requiredMessage="Choose an answer, or 'I cannot decide'">
"""
    + "\n".join(_choice(value) for value in CHOICES)
    + """
  </Choices>
  <TextArea name="rationale" toName="prompt" rows="3" maxSubmissions="1" editable="true"
            placeholder="Why? (optional)"/>
</View>
"""
)

_PAIRWISE = (
    "<View>\n"
    + _STYLE
    + """  <View className="assay-box">
    <Text name="prompt" value="$prompt"/>
  </View>
  <Style>
    .assay-pair .assay-box { padding: 0; display: grid; }
    .assay-pair .lsf-richtext__container { padding: 8px 16px; }
  </Style>
  <Header value="Click the better response" size="5"/>
  <View className="assay-pair" style="margin-top: 16px">
    <Pairwise name="comparison" toName="answer1,answer2"/>
    <View className="assay-box">
      <Text name="answer1" value="$answer1"/>
    </View>
    <View className="assay-box">
      <Text name="answer2" value="$answer2"/>
    </View>
  </View>
  <TextArea name="rationale" toName="prompt" rows="3" maxSubmissions="1" editable="true"
            placeholder="Why? (optional)"/>
</View>
"""
)
