"""The demo's steps in order, from prompts to measured results.

Leaves out: the noisy source (`source`), curation (`curation`), policy training (`policy`), the report (`pages`).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from assay.data.snapshots import HashSlice, Selection, create_snapshot, load_pairs
from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.models.devices import pick_device, pick_dtype
from assay.models.loading import resolve_model
from assay.models.spec import Calibration, RewardModelSpec
from assay.runs.progress_bar import progress_bar
from assay.runs.record import start_run
from assay.statistics.intervals import Interval, clustered_mean, interval_text
from assay.workspace import Workspace
from assay_pipelines.curation.consistency import UNCALIBRATED, ConsistencyReport, Judge
from assay_pipelines.curation.verifier import VerifierReport
from assay_pipelines.importers.run import ImportReport
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.prompts.constrained import ConstrainedPrompt, generate_prompts
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_rm_training.calibration.fitting import fit_calibration
from assay_rm_training.evaluation.pairs import PairEvaluation, evaluate
from assay_rm_training.runs.train import TrainedModel, TrainingPlan, train_model
from assay_rm_training.training_config import TrainingConfig
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_web.demo.config import DemoConfig
from assay_web.demo.curation import (
    HELDOUT,
    SOURCE,
    ErrorDetection,
    Hygiene,
    clean_and_dedup,
    consistency_pass,
    detected_errors,
    import_file,
    verify_source,
)
from assay_web.demo.policy import Optimised, optimise
from assay_web.demo.source import Injected, Pair, sample_pairs, write_source

Say = Callable[[str], None]


@dataclass(frozen=True)
class RewardModel:
    """One trained reward model and how it does on the held-out gold test pairs."""

    label: str
    trained: TrainedModel
    evaluation: PairEvaluation
    calibration: Calibration | None


@dataclass
class DemoResults:
    """Everything the demo measured; the report prints nothing else."""

    config: DemoConfig
    run_id: str
    injected: Injected
    imported: ImportReport
    hygiene: Hygiene
    verified: VerifierReport
    consistency: ConsistencyReport
    errors: ErrorDetection
    models: list[RewardModel]
    difference: Interval | None  #: accuracy of curated - raw on the same pairs, 95 %, by prompts
    optimised: Optimised
    snapshots: dict[str, int]
    seconds: dict[str, float] = field(default_factory=dict)


class Clock:
    """Wall time by step."""

    def __init__(self, say: Say) -> None:
        self.seconds: dict[str, float] = {}
        self._say = say
        self._started = time.monotonic()
        self._part = ""

    def begin(self, part: str) -> None:
        self.end()
        self._part, self._started = part, time.monotonic()
        self._say(f"\n{len(self.seconds) + 1}. {part}")

    def end(self) -> None:
        if self._part:
            self.seconds[self._part] = time.monotonic() - self._started
            self._part = ""


def run_pipeline(workspace: Workspace, config: DemoConfig, say: Say) -> DemoResults:
    """Run all steps in `workspace`; `say` prints a line of progress."""
    with start_run(workspace, "demo", asdict(config)) as run:
        clock = Clock(say)
        clock.begin("Raw material: prompts with checkable constraints, sampled responses, a noisy source")
        train, heldout = _prompts(config)
        source, truth, injected = _make_source(run.folder, config, train, heldout)
        say(
            f"   {len(train)} prompts gave {injected.pairs} comparisons; the source labels "
            f"{len(injected.flipped)} of them wrong ({100 * config.flip_share:.0f} %)"
        )

        clock.begin("Import, clean, de-duplicate, curate")
        imported = import_file(workspace, source)
        import_file(workspace, truth)
        raw = create_snapshot(workspace, "raw", Selection(("unverified",), (SOURCE,)), run.id)
        hygiene = clean_and_dedup(workspace, config.clean)
        verified = verify_source(workspace, SOURCE, share=config.gold_share, seed=config.seed)
        verify_source(workspace, HELDOUT, share=1.0, seed=config.seed)
        gold = create_snapshot(workspace, "gold", Selection(("gold",), (SOURCE,)), run.id)
        dev, test = (
            create_snapshot(workspace, name, Selection(("gold",), (HELDOUT,), slice=part), run.id)
            for name, part in (("heldout-dev", HashSlice(0.0, 0.35)), ("heldout-test", HashSlice(0.35, 1.0)))
        )
        say(f"   verifier: {verified.gold} gold, {verified.corrected} of the source's labels corrected")
        dev_pairs, test_pairs = load_pairs(workspace, "heldout-dev"), load_pairs(workspace, "heldout-test")
        gold_model = _train(workspace, config, "gold", dev_pairs, test_pairs, say)
        judge = Judge(
            TransformersScorer.load(ModelConfig(str(gold_model.trained.path))), gold_model.calibration or UNCALIBRATED
        )
        consistency = consistency_pass(workspace, judge, config.consistency)
        errors = detected_errors(workspace, injected)
        curated = create_snapshot(workspace, "curated", Selection(("gold", "silver", "recycled"), (SOURCE,)), run.id)
        say(
            f"   reward-model pass: {consistency.kept} kept, {consistency.flipped} flipped, "
            f"{consistency.discarded} discarded; {errors.caught} of {errors.errors} injected errors caught"
        )

        clock.begin("Reward models on raw and on curated data")
        models = [_train(workspace, config, name, dev_pairs, test_pairs, say) for name in ("raw", "curated")]
        difference = _difference(models[1].evaluation, models[0].evaluation)

        clock.begin("Serve the curated reward model; train a policy against it")
        optimised = optimise(workspace, config, models[1].trained, train, heldout, say)
        clock.end()
        findings = DemoResults(
            config=config,
            run_id=run.id,
            injected=injected,
            imported=imported,
            hygiene=hygiene,
            verified=verified,
            consistency=consistency,
            errors=errors,
            models=[gold_model, *models],
            difference=difference,
            optimised=optimised,
            snapshots={s.name: s.items for s in (raw, gold, curated, dev, test)},
            seconds=clock.seconds,
        )
        run.metrics.update(
            {"seconds": clock.seconds, "accuracy": {m.label: m.evaluation.accuracy.value for m in models}}
        )
    return findings


def _prompts(config: DemoConfig) -> tuple[list[ConstrainedPrompt], list[ConstrainedPrompt]]:
    """Training and held-out prompts; no topic is on both sides."""
    kinds = config.constraint_kinds
    return (
        generate_prompts(config.prompts, config.seed, kinds=kinds, split="train"),
        generate_prompts(config.heldout_prompts, config.seed, kinds=kinds, split="heldout"),
    )


def _make_source(
    folder: Path, config: DemoConfig, train: Sequence[ConstrainedPrompt], heldout: Sequence[ConstrainedPrompt]
) -> tuple[Path, Path, Injected]:
    device = pick_device()
    policy = Policy(config.base, device=device, max_prompt_tokens=config.max_length, dtype=pick_dtype(device))
    sampling = Sampling(
        max_new_tokens=config.max_new_tokens,
        max_prompt_tokens=config.max_length,
        temperature=config.temperature,
        rows_at_once=96,
    )
    sampler = TransformersSampler(policy, sampling)
    splits: list[list[Pair]] = []
    with progress_bar("sampling responses", len(train) + len(heldout), unit="prompts") as advance:
        for prefix, prompts in (("train", train), ("heldout", heldout)):
            splits.append(
                sample_pairs(
                    prompts,
                    sampler,
                    samples=config.samples,
                    pairs_per_prompt=config.pairs_per_prompt,
                    seed=config.seed + len(splits),
                    prefix=prefix,
                    on_progress=advance,
                )
            )
    del policy, sampler
    gc.collect()
    for name, pairs in zip(("training", "held-out"), splits, strict=True):
        if len(pairs) < 10:
            raise BadInputError(f"only {len(pairs)} {name} comparisons came of the sampled responses; use more prompts")
    source, truth = folder / "noisy-source.jsonl", folder / "heldout.jsonl"
    injected = write_source(source, splits[0], source=SOURCE, flip_share=config.flip_share, seed=config.seed)
    write_source(truth, splits[1], source=HELDOUT, flip_share=config.flip_share, seed=config.seed)
    return source, truth, injected


def _train(
    workspace: Workspace,
    config: DemoConfig,
    label: str,
    dev: Sequence[PreferencePair],
    test: Sequence[PreferencePair],
    say: Say,
) -> RewardModel:
    """Train on snapshot `label`, calibrate on the dev pairs, evaluate on the test pairs."""
    plan = TrainingPlan(
        TrainingConfig(
            base=config.base,
            lr=config.lr,
            epochs=config.epochs,
            batch_size=config.batch_size,
            max_length=config.max_length,
            freeze_layers=config.freeze_layers,
            seed=config.seed,
        ),
        data=label,
        eval_data=None,
        name=f"rm-{label}",
    )
    trained = train_model(workspace, plan, load_pairs(workspace, label))
    scorer = TransformersScorer.load(ModelConfig(str(trained.path), served_as=plan.name))
    calibration = None
    try:
        calibration = fit_calibration(*evaluate(scorer, dev, seed=config.seed).rewards(), fitted_on="heldout-dev")
    except BadInputError as error:  # no better than chance on the dev pairs: it gets no probabilities
        say(f"   {plan.name} stays uncalibrated: {error}")
    if calibration is not None:
        _write_calibration(trained.path, calibration)
    evaluation = evaluate(scorer, test, seed=config.seed, calibration=calibration)
    accuracy = evaluation.accuracy
    say(
        f"   {plan.name}: {100 * accuracy.value:.1f} % of {accuracy.pairs} held-out gold pairs "
        f"[{interval_text(accuracy.interval, '.1f', scale=100)}]; "
        f"choosing the longer: {100 * evaluation.length_baseline:.1f} %"
    )
    return RewardModel(label, trained, evaluation, calibration)


def _write_calibration(folder: Path, calibration: Calibration) -> None:
    spec = RewardModelSpec.read(Path(resolve_model(str(folder))))
    assert spec is not None  # train_model wrote it
    spec.calibrated(calibration).write(folder)


def _difference(curated: PairEvaluation, raw: PairEvaluation) -> Interval | None:
    """Paired: both models on the same pairs, those that both could score, by prompt."""
    right = {item.comparison_id: float(item.margin > 0) for item in raw.items if item.margin is not None}
    shared = [
        (item.prompt_id, float(item.margin > 0) - right[item.comparison_id])
        for item in curated.items
        if item.margin is not None and item.comparison_id in right
    ]
    return clustered_mean([change for _, change in shared], [prompt for prompt, _ in shared])
