"""README.md of a checkpoint: what it is, what it was trained on and how well it does, in figures of its own run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.models.spec import Kind, RewardModelSpec
from assay_rm_training.config import TrainingConfig
from assay_rm_training.item_set import ItemSet
from assay_rm_training.methods import Findings, Method
from assay_rm_training.presets import preset
from assay_rm_training.run_totals import TrainingSummary

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
    "generative": (
        "text-generation",
        "A stock language model that reasons and then judges: the reward is read at the verdict, after the reasoning.",
    ),
}


def model_card(
    name: str,
    spec: RewardModelSpec,
    method: Method,
    config: TrainingConfig,
    data: ItemSet[Any],
    summary: TrainingSummary,
    *,
    data_name: str,
    evaluation: Findings | None,
    eval_name: str | None,
    contamination: Sequence[str] = (),
    chosen: str | None = None,
) -> str:
    """Markdown with the metadata header that model hubs read. `contamination`: a line a registered benchmark.
    `chosen`: which step's weights these are, where that was chosen."""
    left_out = ", ".join(f"{n} ({reason})" for reason, n in sorted(data.left_out.items())) or "none"
    tuning = f"LoRA rank {config.lora.rank}, alpha {config.lora.alpha}, merged" if config.lora else "all weights"
    if config.freeze_layers:
        tuning += f", the lowest {config.freeze_layers} layers frozen"
    pipeline, reading = _READING[spec.kind]
    rows = [
        ("data", f"{data_name} ({spec.snapshot or 'a file'})"),
        (method.unit, f"{len(data)} used, left out: {left_out}; {data.truncated} truncated"),
        ("run", spec.run_id or "outside a workspace"),
        ("trained", tuning),
        *method.card_rows(),
        (
            "optimiser",
            f"{config.optimizer}, lr {config.learning_rate:g} ({config.schedule}, warm-up {config.warmup_ratio:g}), "
            f"{config.batch_size} {method.unit} a step, {config.epochs} epochs, weight decay {config.weight_decay:g}, "
            f"clipping {config.max_grad_norm:g}, seed {config.seed}",
        ),
        ("steps", f"{summary.steps}, {summary.tokens} tokens, {summary.seconds:.0f} s"),
        *([("weights", chosen)] if chosen else []),
        *([("settings of", f"{config.preset}: {preset(config.preset).source}")] if config.preset else []),
        ("trained length", f"{spec.trained_length} tokens; longer conversations lose their oldest turns"),
        ("template hash", f"`{spec.template_hash}`"),
        ("calibration", "none at training; `assay eval --calibrate` writes one to `assay.json`"),
        ("contamination", "; ".join(contamination) or "not checked: no benchmark was registered"),
    ]
    lines = [
        "---",
        "library_name: transformers",
        f"pipeline_tag: {pipeline}",
        f"tags: [{', '.join((*method.tags, 'assay'))}]",
        "---",
        f"# {name}",
        "",
        f"A {spec.kind} reward model on `{spec.base}`, trained by Assay. {reading}",
        "",
        *_table(rows),
        "",
        "## Evaluation",
        "",
    ]
    if evaluation is None:
        lines.append("None was made with the training.")
    else:
        lines += [
            f"On {eval_name}, float32, through the serving engine; a tie is wrong.",
            "",
            *_table(evaluation.card_rows()),
        ]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
