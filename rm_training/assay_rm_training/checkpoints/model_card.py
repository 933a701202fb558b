"""The model card (README.md) of a checkpoint, from the figures of its run."""

import json
from collections.abc import Sequence
from typing import Any

from assay import __version__
from assay.models.hub import hub_id
from assay.models.spec import Kind, RewardModelSpec
from assay.system.plurals import counted
from assay_rm_training.checkpoints.card_sections import calibration_lines, render_card
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.evaluation.pairs import PairEvaluation
from assay_rm_training.evaluation.report import EvaluationReport
from assay_rm_training.methods.method import Method
from assay_rm_training.presets import preset
from assay_rm_training.training.summary import TrainingSummary
from assay_rm_training.training_config import TrainingConfig

#: kind -> pipeline of model hubs, and how the reward is read.
_READING: dict[Kind, tuple[str, str]] = {
    "scalar": (
        "text-classification",
        "A stock sequence classifier with one label: the reward is the raw logit (no sigmoid) at the last token of the "
        "rendered conversation.",
    ),
    "principle": (
        "text-generation",
        "A stock language model: the reward of a response under a principle is logit(Yes) - logit(No) after the "
        "question.",
    ),
    "implicit": (
        "text-generation",
        "A stock language model, trained on preferences as a policy. As a reward model its reward is beta times the "
        "log-probability of the response less that under the reference, or per token without one, as `assay.json` "
        "says.",
    ),
    "generative": (
        "text-generation",
        "A stock language model that reasons and then judges: the reward is read at the verdict, after the reasoning.",
    ),
}


def _reading(spec: RewardModelSpec) -> tuple[str, str]:
    pipeline, reading = _READING[spec.kind]
    if spec.stepwise is not None:
        reading = (
            "A stock sequence classifier with one label, read at the end of every step: the raw logit (no sigmoid) is "
            "the step's log-odds of being right, and the response's reward is the "
            f"{spec.stepwise.aggregation} of its steps. The last step is read at the conversation's last token: any "
            "other engine gives its logit."
        )
    if (ratings := spec.ratings) is not None:
        reading = (
            f"A stock sequence classifier with {len(ratings.names)} labels, one a rating ({', '.join(ratings.names)}), "
            f"read at the last token of the rendered conversation; the reward is their {ratings.aggregation.kind}, as "
            "`assay.json` says. Other engines give the ratings, each less a constant."
        )
    return pipeline, reading


def model_card(
    name: str,
    spec: RewardModelSpec,
    method: Method,
    config: TrainingConfig,
    data: EncodedDataset[Any],
    summary: TrainingSummary,
    *,
    data_name: str,
    evaluation: EvaluationReport | None,
    eval_name: str | None,
    contamination: Sequence[str] = (),
    chosen: str | None = None,
    evaluated_seen: int = 0,
    warnings: Sequence[str] = (),
) -> str:
    """Markdown with the metadata header that model hubs read. `contamination`: one line per registered benchmark.
    `chosen`: which step's weights these are, if not the last. `evaluated_seen`: evaluated rows whose prompt is in the
    training data. `warnings`: of the run."""
    left_out = ", ".join(f"{n} ({reason})" for reason, n in sorted(data.left_out.items())) or "none"
    tuning = f"LoRA rank {config.lora.rank}, alpha {config.lora.alpha}, merged" if config.lora else "all weights"
    if config.freeze_layers:
        tuning += f", the lowest {config.freeze_layers} layers frozen"
    pipeline, reading = _reading(spec)
    settings = {"method": method.name, "objective": method.to_dict(), "config": config.to_dict()}
    rows = [
        ("data", f"{data_name} ({spec.snapshot or 'a file'})"),
        (method.unit, f"{len(data)} used, left out: {left_out}; {data.truncated} truncated"),
        ("run", spec.run_id or "outside a workspace"),
        ("trained", tuning),
        *method.card_rows(),
        (
            "optimiser",
            f"{config.optimizer}, lr {config.learning_rate:g} ({config.schedule}, warm-up {config.warmup_ratio:g}), "
            f"{config.batch_size} {method.unit} a step, {counted(config.epochs, 'epoch')}, "
            f"weight decay {config.weight_decay:g}, "
            f"clipping {config.max_grad_norm:g}, seed {config.seed}",
        ),
        ("steps", f"{summary.steps}, {summary.tokens} tokens, {summary.seconds:.0f} s"),
        *([("weights", chosen)] if chosen else []),
        *([("settings of", f"{config.preset}: {preset(config.preset).source}")] if config.preset else []),
        ("trained length", f"{spec.trained_length} tokens; longer conversations lose their oldest turns"),
        ("template hash", f"`{spec.template_hash}`"),
        ("made by", f"Assay {__version__}; where it came from: `assay lineage {spec.run_id}`"),
        ("contamination", "; ".join(contamination) or "not checked: no benchmark was registered"),
    ]
    return render_card(
        "trained",
        name=name,
        spec=spec,
        front_matter="\n".join(front_matter(name, spec, pipeline, method.tags, evaluation, eval_name)),
        reading=reading,
        warnings=warnings,
        rows=rows,
        evaluation=evaluation,
        of_pairs=isinstance(evaluation, PairEvaluation),
        eval_name=eval_name,
        evaluated_seen=evaluated_seen,
        calibration="\n".join(calibration_lines(spec.calibration)),
        settings=json.dumps(settings, indent=2, default=str),
    )


def front_matter(
    name: str,
    spec: RewardModelSpec,
    pipeline: str,
    tags: Sequence[str],
    evaluation: EvaluationReport | None,
    eval_name: str | None,
) -> list[str]:
    """The YAML header by the hub's own library, with the accuracy as an evaluation result."""
    from huggingface_hub import EvalResult, ModelCardData

    results = []
    if isinstance(evaluation, PairEvaluation):
        results = [
            EvalResult(
                task_type=pipeline,
                task_name="preference pairs",
                dataset_type="pairs",
                dataset_name=str(eval_name),
                metric_type="accuracy",
                metric_name="pair accuracy, a tie is wrong",
                metric_value=round(evaluation.accuracy.value, 6),
            )
        ]
    data = ModelCardData(
        base_model=hub_id(spec.base),
        library_name="transformers",
        pipeline_tag=pipeline,
        tags=[*tags, "assay"],
        model_name=name if results else None,
        eval_results=results or None,
    )
    return ["---", *data.to_yaml().strip().splitlines(), "---"]
