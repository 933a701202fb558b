"""Settings of the recorded runs that evaluate, calibrate, verify, combine and merge models, declared once.

Command line and run record derive from them. Leaves out: training (`training_config.py`), the runs (`runs`,
`length_bias`, `generative`), what is no setting of a run: keys, output folders.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from assay.errors import BadInputError
from assay.models.length_correction import Form, Unit
from assay.settings import CheckedSettings, Help, check_settings
from assay_rm_training.attacks.attack import ATTACKS, POLICY
from assay_rm_training.benchmarks.catalogue import BENCHMARKS
from assay_serving.model_config import ModelConfig

Limit = Annotated[int, Ge(0), Help("Only the first N pairs; 0 = all.")]
TokenBudget = Annotated[int | None, Ge(1), Help("Positions of one forward pass at most (default: 8192, judges 16384).")]
Force = Annotated[bool, Help("If the name is in use, write NAME-v2, -v3, ...", "--force")]
BootstrapSeed = Annotated[int, Help("Of the bootstrap.")]

PAIRS, BENCHMARK = "Pairs (--data)", "Benchmarks (--bench)"


@dataclass(frozen=True, kw_only=True)
class LoadSettings(CheckedSettings):
    """How the models of a run are loaded. `allow_failed_parity`: although the spec says that the parity checks fail."""

    device: Annotated[str, Help("auto, cpu, cuda, cuda:1, mps.")] = "auto"
    allow_failed_parity: Annotated[
        bool, Help("Load a model even if it fails its parity checks.", "--allow-failed-parity")
    ] = False
    tools: Annotated[
        tuple[str, ...],
        Help("Tool of your own, or with a file, that a judge may call; repeatable.", "--tool", metavar="TOOL"),
    ] = ()

    def model_config(self, reference: str, served_as: str | None = None) -> ModelConfig:
        """With `dtype`, `max_length`, `token_budget`, `correct` and `adapter`, where they are settings of the run."""
        return ModelConfig(
            reference,
            served_as if served_as != reference else None,
            device=self.device,
            dtype=getattr(self, "dtype", "float32"),
            max_length=getattr(self, "max_length", None),
            token_budget=getattr(self, "token_budget", None),
            allow_failed_parity=self.allow_failed_parity,
            correct=getattr(self, "correct", None),
            adapter=getattr(self, "adapter", None),
            judge_profile=getattr(self, "judge_profile", None),
            tools=self.tools,
        )


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(LoadSettings):
    """What both ways of `assay eval` have in common. `correct`: a length correction of the model to apply."""

    seed: Annotated[int, Ge(0), Help("Of the order of pairs.")] = 0
    limit: Annotated[int, Ge(0), Help("Only the first N pairs or items; 0 = all.")] = 0
    max_length: Annotated[
        int | None, Ge(1), Help("Tokens of a conversation. Default: the length that the model was trained with.")
    ] = None
    dtype: Annotated[str, Help("float32, bfloat16, float16 or auto.")] = "float32"
    token_budget: TokenBudget = None
    correct: Annotated[
        str | None, Help("Length correction of the model to take off its rewards.", metavar="NAME[:DOMAIN]")
    ] = None
    adapter: Annotated[
        str | None,
        Help("Form of a published reward model that its files do not tell; or file.py:Name.", metavar="FORM"),
    ] = None
    judge_profile: Annotated[
        str | None,
        Help("How a generative model or judge from elsewhere is asked and read: a name, or a YAML file."),
    ] = None


@dataclass(frozen=True)
class EvalConfig(EvaluationSettings):
    """`model`: artifact name or id, folder, hub id. `data`: snapshot or file."""

    model: str
    data: Annotated[str, Help("Pairs: a snapshot, or a file; of a principle model: judged responses.", panel=PAIRS)]
    calibrate: Annotated[
        bool, Help("Fit a temperature on these pairs and write it to the model's spec.", "--calibrate", panel=PAIRS)
    ] = False


@dataclass(frozen=True)
class BenchmarkConfig(EvaluationSettings):
    """`paths`: the publisher's files or folders, none = the hub. `scores`: files of recorded scores, or ids of the
    workspace's evaluation runs.

    `server_model`: which of a reward server's models a URL in `models` stands for, or of an endpoint's in `judges`.
    """

    bench: Annotated[
        str,
        Help(
            f"{BENCHMARKS.help()}. FILE.yaml: one of your own; pairs: any pair file.",
            metavar="NAME",
            panel=BENCHMARK,
        ),
    ]
    paths: Annotated[
        tuple[str, ...],
        Help("The publisher's file or folder; repeatable. Without it: the hub.", "--path", "PATH", BENCHMARK),
    ] = ()
    models: Annotated[
        tuple[str, ...],
        Help(
            "Reward model: a name or id of the workspace, a folder, a hub id; with --bench also the URL of a reward "
            "server, and repeatable.",
            "--model",
        ),
    ] = ()
    judges: Annotated[
        tuple[str, ...],
        Help(
            "Pairwise judge: a generative model, or the URL of a chat endpoint; repeatable.",
            "--judge",
            panel=BENCHMARK,
        ),
    ] = ()
    scores: Annotated[
        tuple[str, ...],
        Help(
            'Recorded scores instead of a model: rows {"id": ..., "scores": [one a response]}, or the id of an earlier '
            "evaluation run; repeatable.",
            metavar="FILE",
            panel=BENCHMARK,
        ),
    ] = ()
    ties: Annotated[
        Literal["official", "half"],
        Help("official: as the benchmark's own scorer; half: a tied pair counts 1/2.", panel=BENCHMARK),
    ] = "official"
    principle: Annotated[str | None, Help("Principle for items that name none.", panel=BENCHMARK)] = None
    server_model: Annotated[str | None, Help("Which model of the URL's server.", panel=BENCHMARK)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.models or self.judges or self.scores):
            raise BadInputError("name what is evaluated: --model, --judge or --scores")


@dataclass(frozen=True)
class AttackConfig(EvaluationSettings):
    """`attacks`: () = all that need nothing else, with `policy` also that of a policy. `settings`: of attacks, as
    `ATTACK.SETTING=VALUE`. `judge`: ask `model` as a pairwise judge, as its spec may say already."""

    model: Annotated[
        str,
        Help("What `assay eval` takes: a name or id of the workspace, a folder, a file, a hub id, a URL.", "MODEL"),
    ]
    data: Annotated[str, Help("Held-out pairs: a snapshot, or a file; the chosen side is the good response.")]
    attacks: Annotated[
        tuple[str, ...], Help(f"{ATTACKS.help()}; repeatable. Default: all but `{POLICY}`.", "--attack", "NAME")
    ] = ()
    settings: Annotated[
        tuple[str, ...], Help("A setting of an attack, its value as JSON; repeatable.", "--set", "ATTACK.KEY=VALUE")
    ] = ()
    principle: Annotated[str | None, Help("Principle to judge by, for models that take one.")] = None
    judge: Annotated[
        bool, Help("MODEL is a pairwise judge: a language model, or the URL of a chat endpoint.", "--judge")
    ] = False
    server_model: Annotated[str | None, Help("Which model of the URL's server.")] = None
    policy: Annotated[
        str | None, Help("Attack with the best of its samples too: a policy's name, folder or hub id.")
    ] = None
    reference: Annotated[
        str | None,
        Help("A second reward, which says whether a policy's response is worse than the good one. Any MODEL."),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.policy is not None or POLICY in self.attacks) and self.reference is None:
            raise BadInputError("a policy's response may be good: which second reward says so?", field="reference")
        if POLICY in self.attacks and self.policy is None:
            raise BadInputError("whose samples? Name a policy", field="policy")
        if len(set(self.attacks)) < len(self.attacks):
            raise BadInputError("an attack is named twice", field="attacks")


@dataclass(frozen=True)
class CalibrationConfig(LoadSettings):
    """`correct`: the length correction whose rewards are calibrated."""

    model: Annotated[str, Help("Reward model: a name or id of the workspace, a folder, an ensemble's file.")]
    data: Annotated[str, Help("Gold pairs: a snapshot of the workspace, or a file.")]
    method: Annotated[
        Literal["auto", "temperature", "platt", "isotonic"],
        Help("temperature, platt, isotonic, or auto: the best cross-validated likelihood."),
    ] = "auto"
    folds: Annotated[int, Ge(2), Help("Parts of the prompts that are left out in turn.")] = 5
    correct: Annotated[str | None, Help("Calibrate rewards under this length correction.", metavar="NAME")] = None
    seed: Annotated[int, Help("Of the folds and the order of pairs.")] = 0
    limit: Limit = 0
    token_budget: TokenBudget = None


@dataclass(frozen=True)
class LengthBiasConfig(LoadSettings):
    """`fit`: None = report only. `write`: the name in the model's spec. `per_domain`: by category of the data."""

    model: Annotated[str, Help("Reward model: a name or id of the workspace, a folder, a hub id, a server's URL.")]
    data: Annotated[str, Help("Pairs: a snapshot of the workspace, or a file.")]
    fit: Annotated[Form | None, Help("Also fit a correction: linear, lowess or penalty (fixed numbers).")] = None
    write: Annotated[str | None, Help("Keep it in the model's spec; used by --correct NAME.", metavar="NAME")] = None
    mixing: Annotated[float, Help("Share of the fitted curve subtracted, 0 to 1.")] = 1.0
    per_domain: Annotated[bool, Help("A curve for each category with 50 responses or more.", "--per-category")] = False
    rate: Annotated[float, Help("Of the penalty, per unit of length.")] = 0.01
    free: Annotated[float, Help("Length without penalty.")] = 300.0
    ceiling: Annotated[float | None, Help("Cut rewards here before the penalty.")] = None
    unit: Annotated[Unit, Help("Of length: tokens or characters.")] = "tokens"
    limit: Limit = 0
    seed: Annotated[int, Help("Of the folds.")] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.write is not None and self.fit is None:
            raise BadInputError("a correction has to be fitted: --fit linear, lowess or penalty", field="write")


@dataclass(frozen=True)
class VerificationConfig(CheckedSettings):
    """`data`: pairs whose responses are the sample; None: built-in sentences. `write`: into the spec and card of a
    model folder. `adopt`: write a spec for a folder that has none."""

    model: Annotated[str, Help("Reward model: a name or id of the workspace, a folder, a hub id.", "MODEL")]
    data: Annotated[str | None, Help("Pairs to score: snapshot or file. Default: a few sentences.")] = None
    responses: Annotated[int, Ge(2), Help("Responses compared.")] = 16
    principle: Annotated[str | None, Help("Principle to score under, for models that take one.")] = None
    tolerance: Annotated[float, Help("Allowed absolute difference plus this share of the reward.")] = 1e-4
    dtype: Annotated[str, Help("float32, bfloat16, float16 or auto; only float32 is recorded.")] = "float32"
    device: Annotated[str, Help("auto, cpu, cuda, cuda:1, mps.")] = "auto"
    write: bool = True
    adopt: Annotated[bool, Help("Write a spec for a model folder from elsewhere, which has none.", "--adopt")] = False


@dataclass(frozen=True)
class EnsembleConfig(LoadSettings):
    """`combine`, `variance` and `scale` are checked by the description (`assay_serving.engines.ensemble`)."""

    members: Annotated[tuple[str, ...], Help("Reward models: names in the workspace, folders, hub ids.", "RM RM...")]
    data: Annotated[str, Help("Pairs whose responses set the common scale: snapshot or file.")]
    name: Annotated[str, Help("Name of the ensemble.")]
    combine: Annotated[
        str, Help("mean, min, uwo (mean - weight * variance), lower_bound (mean - weight * deviation) or kl_robust.")
    ] = "mean"
    weight: Annotated[
        float, Help("Of the variance in uwo (0.5 for best-of-n, 0.1 for PPO), of the deviation in lower_bound.")
    ] = 0.5
    beta: Annotated[float, Help("Of kl_robust: large is the mean, small the minimum.")] = 1.0
    variance: Annotated[str, Help("population (by k) or unbiased (by k - 1).")] = "population"
    scale: Annotated[str, Help("standardised, or raw: the members are on one scale already.")] = "standardised"
    eval_data: Annotated[str | None, Help("Held-out pairs for its figures: snapshot or file.")] = None
    limit: Annotated[int, Ge(0), Help("Only the first N pairs of each; 0 = all.")] = 0
    seed: BootstrapSeed = 0
    force: Force = False


@dataclass(frozen=True)
class MergeConfig:
    """`points`: shares t of the second member at which each segment is measured. `allow_barrier`: save in spite of a
    barrier."""

    members: Annotated[tuple[str, ...], Help("Reward models of one base: names of the workspace, folders.", "RM RM...")]
    data: Annotated[str, Help("Held-out pairs of the barrier check: snapshot or file.")]
    name: Annotated[str, Help("Name of the new model.")]
    points: Annotated[
        tuple[float, ...], Help("Share of the second member, 0 to 1; repeatable. Default: 0.5.", "--point")
    ] = (0.5,)
    limit: Limit = 0
    seed: BootstrapSeed = 0
    device: Annotated[str, Help("auto, cpu, cuda, cuda:1, mps.")] = "auto"
    force: Force = False
    allow_barrier: Annotated[
        bool, Help("Save the average even if accuracy falls between members.", "--allow-barrier")
    ] = False

    def __post_init__(self) -> None:
        check_settings(self)
        if len(set(self.members)) < 2:
            raise BadInputError("an average needs at least two different members", field="members")
        if not self.points or not all(0 < t < 1 for t in self.points):
            raise BadInputError("a point of a segment lies between 0 and 1", field="points")


@dataclass(frozen=True)
class JudgeEvalConfig(LoadSettings):
    """None: the model's own setting. `content_free`: replace the rows' responses by content-free ones."""

    judge: Annotated[str, Help("Generative model: a name of the workspace, a folder, smollm2, or an endpoint's URL.")]
    data: Annotated[str, Help("Judged rows or pairs: a snapshot or a file.")]
    model: Annotated[str | None, Help("The endpoint's model.")] = None
    format: Annotated[
        str | None,
        Help(
            "Of a model without a spec of its own, or a judge profile. Default: pairwise.", "--format, --judge-profile"
        ),
    ] = None
    samples: Annotated[
        int | None, Ge(1), Help("Votes per question and order. Default: the model's.", "--samples, -k")
    ] = None
    temperature: Annotated[
        float | None, Ge(0), Help("Default: the model's; 0.7 where several samples are asked for.")
    ] = None
    max_new_tokens: Annotated[int | None, Ge(1), Help("Default: the model's.")] = None
    vote: Annotated[str | None, Help("mean (of probabilities) or majority. Default: the model's.")] = None
    meta: Annotated[
        str | None,
        Help(
            "Meta reward model (of `train steps`): the better half of the samples votes, or makes pairs.",
            metavar="MODEL",
        ),
    ] = None
    content_free: Annotated[bool, Help("Replace responses by content-free ones; none may win.", "--content-free")] = (
        False
    )
    limit: Annotated[int, Ge(0), Help("Only the first N rows; 0 = all.")] = 0
    seed: Annotated[int, Help("Of the samples and of the bootstrap.")] = 0
