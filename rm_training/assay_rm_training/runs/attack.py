"""Attacking a reward model or a pairwise judge as a recorded run: attacks, judgements, rates, the model card.

Leaves out: what is measured (`attacks`), what becomes of the responses that fooled the model
(`assay_pipelines.annotation.attacked_pairs`). Works without a workspace, and then leaves no run record.
"""

import random
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.data.pairs import load_pairs_or_file
from assay.domain import PreferencePair, response_text
from assay.errors import BadInputError
from assay.models.spec import RewardModelSpec
from assay.registry import unknown
from assay.runs.progress_bar import progress_bar
from assay.runs.record import locate_model
from assay.workspace import Workspace
from assay_policy_training.measure_command import values_of_settings
from assay_rm_training.attacks.attack import ATTACKS, POLICY, SEARCH, Attack, AttackedResponse
from assay_rm_training.attacks.rates import BASELINE, AttackReport, JudgedAttack, rates_of
from assay_rm_training.attacks.target import JudgeTarget, RewardTarget
from assay_rm_training.checkpoints.card_sections import CARD, table, write_section
from assay_rm_training.run_settings import AttackConfig
from assay_rm_training.runs.recorded import recorded_run, write_report
from assay_serving.generative.templates import format_named
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_judge, open_scorer, server_config
from assay_serving.model_reference import is_url, known_spec

SECTION = "Attacks"  #: of the model card


@dataclass(frozen=True)
class AttackRun:
    """`folder`: of evaluation.json and items.jsonl. `card`: whether the model's card has the rates now."""

    report: AttackReport
    pairs: tuple[PreferencePair, ...]
    run_id: str | None
    folder: Path | None
    card: bool

    def to_dict(self) -> dict[str, Any]:
        folder = str(self.folder) if self.folder else None
        return {
            **self.report.to_dict(),
            "false_positives": len(self.report.false_positives),
            "run_id": self.run_id,
            "folder": folder,
        }


def attack_model(
    workspace: Workspace | None, config: AttackConfig, *, out: Path | None = None, api_key: str | None = None
) -> AttackRun:
    """Attack, judge and report, with progress on standard error.

    Raises NotFoundError for an unknown model or data, BadInputError for an unknown attack or setting, for pairs without
    a good response, and where not one response could be judged.
    """
    attacks = _attacks(workspace, config)
    pairs = load_pairs_or_file(workspace, config.data)[: config.limit or None]
    for number, pair in enumerate(pairs, 1):
        if not response_text(pair.chosen).strip():
            raise BadInputError(f"pair {number} of {config.data} has no good response", field="chosen")
    source, artifact = locate_model(workspace, config.model)
    settings = asdict(config) | {"attacks": list(attacks)}
    with ExitStack() as stack:
        run = stack.enter_context(
            recorded_run(workspace, "attack", settings, model=(source, artifact), data=[config.data])
        )
        advance = stack.enter_context(progress_bar("attacking", None, unit="responses"))
        target = _target(workspace, config, source, pairs, api_key, advance)
        second = _second(workspace, config, pairs)
        items: list[JudgedAttack] = []
        for name, attack in attacks.items():
            attacked = _worth_judging(attack.attack(pairs, target, random.Random(config.seed)), pairs)
            items += _judged(name, attack, attacked, pairs, target, second)
        report = _report(target, pairs, items)
        folder = write_report(report, run, out)
        model = Path(source).expanduser()
        has_card = RewardModelSpec.read(model) is not None or (artifact is not None and (model / CARD).is_file())
        if has_card:
            write_section(model, SECTION, card_lines(report, config.data))
        if run is not None:
            run.metrics["false_positives"] = len(report.false_positives)
    return AttackRun(report, tuple(pairs), run.id if run else None, folder, has_card)


class WorseResponses:
    """The baseline: the worse response of each pair as it is."""

    def attack(self, pairs: Sequence[PreferencePair], target: object, rng: random.Random) -> list[AttackedResponse]:
        return [AttackedResponse(row, pair.rejected) for row, pair in enumerate(pairs)]


def _attacks(workspace: Workspace | None, config: AttackConfig) -> dict[str, Attack]:
    """The baseline and the attacks, by name. A pairwise judge is not searched unless that is asked for: two questions
    a trial."""
    names = list(config.attacks)
    if not names:
        skipped = {POLICY, SEARCH} if _is_judge(config, locate_model(workspace, config.model)[0]) else {POLICY}
        names = [name for name in ATTACKS.names() if name not in skipped]
    if config.policy is not None and POLICY not in names:
        names.append(POLICY)
    settings: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, value in values_of_settings(config.settings).items():
        name, _, setting = key.rpartition(".")
        if name not in settings:
            raise unknown("attack", name, names, field="--set")
        settings[name][setting] = tuple(value) if isinstance(value, list) else value
    if config.policy is not None:
        location = locate_model(workspace, config.policy, kinds=("policy",))[0]
        settings[POLICY] = {"policy": location, "device": config.device} | settings[POLICY]
    return {BASELINE: WorseResponses()} | {name: ATTACKS.create(name, settings[name]) for name in names}


def _is_judge(config: AttackConfig, source: str) -> bool:
    spec = None if is_url(source) else known_spec(source)
    return config.judge or (
        spec is not None and spec.judging is not None and format_named(spec.judging.format).responses == 2
    )


def _target(
    workspace: Workspace | None,
    config: AttackConfig,
    source: str,
    pairs: Sequence[PreferencePair],
    api_key: str | None,
    advance: Any,
) -> RewardTarget | JudgeTarget:
    root = workspace.root if workspace is not None else None
    served_as = config.server_model if is_url(source) else config.model
    if _is_judge(config, source):
        judge = open_judge(
            config.model_config(source, served_as=served_as), api_key=api_key, seed=config.seed, workspace=root
        )
        return JudgeTarget(judge, pairs, principle=config.principle, on_progress=advance)
    model: ModelConfig = config.model_config(source, served_as=served_as)
    if is_url(source):
        model = server_config(source, model=config.server_model, api_key=api_key, correct=config.correct)
    return RewardTarget(open_scorer(model, root), pairs, principle=config.principle, on_progress=advance)


def _second(workspace: Workspace | None, config: AttackConfig, pairs: Sequence[PreferencePair]) -> RewardTarget | None:
    if config.reference is None:
        return None
    source = locate_model(workspace, config.reference)[0]
    model = ModelConfig(source, device=config.device, allow_failed_parity=config.allow_failed_parity)
    return RewardTarget(open_scorer(model, workspace.root if workspace is not None else None), pairs)


def _worth_judging(attacked: Sequence[AttackedResponse], pairs: Sequence[PreferencePair]) -> list[AttackedResponse]:
    """Without those that are the good response itself. Raises BadInputError for one of no pair."""
    for one in attacked:
        if not 0 <= one.row < len(pairs):
            raise BadInputError(f"an attacked response of pair {one.row}, but there are {len(pairs)} pairs")
    return [one for one in attacked if one.response != pairs[one.row].chosen]


def _judged(
    name: str,
    attack: Attack,
    attacked: Sequence[AttackedResponse],
    pairs: Sequence[PreferencePair],
    target: RewardTarget | JudgeTarget,
    second: RewardTarget | None,
) -> list[JudgedAttack]:
    verdicts = target.judge(attacked)
    judged_twice: Sequence[Any] = [None] * len(attacked)
    if getattr(attack, "may_be_good", False):
        if second is None:
            raise BadInputError(f"{name} may give good responses: which second reward says so?", field="reference")
        judged_twice = second.judge(attacked)
    return [
        JudgedAttack.of(name, one, pairs[one.row], verdict, other)
        for one, verdict, other in zip(attacked, verdicts, judged_twice, strict=True)
    ]


def _report(
    target: RewardTarget | JudgeTarget, pairs: Sequence[PreferencePair], items: Sequence[JudgedAttack]
) -> AttackReport:
    rates, variants = rates_of(items)
    report = AttackReport(target.info, len(pairs), target.threshold, rates, variants, tuple(items))
    if not any(item.judged for item in items):
        raise BadInputError(f"none of the {len(items)} responses could be judged: {dict(report.coverage.left_out)}")
    return report


def card_lines(report: AttackReport, data: str) -> list[str]:
    """The model card's section."""
    what = f"`assay attack`: responses that carry nothing or less than the good one, on {report.pairs} pairs of {data}."
    return [what, "", *table(*report.table()), "", *(f"{note}." for note in report.notes())]
