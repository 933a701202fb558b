"""The settings of a policy run beside its recipe: `assay rl` derives its options from them. Imports nothing heavy."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from assay.errors import BadInputError
from assay.runs.trackers import TRACKERS
from assay.settings import Help, check_settings

OnError = Literal["mask", "stop"]
Keep = Literal["last", "best"]

BEST_BY = "eval_reward_mean"  #: the default metric of --best-by


@dataclass(frozen=True)
class PolicyRunConfig:
    """`rewards` are trained on, `watch` is not; no `evaluation_prompts`: generated on held-out topics."""

    rewards: Annotated[
        tuple[str, ...],
        Help(
            "URL of a reward server, `verifier` for the prompts' own constraints, `recorded` for the rewards of "
            "recorded responses, or a Python function or class: file.py:NAME or module:NAME; repeatable, parts are "
            "added. "
            "NAME=URL#MODEL names the part and the model; answer:URL reads what follows the thinking, steps:URL "
            "every step, dpo:POLICY@REFERENCE is loaded here, row:KEY is a number of the prompt's row.",
            "--reward",
            metavar="URL",
        ),
    ] = ()
    reward_timeout: Annotated[float, Gt(0), Help("Seconds of one call of a reward function.")] = 120.0
    on_reward_error: Annotated[
        OnError,
        Help(
            "What a reward function that raises, hangs or returns no number does: mask (its rows are not trained on, "
            "and counted) or stop the run."
        ),
    ] = "mask"
    policy: Annotated[str, Help("smollm2, tiny, a folder, a hub id, a model of the workspace.")] = "smollm2"
    prompts: Annotated[
        tuple[str, ...],
        Help(
            "JSON Lines, Parquet or CSV file, hf:NAME[#SUBSET][:SPLIT], a data set's folder, a snapshot, "
            "constrained:N for N generated ones, or module:Name or file.py:Name; repeatable, SOURCE@WEIGHT mixes. "
            "Default: constrained:64.",
            metavar="SOURCE",
        ),
    ] = ("constrained:64",)
    columns: Annotated[
        tuple[str, ...],
        Help("Which column of a row is a field, e.g. prompt=question; repeatable.", "--column", metavar="FIELD=COLUMN"),
    ] = ()
    evaluate: Annotated[int, Ge(0), Help("Held-out prompts for the evaluation before and after; 0 = none.")] = 0
    evaluation_prompts: Annotated[
        tuple[str, ...],
        Help(
            "Held-out prompts, as --prompts, of which the first N are used; repeatable, reported by name. Default: "
            "generated, on held-out topics.",
            "--eval-prompts",
            metavar="[NAME=]SOURCE",
        ),
    ] = ()
    device: Annotated[str, Help("auto, cpu, cuda, cuda:1, mps.")] = "auto"
    watch: Annotated[
        tuple[str, ...],
        Help(
            "Held-out reward, named as --reward and not trained on: shows over-optimisation; repeatable.",
            metavar="URL",
        ),
    ] = ()
    watch_share: Annotated[float, Help("Share of the prompts that it scores.")] = 0.5
    eval_every: Annotated[int, Ge(0), Help("Also evaluate on the held-out prompts every N steps; 0 = never.")] = 0
    keep: Annotated[Keep, Help("Save the policy of the last step, or of the best evaluation.")] = "last"
    best_by: Annotated[
        str,
        Help(
            "Metric of a step that the best one has most of; -METRIC: least of. The default is of the first set.",
            metavar="METRIC",
        ),
    ] = BEST_BY
    keep_checkpoints: Annotated[
        int, Ge(1), Help("How many of the newest checkpoints are kept, beside the best and the last good one.")
    ] = 1
    on: Annotated[
        str | None,
        Help(
            "Where rollout actors are (asynchrony.actors): local, or a Ray cluster: ray://HOST:PORT (client server), "
            "ray:HOST:PORT (head), ray (the one this machine is in). Default: the recipe's asynchrony.run_on.",
            metavar="WHERE",
        ),
    ] = None
    track: Annotated[
        tuple[str, ...], Help(f"Where metrics also go, repeatable: {TRACKERS.help()}.", metavar="TRACKER")
    ] = ()

    def __post_init__(self) -> None:
        check_settings(self, "--")
        for column in self.columns:
            if not all(column.partition("=")):
                raise BadInputError(f"a column is given as FIELD=COLUMN, not {column!r}", field="--column")
        if self.eval_every and not self.evaluate:
            raise BadInputError("say on how many held-out prompts: --evaluate N", field="--eval-every")
        if self.keep == "best" and self.best_by.lstrip("-").startswith("eval_") and not self.eval_every:
            raise BadInputError("the best one is known by evaluations: --eval-every N", field="--keep")

    @property
    def columns_by_field(self) -> dict[str, str]:
        """Field of a row -> the column that has it."""
        return {field: column for field, _, column in (text.partition("=") for text in self.columns)}
