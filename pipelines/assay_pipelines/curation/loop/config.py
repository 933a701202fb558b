"""The configuration of a curation loop, as read from YAML: pool, people, judges, reward models, budgets."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Ge, Le

from assay.compute.executor import LOCAL, check_place
from assay.data.snapshots import Selection
from assay.errors import BadInputError
from assay.settings import CheckedSettings, Help, check_settings
from assay_pipelines.curation.reliability.voters import VoterModel

TrainOn = Literal["silver", "silver+gold"]
Waiting = Literal["wait", "proceed"]
Backend = Literal["probe", "bt"]
Weights = Literal["reliability", "equal", "accuracy", "dawid-skene", "one-coin", "mace", "glad"]
Choice = Literal["errors", "contradictions", "uncertain"]
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,79}")  #: leaves room for `-i12-train`


@dataclass(frozen=True)
class PeopleConfig:
    """Who verifies. `queue`: annotators in `assay annotate` or the web page; without it `judges`, entries of a judge
    file, answer as people (recorded votes, simulated annotators), all of them each item.

    `per_iteration`, `seed`: comparisons shown in an iteration, and to begin with. `overlap`: different people an item
    of the queue needs. `policy`: `wait` stops until the queue is done, `proceed` continues with the votes there are.
    """

    per_iteration: Annotated[int, Ge(0)] = 50
    seed: Annotated[int, Ge(0)] = 100
    overlap: Annotated[int, Ge(1)] = 1
    gold_checks: Annotated[float, Ge(0), Le(0.5)] = 0.1
    policy: Waiting = "wait"
    queue: bool = True
    judges: str | None = None

    def __post_init__(self) -> None:
        check_settings(self, "people.")
        if self.queue == (self.judges is not None) and self.seed + self.per_iteration > 0:
            raise BadInputError(
                "name one source of people: queue: true, or judges: FILE with queue: false", field="people"
            )


@dataclass(frozen=True)
class Stage1ModelConfig:
    """The reward model of each iteration. `probe`: a linear probe on `base`'s frozen features, fitted in milliseconds
    once they are computed. `bt`: full Bradley-Terry training with `options` of `assay train bt`. `max_length`: tokens;
    None is the base's own length."""

    backend: Backend = "probe"
    base: str = "smollm2"
    max_length: Annotated[int | None, Ge(1)] = None
    device: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_settings(self, "model.")


@dataclass(frozen=True)
class Stage1Config:
    """One loop over the unverified comparisons of `sources` and `categories` (empty: all).

    `seed`: comparisons that judges label to begin with, beside those for people. `train_on`: the paper trains on
    silver and keeps gold for validation; with few labels `silver+gold` learns more; gold then chooses nothing (a
    probe's penalty comes from cross-validation, the last model is published), and its accuracy there is that of
    training. `source_votes`, `model_votes`: the source's own label and the iteration's reward model vote beside the
    judges; silver needs a majority of all that vote. `judge_weights`: each judge, source and the loop's model by what
    gold says it is worth, one where gold has not measured it (reliability; accuracy: the judges are asked about the
    loop's gold for that); or all alike, the sources together as one (equal); or by a model of the voters (dawid-skene,
    one-coin, mace, glad, of crowd-kit). `choose`: what an iteration
    looks at: the neighbours of gold that the model gets wrong, what its model contradicts the source in most, or where
    sources, judges and model together are least sure.
    `demonstrations`: labelled neighbours shown to a judge.
    `judges`: a file of judges; `attributes`: whether its first language model describes what is about to be asked;
    `preverify`: whether it checks the responses of objective pairs before people see them. `embed_responses`:
    retrieve by prompt, attributes and responses; the paper leaves the responses out, which says nothing where many
    comparisons share a prompt. `per_iteration`: comparisons retrieved at most, 0 = as many as the errors call for.
    `waivers`: registered benchmark -> why training continues although the pool is not checked against it. `max_cost`:
    of all calls of models that the loop makes, in all its runs. `run_on`: where the pool is embedded, as `--on` says.
    """

    name: str
    iterations: Annotated[int, Ge(1)] = 4
    sources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    seed: Annotated[int, Ge(0)] = 200
    k_max: Annotated[int, Ge(1)] = 8
    per_iteration: Annotated[int, Ge(0)] = 0
    train_on: TrainOn = "silver"
    source_votes: bool = False
    model_votes: bool = False
    judge_weights: Weights = "reliability"
    choose: Choice = "errors"
    demonstrations: Annotated[int, Ge(0)] = 8
    judges: str | None = None
    max_cost: float | None = None
    attributes: bool = False
    preverify: bool = False
    encoder: str = "minilm"
    embed_responses: bool = False
    model: Stage1ModelConfig = field(default_factory=Stage1ModelConfig)
    people: PeopleConfig = field(default_factory=PeopleConfig)
    random_seed: int = 0
    waivers: dict[str, str] = field(default_factory=dict)
    run_on: str = LOCAL

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and _NAME.fullmatch(self.name)):
            raise BadInputError(
                f"{self.name!r} cannot name models, queues and snapshots: letters, digits, and . _ + - after the first",
                field="name",
            )
        check_settings(self)
        check_place(self.run_on, "run_on")
        if not (self.judges or self.source_votes):
            raise BadInputError(
                "no voter labels silver: name judges: FILE, or source_votes: true (with model_votes: true)",
                field="judges",
            )

    @property
    def voter_model(self) -> VoterModel | None:
        """Of `judge_weights`, where that names one."""
        weights = self.judge_weights
        return None if weights == "equal" or weights == "accuracy" or weights == "reliability" else weights

    @property
    def pool(self) -> Selection:
        """What may still be looked at."""
        return Selection(("unverified",), self.sources, self.categories)

    def labelled(self, *pools: str) -> Selection:
        return Selection(pools, self.sources, self.categories)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "Stage1Config":
        """From plain YAML or JSON. Raises BadInputError naming the key that is unknown or wrong."""
        values = dict(payload)
        for name, kind in (("model", Stage1ModelConfig), ("people", PeopleConfig)):
            if isinstance(values.get(name), Mapping):
                values[name] = _build(kind, values[name], f"{name}.")
        for name in ("sources", "categories"):
            if name in values:
                names = values[name]
                values[name] = (names,) if isinstance(names, str) else tuple(names or ())
        config: Stage1Config = _build(cls, values, "")
        return config

    @classmethod
    def read(cls, path: Path) -> "Stage1Config":
        """From a YAML file; paths in it are relative to it."""
        import yaml

        try:
            payload = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInputError(error.strerror or str(error), file=path) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise BadInputError(f"not YAML: {str(error).splitlines()[0]}", file=path) from error
        if not isinstance(payload, dict):
            raise BadInputError("not a mapping of settings", file=path)
        people = payload.get("people")
        for where, key in ((payload, "judges"), (people, "judges")):
            if isinstance(where, dict) and isinstance(where.get(key), str):
                where[key] = str((path.parent / where[key]).resolve())
        try:
            return cls.of(payload)
        except BadInputError as error:
            raise BadInputError(str(error), file=path) from error


@dataclass(frozen=True)
class Stage2Config(CheckedSettings):
    """p: a model's probability of the source's label. `keep_above`: a model agrees above it; judges are asked where the
    gold model agrees and the best does not, for there alone the rule hangs on them. `recycle_below`: a discarded pair
    is recycled, flipped, where both models' p is at most this: 0 never, 0.5 where both prefer the other side, 1 always,
    as the paper does. `sources`: what is kept of sources that gold has measured has the weight 2p - 1 of their
    reliability, and what is kept of sources at chance is discarded; or every pair counts alike.
    """

    keep_above: Annotated[float, Ge(0), Le(1), Help("A model agrees with a label of higher probability.")] = 0.5
    recycle_below: Annotated[
        float, Ge(0), Le(1), Help("Flip into `recycled` what both models give at most this p; 0 = nothing.")
    ] = 0.0
    sources: Annotated[
        Literal["weights", "equal"], Help("What is kept: weigh it by its source's reliability on gold, or all alike.")
    ] = "weights"


def _build(kind: Any, values: Mapping[str, Any], prefix: str) -> Any:
    names = {f.name for f in fields(kind)}
    if unknown := sorted(set(values) - names):
        raise BadInputError(f"unknown setting; there are {', '.join(sorted(names))}", field=f"{prefix}{unknown[0]}")
    hints = get_type_hints(kind)
    for name, value in values.items():
        if not _fits(value, hints[name]):
            raise BadInputError(f"wrong type: {value!r}", field=f"{prefix}{name}")
    try:
        return kind(**values)
    except TypeError as error:
        raise BadInputError(f"wrong type or missing setting ({error})", field=prefix.rstrip(".") or None) from error


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value of YAML is of the field's type; what the values may be is the class's to say."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return isinstance(value, str)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    if origin is not None:  # X | None
        return any(_fits(value, one) for one in inner)
    if hint is Any:
        return True
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
