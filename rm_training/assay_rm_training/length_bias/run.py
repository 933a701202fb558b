"""Measuring a stored reward model's length bias, and fitting a correction, as a recorded run.

Leaves out: the figures (`measure.py`), the fits (`fit.py`).
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay import ids
from assay.data.pairs import load_pairs_or_file
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.length_correction import LengthCorrection
from assay.models.spec import FILE, RewardModelSpec
from assay.runs.progress_bar import progress_bar
from assay.runs.record import locate_model
from assay.score import Score
from assay.statistics.intervals import bounds, interval_text
from assay.workspace import Workspace
from assay_rm_training.checkpoints.card_sections import table, write_section
from assay_rm_training.length_bias.fit import CorrectionEffect, ScoredLengths, effect_of, fit_correction
from assay_rm_training.length_bias.measure import Estimate, LengthBias, length_bias
from assay_rm_training.run_settings import LengthBiasConfig
from assay_rm_training.runs.recorded import recorded_run
from assay_serving.engines.length_corrected import response_length
from assay_serving.model_loader import open_scorer
from assay_serving.scorer import ScoreItem


@dataclass(frozen=True)
class LengthBiasRun:
    """`effect`: of the fitted correction on left-out prompts. `written`: the spec that holds it."""

    model: str
    version: str
    bias: LengthBias
    failed: int
    correction: LengthCorrection | None
    effect: CorrectionEffect | None
    written: Path | None
    run_id: str | None

    def to_dict(self) -> dict[str, Any]:
        effect, written = self.effect, self.written
        return asdict(self) | {
            "effect": effect.to_dict() if effect else None,
            "written": str(written) if written else None,
        }


def measure_length_bias(workspace: Workspace | None, config: LengthBiasConfig) -> LengthBiasRun:
    """Score, report, fit, and write, with progress on standard error.

    Raises BadInputError for tokens of a server's model, and for writing to a model that has no spec.
    """
    source, artifact = locate_model(workspace, config.model)
    folder = Path(source).expanduser()
    spec = RewardModelSpec.read(folder) if folder.is_dir() else None
    if config.write is not None and spec is None:
        raise BadInputError(f"{config.model} has no {FILE} to keep a correction in")
    pairs = load_pairs_or_file(workspace, config.data)[: config.limit or None]
    with recorded_run(workspace, "length-bias", asdict(config), model=(source, artifact), data=[config.data]) as run:
        scorer = open_scorer(config.model_config(source), workspace=workspace.root if workspace is not None else None)
        renderer: Renderer | None = getattr(scorer, "renderer", None)
        if config.unit == "tokens" and renderer is None:
            raise BadInputError(f"{config.model} has no tokenizer here: --unit characters", field="unit")
        items = [ScoreItem(pair.prompt, text) for pair in pairs for text in (pair.chosen, pair.rejected)]
        with progress_bar("scoring", len(items), unit="responses") as advance:
            scores = scorer.score(items, advance)
        scored_pairs = [i for i in range(len(pairs)) if all(isinstance(s, Score) for s in scores[2 * i : 2 * i + 2])]
        if not scored_pairs:
            raise BadInputError(f"none of the {len(pairs)} pairs of {config.data} could be scored")
        rewards = np.array(
            [[s.reward for s in scores[2 * i : 2 * i + 2] if isinstance(s, Score)] for i in scored_pairs]
        )
        lengths = np.array(
            [[response_length(item, config.unit, renderer) for item in items[2 * i : 2 * i + 2]] for i in scored_pairs],
            dtype=float,
        )
        scored = ScoredLengths(
            (rewards[:, 0], rewards[:, 1]),
            (lengths[:, 0], lengths[:, 1]),
            [ids.prompt_id(pairs[i].prompt) for i in scored_pairs],
            [pairs[i].category if config.per_domain else "" for i in scored_pairs],
        )
        bias = length_bias(scored.rewards, scored.lengths, scored.groups, unit=config.unit)
        correction = effect = written = None
        if config.fit is not None:
            correction = fit_correction(
                scored,
                config.fit,
                name=config.write or config.fit,
                unit=config.unit,
                mixing=config.mixing,
                per_domain=config.per_domain,
                rate=config.rate,
                free=config.free,
                ceiling=config.ceiling,
                fitted_on=config.data,
            )
            effect = effect_of(scored, correction, per_domain=config.per_domain, seed=config.seed)
            correction = replace(correction, measured=_measured(effect))
        if config.write is not None and spec is not None and correction is not None:
            spec.corrected(correction).write(folder)
            written = folder / FILE
            write_section(folder, "Length bias", length_lines(bias, config.data, correction, effect))
        report = LengthBiasRun(
            scorer.info.name,
            scorer.info.version,
            bias,
            len(pairs) - len(scored_pairs),
            correction,
            effect,
            written,
            run.id if run else None,
        )
        if run is not None:
            run.metrics.update(report.to_dict())
        return report


def figures(bias: LengthBias) -> list[tuple[str, Estimate | None]]:
    """The rows of the report, as label and estimate."""
    return [
        (f"correlation of reward and length in {bias.unit}, over all responses", bias.overall),
        ("  within prompts", bias.within_prompt),
        ("  within prompts, given the label", bias.given_label),
        (f"reward per 100 {bias.unit}, within prompts", bias.slope),
        ("accuracy where the chosen side is longer", bias.chosen_longer),
        ("accuracy where the chosen side is shorter", bias.chosen_shorter),
        ("accuracy where both are equally long", bias.equal),
        ("the model prefers the longer side", bias.longer_wins),
        ("  the label prefers it", bias.longer_chosen),
    ]


def length_lines(
    bias: LengthBias, data: str, correction: LengthCorrection | None, effect: CorrectionEffect | None
) -> list[str]:
    """The model card's section."""
    rows = [[name.strip(), *written(estimate)] for name, estimate in figures(bias)]
    lines = [
        f"On {data}, {bias.pairs} pairs, length in {bias.unit}.",
        "",
        *table(["", "value", "95 %", "pairs"], rows),
    ]
    if correction is not None and effect is not None:
        lines += [
            "",
            f"Correction `{correction.name}` ({correction.form}, mixing {correction.mixing:g}), on {effect.folds} "
            f"left-out parts: accuracy {effect.before:.4f} before, {effect.after:.4f} after, {effect.change:+.4f} "
            f"({interval_text(effect.interval, '+.4f')}). Applied only on request.",
        ]
    return lines


def written(estimate: Estimate | None) -> list[str]:
    """Value, interval, pairs."""
    if estimate is None:
        return ["none", "", "0"]
    return [
        f"{estimate.value:.4f}",
        interval_text(estimate.interval),
        str(estimate.pairs),
    ]


def _measured(effect: CorrectionEffect) -> dict[str, Any]:
    return {
        "folds": effect.folds,
        "accuracy_before": effect.before,
        "accuracy_after": effect.after,
        "change_interval": list(bounds(effect.interval)),
        "accuracy_by_mixing": {f"{m:g}": a for m, a in effect.by_mixing.items()},
    }
