"""The settings of an online loop, as its YAML file has them. Imports nothing heavy.

Leaves out: the settings of the policy training, which are those of `assay rl` (`recipe`, `set`, `training`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

import yaml
from annotated_types import Ge, Gt, Le, Lt

from assay.errors import BadInputError, NotFoundError, plain_reason
from assay.registry import unknown
from assay.settings import CheckedSettings, Help
from assay_rm_training.methods.heads_config import HeadsMethod, HeadsPenalty, Members

Host = Literal["process", "serve"]
Combine = Literal["mean", "min", "uwo", "lower_bound"]
OnAlarm = Literal["stop", "return", "label", "penalty", "ignore"]
EXAMPLE = Path(__file__).with_name("loop.example.yaml")


@contextmanager
def named_field(field: str) -> Iterator[None]:
    """What is not found in the block is what this field names."""
    try:
        yield
    except NotFoundError as error:
        raise NotFoundError(f"field {field!r}: {error}") from error


class _Checked(CheckedSettings):
    __pydantic_config__: ClassVar = {"extra": "forbid"}


@dataclass(frozen=True)
class RewardPlan(_Checked):
    """The reward model: what it begins with, how it learns, where it runs. One of `start`, `pairs` and `labels`."""

    start: Annotated[
        str | None,
        Help("A reward model of the workspace, or its folder, to begin with; of `heads` an ensemble of heads."),
    ] = None
    pairs: Annotated[str | None, Help("A snapshot or a file of pairs to fit the first model on.")] = None
    labels: Annotated[int, Ge(0), Help("Labels bought on rollouts of the untrained policy for the first one.")] = 0
    refit: Annotated[
        Literal["heads", "train"],
        Help(
            "heads: on a frozen backbone, to their optimum. train: all weights, by `training`, from the version before."
        ),
    ] = "heads"
    training: Annotated[
        Mapping[str, Any], Help("Of train: `method` (bt), its settings and those of `assay train`.")
    ] = field(default_factory=dict)
    backbone: Annotated[str | None, Help("Whose frozen hidden states the heads read. Default: the policy's base.")] = (
        None
    )
    members: Members = 8
    uncertainty: HeadsMethod = "laplace"
    combine: Annotated[Combine, Help("Their rewards as one.")] = "mean"
    weight: Annotated[float, Ge(0), Help("Of the spread, where `combine` has one.")] = 0.5
    l2: HeadsPenalty = None
    host: Annotated[Host, Help("process: scored here; serve: by a child process `assay serve`.")] = "process"
    max_length: Annotated[int | None, Gt(0), Help("Tokens of a conversation. Default: the backbone's own.")] = None
    port: Annotated[int, Ge(0), Help("Of the child process; 0: a free one.")] = 0


@dataclass(frozen=True)
class LabelPlan(_Checked):
    """Which pairs are asked about, how often, and whom. `selector`, `source`: `kind` and its settings."""

    selector: Mapping[str, Any] = field(default_factory=lambda: {"kind": "disagreement"})
    source: Mapping[str, Any] = field(default_factory=lambda: {"kind": "verifier"})
    other: Annotated[str | None, Help("A second reward, named as --reward, for selectors that compare two.")] = None
    every: Annotated[int, Ge(1), Help("Steps between two purchases.")] = 5
    count: Annotated[int, Ge(1), Help("Labels of a purchase.")] = 8
    refit_after: Annotated[int, Ge(1), Help("New labels that are enough for a refit.")] = 1
    held_out: Annotated[float, Ge(0), Lt(1), Help("Share of the prompts whose labels only measure.")] = 0.2


@dataclass(frozen=True)
class BudgetPlan(_Checked):
    """Limits; None: none. Labels and money include the first ones."""

    labels: Annotated[int | None, Ge(0), Help("Labels in all.")] = None
    money: Annotated[float | None, Ge(0), Help("What they may cost in all.")] = None
    steps: Annotated[int | None, Ge(0), Help("The last step that buys labels.")] = None
    minutes: Annotated[float | None, Ge(0), Help("Minutes of training during which labels are bought.")] = None
    when_spent: Annotated[
        Literal["go_on", "stop"], Help("go_on: train on with the reward as it is. stop: end the run.")
    ] = "go_on"


@dataclass(frozen=True)
class SwapPlan(_Checked):
    """When a refitted model takes the path of the old one."""

    least: Annotated[int, Ge(1), Help("Held-out labels that are enough to compare the two.")] = 10
    tolerance: Annotated[float, Ge(0), Le(1), Help("Accuracy on them that the new one may lose.")] = 0.05
    agreement: Annotated[
        float, Ge(0), Le(1), Help("Least share of the step's pairs that both put in the same order.")
    ] = 0.0


@dataclass(frozen=True)
class AlarmPlan(_Checked):
    """What an alarm leads to."""

    metric: Annotated[str | None, Help("Column above 0.5 is an alarm. Default: alarm, or else overoptimised.")] = None
    action: Annotated[
        OnAlarm,
        Help(
            "stop: end the run. return: take up the last good checkpoint and buy labels there. label: buy labels in "
            "the next step. penalty: go on with a penalty on KL and length. ignore: write it down alone."
        ),
    ] = "stop"
    labels: Annotated[int, Ge(0), Help("Labels of `return` and `label`.")] = 16
    kl: Annotated[float, Ge(0), Help("Penalty by nat of log pi - log pi_ref of a response.")] = 0.05
    length: Annotated[float, Ge(0), Help("Penalty by token of a response.")] = 0.0
    cooldown: Annotated[int, Ge(1), Help("Steps after an action during which no alarm counts.")] = 10
    most: Annotated[int, Ge(1), Help("Actions, after which an alarm ends the run.")] = 3


@dataclass(frozen=True)
class LoopConfig(_Checked):
    """An online loop. `set`: keys of the recipe. `training`: options of `assay rl` that are no key of the recipe, e.g.
    {prompts: [constrained:64], watch: [verifier], evaluate: 32}."""

    name: str
    policy: str = "smollm2"
    recipe: str = "grpo"
    set: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    reward: RewardPlan = field(default_factory=RewardPlan)
    labels: LabelPlan = field(default_factory=LabelPlan)
    budget: BudgetPlan = field(default_factory=BudgetPlan)
    swap: SwapPlan = field(default_factory=SwapPlan)
    alarm: AlarmPlan = field(default_factory=AlarmPlan)

    def __post_init__(self) -> None:
        super().__post_init__()
        reward, limit = self.reward, self.budget.labels
        if sum((reward.start is not None, reward.pairs is not None, reward.labels > 0)) != 1:
            raise BadInputError("begin with one of start, pairs and labels", field="reward")
        if limit is not None and reward.labels > limit:
            raise BadInputError(
                f"the first model needs {reward.labels} labels (reward.labels), and the budget is {limit}",
                field="budget.labels",
            )
        for name, plan in (("labels.selector", self.labels.selector), ("labels.source", self.labels.source)):
            if not isinstance(plan, Mapping) or not isinstance(plan.get("kind"), str):
                raise BadInputError("is a mapping with a kind", field=name)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `loop_of` is the inverse."""
        return asdict(self)


def load_loop(path: Path) -> LoopConfig:
    """Raises BadInputError naming the file and the key that is wrong."""
    try:
        payload = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInputError("no such file; `assay loop --example` prints one", file=path) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInputError(f"not YAML: {' '.join(str(error).split())}", file=path) from error
    try:
        return loop_of({"name": path.stem, **payload} if isinstance(payload, dict) else payload)
    except BadInputError as error:
        raise BadInputError(str(error), file=path) from error


def loop_of(payload: Any) -> LoopConfig:
    """From plain mappings. Raises BadInputError naming the key."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(LoopConfig).validate_python(payload)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = [str(part) for part in first["loc"]]
        if first["type"] == "unexpected_keyword_argument":
            names = sorted(_keys(LoopConfig, path[:-1]))
            raise unknown("setting", path[-1], names, field=".".join(path)) from error
        raise BadInputError(plain_reason(first), field=".".join(path) or None) from error


def _keys(declared: type[Any], path: list[str]) -> list[str]:
    for name in path:
        declared = get_type_hints(declared)[name]
    return [f.name for f in fields(declared)]
