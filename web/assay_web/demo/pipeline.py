"""The demo's steps in order, from prompts to measured results.

Leaves out: the raw data (`source`), curation (`curation`), the probes (`reward_models`), policy training (`policy`),
the report (`pages`).
"""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from unicodedata import category

from assay.data.snapshots import HashSlice, Selection, create_snapshot, load_pairs
from assay.errors import BadInputError
from assay.models.devices import pick_device, pick_dtype
from assay.runs.progress_bar import progress_bar
from assay.runs.record import start_run
from assay.statistics.intervals import interval_text
from assay.workspace import Workspace
from assay_pipelines.curation.loop.relabelling import RelabelReport
from assay_pipelines.curation.loop.source_pass import SourcePassReport
from assay_pipelines.curation.reliability.estimates import SourceReliability
from assay_pipelines.curation.verifier import VerifierReport
from assay_pipelines.importers.run import ImportReport
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.prompts.constrained import ConstrainedPrompt, generate_prompts
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_rm_training.methods.hidden_states import FeatureCache, FrozenBackbone
from assay_web.demo.config import DemoConfig
from assay_web.demo.curation import (
    HELDOUT,
    ErrorDetection,
    Hygiene,
    clean_and_dedup,
    detected_errors,
    import_file,
    relabel,
    source_pass,
    source_reliabilities,
    verify_sources,
)
from assay_web.demo.policy import Optimised, optimise
from assay_web.demo.reward_models import (
    Bench,
    Difference,
    RewardModel,
    difference,
    read_responses,
    relabelling_model,
    shorter_baseline,
    true_labels,
)
from assay_web.demo.source import Pair, SimulatedSource, SourceTruth, sample_pairs, write_source

Say = Callable[[str], None]
SAMPLE_PROMPTS = 96  #: of a file alone: under a minute on two cores
TRUTHFUL = SimulatedSource(HELDOUT, share=1.0, wrong=0.0)


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step: on the clock, and of processor time on all cores."""

    wall: float
    processor: float


@dataclass(frozen=True)
class Curated:
    """What curation did. `relabelled`: why it was refused where that is a text, None where no source was at chance."""

    imported: ImportReport
    hygiene: Hygiene
    verified: VerifierReport
    reliability: list[SourceReliability]
    passed: SourcePassReport
    relabelled: RelabelReport | str | None
    errors: ErrorDetection


@dataclass
class DemoResults:
    """Everything the demo measured; the report prints nothing else. `optimised`: None where the policy was left out."""

    config: DemoConfig
    run_id: str
    truth: SourceTruth
    curated: Curated
    models: list[RewardModel]  #: raw, gold, curated, oracle
    gain: Difference | None  #: curated - raw
    headroom: Difference | None  #: oracle - raw
    shorter_baseline: float  #: accuracy of choosing the shorter response, on the same pairs
    optimised: Optimised | None
    snapshots: dict[str, int]
    steps: dict[str, StepTime] = field(default_factory=dict)

    def model(self, label: str) -> RewardModel:
        return next(model for model in self.models if model.label == label)


class Clock:
    """Wall and processor time by step."""

    def __init__(self, say: Say) -> None:
        self.steps: dict[str, StepTime] = {}
        self._say = say
        self._wall, self._processor = time.monotonic(), time.process_time()
        self._part = ""

    def begin(self, part: str) -> None:
        self.end()
        self._part = part
        self._wall, self._processor = time.monotonic(), time.process_time()
        self._say(f"\n{len(self.steps) + 1}. {part}")

    def end(self) -> None:
        if self._part:
            self.steps[self._part] = StepTime(time.monotonic() - self._wall, time.process_time() - self._processor)
            self._part = ""


def run_pipeline(workspace: Workspace, config: DemoConfig, say: Say, *, policy: bool = True) -> DemoResults:
    """Run all steps in `workspace`; `say` prints a line of progress. `policy`: whether one is trained at the end."""
    with start_run(workspace, "demo", asdict(config)) as run:
        clock = Clock(say)
        clock.begin("Raw data: prompts with checkable constraints, sampled responses, three sources of labels")
        kinds = config.constraint_kinds  # no topic is on both sides
        train = generate_prompts(config.prompts, config.seed, kinds=kinds, split="train")
        heldout = generate_prompts(config.heldout_prompts, config.seed, kinds=kinds, split="heldout")
        raw_file, heldout_file, truth = _make_files(run.folder, config, train, heldout)
        names = tuple(source.name for source in config.sources)
        say(f"   {len(train)} prompts gave {truth.pairs} comparisons; of the sources' labels are wrong:")
        for name in names:
            wrong, labels = truth.wrong_of(name)
            say(f"   {name:<12} {wrong} of {labels}")

        clock.begin("Import, clean, de-duplicate, measure the sources on gold, curate")
        cache = FeatureCache(FrozenBackbone(config.base, max_length=config.max_length), workspace)
        curated = _curate(workspace, config, cache, raw_file, names, truth, run.id, say)

        clock.begin("Reward models on raw and on curated labels")
        import_file(workspace, heldout_file)
        clean_and_dedup(workspace, config.clean)
        verify_sources(workspace, (HELDOUT,), share=1.0, seed=config.seed)
        for name, part in (("heldout-dev", HashSlice(0.0, 0.25)), ("heldout-test", HashSlice(0.25, 1.0))):
            create_snapshot(workspace, name, Selection(("gold",), (HELDOUT,), slice=part), run.id)
        snapshots = ("raw", "gold", "curated", "heldout-dev", "heldout-test")
        pairs = {name: load_pairs(workspace, name) for name in snapshots}
        read_responses(cache, [*pairs["heldout-dev"], *pairs["heldout-test"]])
        bench = Bench(workspace, config, cache, pairs["heldout-dev"], pairs["heldout-test"])
        models = [
            bench.recorded("raw"),
            bench.compared("gold", pairs["gold"]),
            bench.recorded("curated"),
            bench.compared("oracle", true_labels(pairs["raw"], train)),
        ]
        raw_model, _, curated_model, oracle = (model.evaluation for model in models)
        gain, headroom = difference(curated_model, raw_model), difference(oracle, raw_model)
        for model in models:
            accuracy = model.evaluation.accuracy
            say(
                f"   {model.label:<8} {100 * accuracy.value:.1f} % of {accuracy.pairs} held-out pairs "
                f"[{interval_text(accuracy.interval, '.1f', scale=100)}]"
            )
        shorter = shorter_baseline(bench.test)
        longer = raw_model.length_baseline
        say(f"   no model: the longer response {100 * longer:.1f} %, the shorter one {100 * shorter:.1f} %")
        for what, change in (("curated - raw", gain), ("oracle - raw", headroom)):
            if change is not None:
                say(
                    f"   {what}: {100 * change.value:+.1f} points [{interval_text(change.interval, '+.1f', scale=100)}]"
                )

        optimised = None
        if policy:
            clock.begin("Serve the curated reward model; train a policy against it")
            optimised = optimise(workspace, config, models[2], train, heldout, say)
        clock.end()
        results = DemoResults(
            config=config,
            run_id=run.id,
            truth=truth,
            curated=curated,
            models=models,
            gain=gain,
            headroom=headroom,
            shorter_baseline=shorter,
            optimised=optimised,
            snapshots={name: len(pairs[name]) for name in snapshots},
            steps=clock.steps,
        )
        run.metrics.update(
            {
                "steps": {name: asdict(step) for name, step in clock.steps.items()},
                "accuracy": {m.label: m.evaluation.accuracy.value for m in models},
            }
        )
    return results


def _curate(
    workspace: Workspace,
    config: DemoConfig,
    cache: FeatureCache,
    file: Path,
    names: tuple[str, ...],
    truth: SourceTruth,
    run_id: str,
    say: Say,
) -> Curated:
    """From the file to the snapshots raw, gold, trusted and curated. Held-out pairs are not there yet."""
    imported = import_file(workspace, file)
    create_snapshot(workspace, "raw", Selection(("unverified",), names), run_id)
    read_responses(cache, load_pairs(workspace, "raw"))
    hygiene = clean_and_dedup(workspace, config.clean)
    verified = verify_sources(workspace, names, share=config.gold_share, seed=config.seed)
    say(f"   the verifier decided {verified.gold} pairs: gold; {verified.corrected} of their labels were wrong")
    create_snapshot(workspace, "gold", Selection(("gold",), names), run_id)
    reliability = source_reliabilities(workspace, names)
    for source in reliability:
        say(f"   {source.name:<12} {source.text}")
    passed = source_pass(workspace, config.source_pass, names)
    say(
        f"   of sources right in {config.source_pass.least:.0%} {passed.kept} labels are kept, of the others "
        f"{passed.discarded} set aside; {passed.quality_text}"
    )
    relabelled: RelabelReport | str | None = None
    if passed.discarded:
        create_snapshot(workspace, "trusted", Selection(("gold", "silver"), names), run_id)
        model, refit = relabelling_model(config, cache, load_pairs(workspace, "trusted"))
        relabelled = relabel(workspace, config.relabel, model, refit, passed.discarded)
        say(
            f"   relabelling was refused: {relabelled}"
            if isinstance(relabelled, str)
            else f"   a model of gold and the good sources labels {relabelled.relabelled} of those anew; "
            f"{relabelled.quality_text}"
        )
    create_snapshot(workspace, "curated", Selection(("gold", "silver"), names), run_id)
    errors = detected_errors(workspace, truth)
    say(f"   {errors.caught} of {errors.errors} wrong labels caught, with {errors.false_alarms} right ones")
    return Curated(imported, hygiene, verified, reliability, passed, relabelled, errors)


def _make_files(
    folder: Path, config: DemoConfig, train: Sequence[ConstrainedPrompt], heldout: Sequence[ConstrainedPrompt]
) -> tuple[Path, Path, SourceTruth]:
    training, held_out = _sampled(config, {"train": train, "heldout": heldout})
    raw_file, heldout_file = folder / "labels.jsonl", folder / "heldout.jsonl"
    truth = write_source(raw_file, training, config.sources, seed=config.seed)
    write_source(heldout_file, held_out, (TRUTHFUL,), seed=config.seed)
    return raw_file, heldout_file, truth


def write_raw_data(path: Path, config: DemoConfig) -> SourceTruth:
    """Training pairs of SAMPLE_PROMPTS prompts, as a file to be imported."""
    number = min(config.prompts, SAMPLE_PROMPTS)
    prompts = generate_prompts(number, config.seed, kinds=config.constraint_kinds, split="train")
    (pairs,) = _sampled(config, {"train": prompts})
    plain = [replace(pair, better=_plain(pair.better), worse=_plain(pair.worse)) for pair in pairs]
    return write_source(path, plain, config.sources, seed=config.seed)


def _plain(response: str) -> str:
    """Random bytes without the characters for which cleaning discards a row."""
    return "".join("?" if category(letter) in ("Cc", "Cf") and letter not in "\n\t" else letter for letter in response)


def _sampled(config: DemoConfig, prompts_of: Mapping[str, Sequence[ConstrainedPrompt]]) -> list[list[Pair]]:
    """The pairs of each split. Raises BadInputError where one has under ten."""
    device = pick_device()
    policy = Policy(config.base, device=device, max_prompt_tokens=config.max_length, dtype=pick_dtype(device))
    sampling = Sampling(
        max_new_tokens=config.max_new_tokens,
        max_prompt_tokens=config.max_length,
        rows_at_once=192,
    )
    sampler = TransformersSampler(policy, sampling)
    splits: list[list[Pair]] = []
    with progress_bar("sampling responses", sum(map(len, prompts_of.values())), unit="prompts") as advance:
        for prefix, prompts in prompts_of.items():
            splits.append(
                sample_pairs(
                    prompts,
                    sampler,
                    samples=config.samples,
                    pairs_per_prompt=config.pairs_per_prompt,
                    seed=config.seed,
                    prefix=prefix,
                    on_progress=advance,
                )
            )
    del policy, sampler
    gc.collect()
    for name, pairs in zip(prompts_of, splits, strict=True):
        if len(pairs) < 10:
            raise BadInputError(f"only {len(pairs)} {name} comparisons came of the sampled responses; use more prompts")
    return splits
