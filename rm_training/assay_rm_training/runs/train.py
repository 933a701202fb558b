"""Reward-model training as a recorded run: data, training, evaluation, checkpoint, artifact.

Covers: resuming an interrupted run. Leaves out: the loop (`training/loop.py`), the checkpoint's parity check
(`checkpoint.py`).

    RUN/ run.json (what --resume needs)  metrics.jsonl  state.pt (until done)  evaluation.json  items.jsonl
"""

import gc
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, cast

import torch

from assay.errors import BadInputError, NotFoundError
from assay.models.chat.renderer import Renderer
from assay.models.contamination import BenchmarkUse, union
from assay.models.devices import pick_dtype
from assay.models.loading import context_length
from assay.models.parallelism.distributed import is_follower, local_device, world_size
from assay.models.parallelism.process_group import process_group
from assay.models.parallelism.sharded_state import remove_states
from assay.models.parallelism.strategy import SingleProcess, resolve
from assay.models.spec import RewardModelSpec
from assay.planning.known_plans import rows_of, show_plan_line
from assay.planning.least_memory import require_memory
from assay.runs.callbacks import Callback
from assay.runs.contamination_gate import BenchmarkState
from assay.runs.json_log import METRICS_FILE
from assay.runs.model_run import RunPlan, copy_run_files
from assay.runs.progress_bar import progress_bar
from assay.runs.record import Run, locate_model
from assay.runs.trackers import require_trackers
from assay.workspace import Workspace
from assay_rm_training.checkpoints.checkpoint import SAMPLE, save_checkpoint
from assay_rm_training.checkpoints.model_card import model_card
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.stored_dataset import stored_dataset, token_folder
from assay_rm_training.evaluation.report import EvaluationReport
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.methods.method import Method, SplitsRows, method_of, method_payload
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.runs.contamination_lineage import (
    as_uses,
    record_use,
    states_of_use,
    uses_of_judges,
    uses_of_model,
)
from assay_rm_training.runs.recorded import add_model, inputs_of, snapshot_id, training_run, unchecked
from assay_rm_training.training import early_stopping, resume_state
from assay_rm_training.training.batch_order import StepPlan
from assay_rm_training.training.distributed import Saving, WorkerSettings, begin, finish, write_together
from assay_rm_training.training.loop import make_optimizer, train
from assay_rm_training.training.summary import TrainingSummary
from assay_rm_training.training.written_weights import WrittenWeights, scratch_folder, writing
from assay_rm_training.training_config import TrainingConfig, less_memory
from assay_serving.scorer import ScoreItem, Scorer

#: Settings that do not decide the memory of a step, and those that stand beside the others in a plan.
# fmt: off
_NO_MEMORY = frozenset((
    "base", "device", "parallel", "preset", "lr", "head_lr", "epochs", "schedule",
    "warmup_ratio", "weight_decay", "max_grad_norm", "head_init", "seed", "eval_every", "save_every", "save_dtype",
    "min_lr_ratio", "decay_ratio", "betas", "eps", "keep", "patience", "metric", "track",
))
# fmt: on


@dataclass(frozen=True)
class TrainedModel:
    """Result of a training. `path` holds the checkpoint, `folder` the run's files."""

    artifact_id: str
    name: str
    path: Path
    run_id: str
    folder: Path
    spec: RewardModelSpec
    metrics: dict[str, Any]
    summary: TrainingSummary
    evaluation: EvaluationReport | None
    contamination: Sequence[BenchmarkState] = ()
    unit: str = "pairs"
    asked_length: int = 0  #: tokens, as configured, 0 = the model's own limit; that may be lower


@dataclass(frozen=True)
class TrainingPlan(RunPlan):
    """Settings of a run, sufficient to resume it. `data`, `eval_data`: snapshot names or absolute paths.

    `waivers`: registered benchmark -> reason to train although `data` is not checked against it, or overlaps.
    `final_data`: data of the final evaluation instead of `eval_data`, by which a step may have been chosen.
    `group`: common name of runs that are compared (`assay.runs.sweep`), all of data with this `data_content`.
    """

    plan_file: ClassVar[str] = "run.json"
    run_name: ClassVar[str] = "training run"

    config: TrainingConfig
    data: str
    eval_data: str | None
    name: str
    force: bool = False
    waivers: dict[str, str] = field(default_factory=dict)
    method: Method = field(default_factory=BradleyTerry)
    final_data: str | None = None
    group: str | None = None
    data_content: str | None = None

    def __post_init__(self) -> None:
        rates: tuple[float, float] | None = getattr(self.method, "default_lr", None)
        if rates is not None and self.config.lr is None:
            object.__setattr__(self, "config", replace(self.config, lr=rates[self.config.lora is not None]))

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "config": self.config.to_dict(), "method": method_payload(self.method)}

    @property
    def memory_settings(self) -> dict[str, Any]:
        """What decides its memory, beside its model and rows."""
        settings = {name: value for name, value in self.config.to_dict().items() if name not in _NO_MEMORY}
        return {"method": method_payload(self.method), **settings}

    def record(self) -> dict[str, Any]:
        """As the run's record in the store has it."""
        return self.to_dict() | {"method": self.method.name, "objective": self.method.to_dict()}

    @classmethod
    def read(cls, workspace: Workspace, run_id: str) -> "TrainingPlan":
        """Raises NotFoundError for a run that is not a training."""
        payload = cls.read_payload(workspace, run_id)
        config, method = TrainingConfig.from_dict(payload["config"]), method_of(payload["method"])
        return cls(**{**payload, "config": config, "method": method})


def train_model(
    workspace: Workspace,
    plan: TrainingPlan,
    rows: Collection[Any],
    eval_rows: Collection[Any] | None = None,
    *,
    resume: str | None = None,
    final_rows: Collection[Any] | None = None,
    callbacks: Sequence[Callback] = (),
) -> TrainedModel:
    """Train, evaluate and save `workspace.models / plan.name`, with progress on standard error.

    `rows`, `eval_rows`, `final_rows`: what the method's `read` gives of the plan's data. `resume`: an interrupted run's
    id, whose plan and data these are. Raises BadInputError for a name in use or reserved by another run (unless
    `plan.force`, which writes `NAME-v2`, `-v3`, ...), and for data that is neither checked against a registered
    benchmark nor waived.
    """
    if isinstance(plan.method, SplitsRows):
        rows, eval_rows = plan.method.divide(rows, eval_rows)
        if final_rows is not None:
            final_rows = plan.method.divide(rows, final_rows)[1]
    require_trackers(plan.config.track)
    if plan.config.keep == "best" and eval_rows is None:
        raise BadInputError("early stopping needs held-out data: --eval-data", field="keep")
    base = locate_model(workspace, plan.config.base)
    _require_memory(plan)
    reference: str | None = getattr(plan.method, "reference", None)
    models = [base, *([locate_model(workspace, reference)] if reference is not None else [])]
    inputs = inputs_of(
        workspace,
        [model for model in models if model[1]],
        filter(None, (plan.data, plan.eval_data, plan.final_data)),
        resume=resume,
    )
    settings = plan.record() | {"processes": world_size(), "division": resolve(plan.config.parallel)}
    selecting: list[BenchmarkState] = []
    if plan.eval_data is not None and eval_rows is not None and (plan.config.keep == "best" or plan.config.patience):
        evaluated = (plan.eval_data, eval_rows)
        selecting = states_of_use(workspace, *evaluated, "selection", plan.waivers, resumed=resume is not None)
    inherited = union(uses_of_model(workspace, base[0]), uses_of_judges(workspace, snapshot_id(workspace, plan.data)))
    with training_run(
        *(workspace, plan.name, settings),
        force=plan.force,
        data=plan.data,
        waivers=plan.waivers,
        inputs=inputs,
        models=[source for source, _ in models],
        device=plan.config.device,
        resumed=resume is not None,
    ) as (run, folder, contamination):
        record_use(run, plan.eval_data or "", selecting)
        uses = union(
            as_uses(contamination, "training", plan.data, folder.name),
            as_uses(selecting, "selection", plan.eval_data or "", folder.name),
            inherited,
        )
        plan.write(run.folder)
        if resume is not None:
            _copy_state(workspace.runs / resume, run.folder)
        encoded_by = [plan.data, plan.eval_data, plan.config.base, plan.config.max_length, method_payload(plan.method)]
        with token_folder(workspace, encoded_by) as tokens:
            data = (rows, eval_rows, final_rows)
            return _train(run, plan, *data, folder, tokens, contamination, uses, callbacks, resume=resume)


def _require_memory(plan: TrainingPlan) -> None:
    config = plan.config

    def loaded(settings: Mapping[str, Any]) -> tuple[list[torch.nn.Module], list[torch.optim.Optimizer]]:
        changed = replace(config, **settings)  # not before it is needed: it checks, and so imports, libraries
        trainable = plan.method.load(changed, torch.device("cpu"))
        return [trainable.model], [make_optimizer(trainable, changed)]

    ranks = world_size() if config.parallel == "fsdp" else 1
    options = less_memory(config, ranks)
    less = {words: partial(loaded, settings) for words, settings in options.items()}
    require_memory(config.base, partial(loaded, {}), less, local_device(config.device), ranks, "--base")


def _train(
    run: Run,
    plan: TrainingPlan,
    rows: Collection[Any],
    eval_rows: Collection[Any] | None,
    final_rows: Collection[Any] | None,
    folder: Path,
    tokens: Path,
    contamination: Sequence[BenchmarkState],
    uses: tuple[BenchmarkUse, ...],
    callbacks: Sequence[Callback],
    *,
    resume: str | None,
) -> TrainedModel:
    config, method = plan.config, plan.method
    settings = WorkerSettings(method_payload(method), config, resume is not None)
    with ExitStack() as kept:  # until what is written has its name
        with process_group(config.parallel, config.device, settings) as (parallel, device):
            with parallel.loading():
                trainable = method.load(config, device)
            longest = context_length(trainable.model.config)
            config = config.within(longest)
            length = min(config.max_length or longest, longest)
            if trainable.images is not None:
                trainable.images.media = lambda: run.workspace.media
            renderer = Renderer(trainable.tokenizer, max_length=length, images=trainable.images)
            data, eval_data = _encode(method, rows, renderer, tokens / "train", f"encoding {method.unit}"), None
            if eval_rows is not None and config.eval_every:
                eval_data = _encode(method, eval_rows, renderer, tokens / "eval", f"encoding evaluation {method.unit}")
            if not is_follower():
                ranks = parallel.world if parallel.equal_passes else 1
                rows_text = rows_of(plan.data, snapshot_id(run.workspace, plan.data))
                show_plan_line(config.base, plan.memory_settings, device, ranks, rows_text)
            data, eval_data = begin(trainable, method, config, (data, eval_data), parallel)
            with progress_bar("training", StepPlan(len(data), config).total, unit="steps") as advance:
                summary = train(
                    trainable,
                    method.task(trainable, config),
                    data,
                    config,
                    run.folder,
                    eval_data=eval_data,
                    resume=resume is not None,
                    parallel=parallel,
                    advance=advance,
                    callbacks=callbacks,
                )
            judged, judged_name = eval_rows, plan.eval_data or f"what was held out of {plan.data}"
            chosen = _chosen(config, summary, judged_name, judged_name if final_rows is None else str(plan.final_data))
            if final_rows is not None:
                judged, judged_name = final_rows, str(plan.final_data)
            settled = finish(trainable, method, data, parallel)
            spec = RewardModelSpec(
                kind=method.kind,
                base=config.base,
                template_hash=renderer.template_hash,
                trained_length=length,
                version="unsaved",
                snapshot=snapshot_id(run.workspace, plan.data),
                run_id=run.id,
                head_start=_head_start(trainable, config),
                trained_principles=_principles(rows),
                method=method_payload(method),
                contamination=uses,
            )
            spec = replace(spec, **method.spec_fields(trainable), **settled)
            sample = _sample(method, judged or rows)
            attention = str(getattr(trainable.model.config, "_attn_implementation", "") or "")
            dtype = torch.bfloat16 if config.save_dtype == "bfloat16" else torch.float32
            scratch, saving = scratch_folder(folder), Saving(spec, sample, length, dtype)
            together = parallel if parallel.equal_passes else SingleProcess()
            kept.enter_context(writing(folder, scratch))
            written = WrittenWeights(scratch, write_together(trainable, method, saving, scratch, together), device)
            trainable = replace(trainable, model=cast(Any, None))  # the files have all
            gc.collect()
        coverage = data.coverage(len(rows), method.unit)
        warnings = [*unchecked(contamination), *coverage.of_training()]
        evaluations: list[EvaluationReport] = []
        prompts = {row.prompt for row in judged or ()}
        seen = {row.prompt for row in rows if row.prompt in prompts} if prompts else set()
        evaluated_seen = sum(row.prompt in seen for row in judged or ())

        def evaluated_card(scorer: Scorer) -> str:
            evaluation: EvaluationReport | None = None
            if judged is not None:
                with progress_bar("evaluating", len(method.responses(judged)), unit="responses") as advance:
                    evaluation = method.evaluate(scorer, judged, seed=config.seed, advance=advance)
            if evaluation is not None:
                evaluations.append(evaluation)
                warnings.extend(_evaluated(evaluation, judged_name))
            return model_card(
                folder.name,
                spec,
                method,
                config,
                data,
                summary,
                data_name=plan.data,
                evaluation=evaluation,
                eval_name=judged_name,
                contamination=[str(use) for use in uses],
                chosen=chosen,
                evaluated_seen=evaluated_seen,
                warnings=warnings,
            )

        spec, parity = save_checkpoint(
            trainable,
            spec,
            renderer,
            folder,
            sample=sample,
            card=evaluated_card,
            engine=method.engine,
            written=written,
        )
    evaluation = next(iter(evaluations), None)
    metrics = {
        "training": summary.to_dict(),
        "chosen": chosen,
        "evaluated_seen": evaluated_seen,
        "method": method.name,
        method.unit: len(data),
        "left_out": data.left_out,
        "truncated": data.truncated,
        "coverage": coverage.to_dict(),
        "warnings": warnings,
        "new_head": trainable.new_head,
        "device": str(device),
        "autocast": str(pick_dtype(device, config.dtype)).removeprefix("torch."),
        "attention": attention,
        "contamination": [state.to_dict() for state in contamination],
        "contamination_lineage": [asdict(use) for use in uses],
        "parity_check": {"largest_difference": parity.largest, "responses": parity.compared},
        "parity_checks": [asdict(check) for check in spec.parity_checks],
    }
    if isinstance(method, SplitsRows):
        metrics["rows"] = method.describe(rows)
    if evaluation is not None:
        info = replace(evaluation.model, name=folder.name, version=spec.version, parity=spec.parity)
        evaluation = evaluation.of(info)
        evaluation.write(run.folder)
        metrics["evaluation"] = evaluation.to_dict()
    run.metrics.update(metrics)
    artifact = add_model(run, folder, spec)
    for state in {run.folder, run.workspace.runs / (resume or run.id)}:
        for part in (resume_state, early_stopping):
            (state / part.FILE).unlink(missing_ok=True)  # the checkpoint takes their place
            remove_states(state, part.SHARDS)
    return TrainedModel(
        artifact,
        folder.name,
        folder,
        run.id,
        run.folder,
        spec,
        metrics,
        summary,
        evaluation,
        contamination,
        method.unit,
        plan.config.max_length or 0,
    )


def _evaluated(evaluation: EvaluationReport, data: str) -> list[str]:
    """Its warnings, with the data that they are of."""
    return [f"evaluation on {Path(data).name}: {warning}" for warning in evaluation.warnings]


def _chosen(config: TrainingConfig, summary: TrainingSummary, eval_name: str, judged_name: str) -> str | None:
    """Which step's weights these are and why, as text; None for the last step of a complete training."""
    choice = summary.choice
    if choice is None or (config.keep == "last" and summary.steps == summary.planned_steps):
        return None
    text = f"step {summary.kept_step} of {summary.planned_steps}"
    if summary.steps < summary.planned_steps:
        text += f", stopped at {summary.steps}: {choice.since} evaluations without a better {choice.metric}"
    if config.keep == "best":
        text += f"; best of {choice.evaluations} by {choice.metric} ({choice.value:.4f}) on {eval_name}"
    if eval_name == judged_name:
        return text + ", which the evaluation is also on: its metrics are biased upwards"
    return text


def default_name(base: str, data: str) -> str:
    """e.g. `smollm2-helpful` for data `helpful` or `/data/helpful.jsonl.gz`."""
    stem = Path(data).name.split(".")[0]
    return re.sub(r"[^\w.+-]+", "-", f"{Path(base).name}-{stem}").strip("-.")[:100]


def was_trained_on(workspace: Workspace | None, spec: RewardModelSpec | None, data: str) -> bool:
    """Whether `data`, a snapshot or a file, is the training data of the model of this spec, by spec and run record;
    False where that is unknown."""
    if workspace is None or spec is None:
        return False
    if (snapshot := snapshot_id(workspace, data)) is not None:
        return snapshot == spec.snapshot
    path = workspace.runs / (spec.run_id or "") / TrainingPlan.plan_file
    if not path.is_file():
        return False
    trained: Any = json.loads(path.read_text(encoding="utf-8")).get("data")
    return isinstance(trained, str) and trained == str(Path(data).expanduser().resolve())


def last_interrupted(workspace: Workspace, plan: TrainingPlan) -> str | None:
    """The newest run of the plan's name that left a state, None where there is none. Raises BadInputError where its
    settings are others: what it trained so far is not what the plan asks for."""
    for state in sorted(workspace.runs.glob(f"*/{resume_state.FILE}"), reverse=True):
        with suppress(NotFoundError):
            saved = TrainingPlan.read(workspace, state.parent.name)
            if saved.name != plan.name:
                continue
            old, new = (_compared(each) for each in (saved, plan))
            if changed := sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)):
                reason = f"{state.parent.name} has other settings ({', '.join(changed)}): give those or another --name"
                raise BadInputError(reason, field="--resume")
            return state.parent.name
    return None


def _compared(plan: TrainingPlan) -> dict[str, Any]:
    """The settings that a resumed run keeps."""
    payload = plan.to_dict()
    fields = {name: payload[name] for name in ("data", "eval_data", "final_data", "data_content")}
    settings: dict[str, Any] = json.loads(
        json.dumps({**fields, **payload["config"], **payload["method"], "parallel": None})
    )
    return settings


def _copy_state(old: Path, new: Path) -> None:
    """Copy the state of an interrupted run to the run that resumes it. Raises NotFoundError where there is none."""
    if not (old / resume_state.FILE).is_file():
        raise NotFoundError(f"{old.name} has no saved state to resume from (finished, or never saved)")
    shards = [path.name for part in (resume_state, early_stopping) for path in old.glob(f"{part.SHARDS}*")]
    copy_run_files(old, new, linked=[*shards, resume_state.FILE, early_stopping.FILE], copied=[METRICS_FILE])


def _principles(rows: Collection[Any], most: int = 50) -> tuple[str, ...]:
    """The most frequent principles of the training rows, if any."""
    counts = Counter(row.principle for row in rows if getattr(row, "principle", None))
    return tuple(principle for principle, _ in counts.most_common(most))


def _head_start(trainable: TrainableModel, config: TrainingConfig) -> str:
    """Initialisation of the heads, as the spec records it for averaging weights (`runs/merge.py`)."""
    if not trainable.new_head:
        return "kept"
    return "zero" if config.head_init == "zero" else f"{config.head_init}, seed {config.seed}"


def _encode(
    method: Method, rows: Collection[Any], renderer: Renderer, folder: Path, description: str
) -> EncodedDataset[Any]:
    with progress_bar(description, len(rows), unit=method.unit) as advance:
        encode = partial(method.encode, rows, renderer, advance=advance)
        return stored_dataset(folder, rows, renderer, lambda collect: encode(collect=collect))


def _sample(method: Method, rows: Collection[Any]) -> list[ScoreItem]:
    """Responses for the parity check, spread over the data."""
    every = max(1, 2 * len(rows) // SAMPLE)
    some = list(islice(rows, 0, every * (SAMPLE // 2), every))
    return method.responses(some)[:SAMPLE]
