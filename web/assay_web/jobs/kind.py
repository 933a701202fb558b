"""What a kind of job is: an `assay` command that the pages can run, and how they offer it.

Covers: the description and its registry. Leaves out: the built-in kinds (`kinds`), the settings, which are the
command's own options (`forms`), running it (`scheduler`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from assay.registry import Kind, unknown
from assay.workspace import Workspace
from assay_pipelines.curation.loop.estimating import StageEstimate

#: Jobs of a lane run one after another in `store`, which they hold for long; a few beside each other in `compute`.
Lane: TypeAlias = Literal["store", "compute"]
Area: TypeAlias = Literal["data", "curation", "rewards", "policies"]
SettingValue: TypeAlias = bool | int | float | str | list[str] | None
#: By the names of the command's options, without dashes in front and with _ within.
Settings: TypeAlias = Mapping[str, SettingValue]


@dataclass(frozen=True)
class JobFigures:
    """What a job would take, as far as it is known before it starts. `comparisons`: that it looks at; `steps`: of a
    training; `questions`: to judges and people."""

    comparisons: int | None = None
    steps: int | None = None
    questions: StageEstimate | None = None


def unknown_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    """Of a kind that has no estimate."""
    return JobFigures()


def nothing_to_prepare(workspace: Workspace, settings: Settings) -> None:
    """Of a kind whose command finds everything there."""


@dataclass(frozen=True)
class JobKind:
    """`command`: the words after `assay`; the form is made of its options, those in `prominent` first. `choice`: what
    the command that follows `command` is called in the form, where one is to be chosen, as in `assay train METHOD`.
    `figures`: what it would take; raises what the settings are refused with. `prepare`: before it is started.
    `resumes`: False for a command that, given again, does all of its work again."""

    title: str
    command: tuple[str, ...]
    area: Area = "data"
    lane: Lane = "compute"
    prominent: tuple[str, ...] = ()
    choice: str | None = None
    figures: Callable[[Workspace, Settings], JobFigures] = unknown_figures
    prepare: Callable[[Workspace, Settings], None] = nothing_to_prepare
    resumes: bool = True


JOB_KINDS: Kind[JobKind] = Kind(
    "job",
    "Long work that can be started from the web pages: an assay command, and which of its options the form shows.",
    members={
        "import": "assay_web.jobs.kinds:IMPORT",
        "sample": "assay_web.jobs.kinds:SAMPLE",
        "clean": "assay_web.jobs.kinds:CLEAN",
        "dedup": "assay_web.jobs.kinds:DEDUP",
        "near_duplicates": "assay_web.jobs.kinds:NEAR_DUPLICATES",
        "embed": "assay_web.jobs.kinds:EMBED",
        "benchmark": "assay_web.jobs.kinds:BENCHMARK",
        "decontaminate": "assay_web.jobs.kinds:DECONTAMINATE",
        "verify": "assay_web.jobs.kinds:VERIFY",
        "stage1": "assay_web.jobs.kinds:STAGE1",
        "stage2": "assay_web.jobs.kinds:STAGE2",
        "consistency": "assay_web.jobs.kinds:CONSISTENCY",
        "judge": "assay_web.jobs.kinds:JUDGE",
        "snapshot": "assay_web.jobs.kinds:SNAPSHOT",
        "train": "assay_web.jobs.kinds:TRAIN",
        "evaluate": "assay_web.jobs.kinds:EVALUATE",
        "calibrate": "assay_web.jobs.kinds:CALIBRATE",
        "score": "assay_web.jobs.kinds:SCORE",
        "policy": "assay_web.jobs.kinds:POLICY",
        "loop": "assay_web.jobs.kinds:LOOP",
    },
    requires=("title", "command", "lane", "figures"),
    option="kind",
)


def job_kind(name: str) -> JobKind:
    """A named kind: what a page asks for is no code of its own. Raises BadInputError with the nearest names."""
    if name not in JOB_KINDS.names():
        raise unknown("kind of job", name, JOB_KINDS.names(), field="kind")
    return JOB_KINDS.find(name)
