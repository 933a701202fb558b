"""Settings of the stages that can be started from the page, each as an `assay` command line.

Leaves out: running it (`stage_process`), its cost (`estimates`).
"""

from dataclasses import field
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from assay.settings import arguments_of, fields_of
from assay_pipelines.hygiene.cleaning import CleanConfig
from assay_pipelines.hygiene.contamination.check import CheckConfig
from assay_pipelines.hygiene.near_duplicates.search import NearDuplicateConfig
from assay_web.server.request_body import RequestBody

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^-\s][^\x00-\x1f]*$")]  # no option in disguise
PoolName = Literal["unverified", "gold", "silver", "recycled", "pending", "discarded"]
Share = Annotated[float, Field(ge=0, le=1)]


_CONFIG = ConfigDict(extra="forbid")


class _Settings(RequestBody):
    model_config = ConfigDict(frozen=True)


class _Stage(_Settings):
    """A stage whose command has an option for each setting; a setting of several values is named in the plural."""

    command: ClassVar[tuple[str, ...]]

    def arguments(self) -> list[str]:
        arguments = [*self.command]
        for name, value in self:
            option = "--" + name.replace("_", "-")
            if isinstance(value, bool):
                arguments += [option] if value else []
            elif isinstance(value, tuple):
                plural = {"categories": "--category"}.get(name, option.removesuffix("s"))
                arguments += [part for one in value for part in (plural, one)]
            elif value is not None and name != "stage":
                arguments += [option, f"{value:g}" if isinstance(value, float) else str(value)]
        return arguments


@dataclass(frozen=True, config=_CONFIG)
class CleanStage(CleanConfig):
    """Discard what breaks structural rules."""

    stage: Literal["clean"] = field(kw_only=True)

    def arguments(self) -> list[str]:
        return ["data", "clean", *arguments_of(self, CleanConfig)]


class DedupStage(_Stage):
    """Keep one of each pair that differs only in case or white space; set contradicting labels aside."""

    command = ("data", "dedup")
    stage: Literal["dedup"]


@dataclass(frozen=True, config=_CONFIG)
class NearDuplicatesStage(NearDuplicateConfig):
    """Cluster what is nearly the same; discard all but the kept of each cluster, or only report them."""

    stage: Literal["near_duplicates"] = field(kw_only=True)
    discard: bool = False

    def arguments(self) -> list[str]:
        action = "discard" if self.discard else "report"
        return ["data", "near-dup", *arguments_of(self, NearDuplicateConfig), "--action", action]


@dataclass(frozen=True, config=_CONFIG)
class DecontaminateStage(CheckConfig):
    """Check every prompt and response against benchmarks, all registered ones unless some are named."""

    stage: Literal["decontaminate"] = field(kw_only=True)
    benchmarks: tuple[Name, ...] = ()
    encoder: Annotated[str, Field(pattern=r"^(minilm|hashing)?$")] = ""
    discard: bool = True

    def arguments(self) -> list[str]:
        action = "discard" if self.discard else "report"
        return ["data", "decontaminate", *arguments_of(self, CheckConfig), "--action", action]


class VerifyStage(_Stage):
    """Let the constraint verifier decide, as gold, pairs whose prompt carries checkable constraints."""

    command = ("curate", "verify")
    stage: Literal["verify"]
    share: Share = 1.0
    sources: tuple[Name, ...] = ()


class Stage1Stage(_Settings):
    """The loop with people and judges. `file`: one of the workspace's descriptions of loops."""

    stage: Literal["stage1"]
    file: Name

    def arguments(self) -> list[str]:
        return ["curate", "stage1", self.file]


class Stage2Stage(_Stage):
    """The pass with two reward models and judges, without people."""

    command = ("curate", "stage2")
    stage: Literal["stage2"]
    best: Name
    gold: Name
    keep_above: Share = 0.5
    recycle_below: Share = 0.0
    judges: Name | None = None
    max_cost: Annotated[float, Field(ge=0)] | None = None
    sources: tuple[Name, ...] = ()
    dry_run: bool = False


class ConsistencyStage(_Stage):
    """The pass with reward models alone: keep the labels all of them agree with, flip or discard the others."""

    command = ("curate", "consistency")
    stage: Literal["consistency"]
    models: Annotated[tuple[Name, ...], Field(min_length=1, max_length=8)]
    keep_above: Share = 0.5
    flip_below: Share = 0.0
    sources: tuple[Name, ...] = ()
    dry_run: bool = False


class JudgeStage(_Stage):
    """Ask judges about comparisons; decides nothing. `judges`: one of the workspace's files of judges. `pools`: all but
    discarded and pending ones unless some are named."""

    command = ("judge", "run")
    stage: Literal["judge"]
    judges: Name
    pools: tuple[PoolName, ...] = ()
    sources: tuple[Name, ...] = ()
    limit: Annotated[int, Field(ge=1)] | None = None
    max_cost: Annotated[float, Field(ge=0)] | None = None


class SnapshotStage(_Settings):
    """Fix labelled comparisons under a name, for training; no pools: gold, silver, recycled and unverified. `holdout`:
    share of the groups kept out, as NAME-holdout; null for none."""

    stage: Literal["snapshot"]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.+-]{0,90}$")]
    pools: tuple[PoolName, ...] = ()
    sources: tuple[Name, ...] = ()
    categories: tuple[Name, ...] = ()
    holdout: Annotated[float, Field(gt=0, lt=1)] | None = None
    group_by: Literal["prompt", "category"] = "prompt"
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0

    def arguments(self) -> list[str]:
        options = [part for name in self.pools for part in ("--pool", name)]
        options += [part for name in self.sources for part in ("--source", name)]
        options += [part for name in self.categories for part in ("--category", name)]
        if self.holdout is not None:
            options += ["--holdout", f"{self.holdout:g}", "--group-by", self.group_by, "--seed", str(self.seed)]
        return ["data", "snapshot", self.name, *options]


StageSettings: TypeAlias = Annotated[
    CleanStage
    | DedupStage
    | NearDuplicatesStage
    | DecontaminateStage
    | VerifyStage
    | ConsistencyStage
    | JudgeStage
    | Stage1Stage
    | Stage2Stage
    | SnapshotStage,
    Field(discriminator="stage"),
]


STAGE_SETTINGS: TypeAdapter[StageSettings] = TypeAdapter(StageSettings)


class SettingReply(BaseModel):
    """A setting's default and range, for the form; null: none."""

    default: bool | int | float | str | list[str]
    least: float | None
    most: float | None


def declared_settings() -> dict[str, dict[str, SettingReply]]:
    """Stage -> setting -> what its dataclass declares."""
    declared = {"clean": CleanConfig, "near_duplicates": NearDuplicateConfig, "decontaminate": CheckConfig}
    return {
        stage: {
            field.name: SettingReply(
                default=list(field.default) if isinstance(field.default, tuple) else field.default,
                least=field.ge if field.ge is not None else field.gt,
                most=field.le if field.le is not None else field.lt,
            )
            for field in fields_of(settings)
        }
        for stage, settings in declared.items()
    }


class NewLoop(_Settings):
    """A loop in a few fields; the file may be edited before it begins, and has every other setting. Without
    `judges` the source's label and the loop's reward model vote for silver."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.+-]{0,79}$")]
    iterations: Annotated[int, Field(ge=1, le=100)] = 4
    seed: Annotated[int, Field(ge=0)] = 200
    people_seed: Annotated[int, Field(ge=0)] = 100
    people_per_iteration: Annotated[int, Field(ge=0)] = 50
    overlap: Annotated[int, Field(ge=1, le=20)] = 1
    judges: Name | None = None
    max_cost: Annotated[float, Field(ge=0)] | None = None
    sources: tuple[Name, ...] = ()
    base: Name = "smollm2"
    encoder: Name = "minilm"
