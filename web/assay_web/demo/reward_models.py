"""The demo's reward models: one linear probe for each set of labels, on the same frozen language model.

Covers: the recorded trainings (raw, curated), the probes that only compare (gold, oracle), their evaluation on held-out
gold and differences between them. All share one cache of features: a response is read by the language model once.
Leaves out: whose labels they are (`curation`), serving one (`policy`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay.conversation.message import final_text
from assay.data.snapshots import load_pairs
from assay.domain import PreferencePair, Prompt, Response
from assay.errors import BadInputError
from assay.models.loading import resolve_model
from assay.models.spec import Calibration, RewardModelSpec
from assay.runs.progress_bar import progress_bar
from assay.statistics.intervals import Interval, clustered_mean
from assay.workspace import Workspace
from assay_pipelines.curation.loop.held_out import Refit
from assay_pipelines.curation.loop.reward_models import UNCALIBRATED, LoopModel
from assay_policy_training.plugins.prompts.constrained import ConstrainedPrompt
from assay_rm_training.calibration.fitting import fit_calibration
from assay_rm_training.evaluation.metrics import length_baseline
from assay_rm_training.evaluation.pairs import PairEvaluation, evaluate
from assay_rm_training.methods.hidden_states import FeatureCache
from assay_rm_training.methods.probe import Probe, ProbeScorer, train_probe
from assay_rm_training.runs.probe import ProbePlan, TrainedProbe, train_probe_model
from assay_serving.scorer import ScoreItem
from assay_serving.verifiers import verify
from assay_web.demo.config import DemoConfig


@dataclass(frozen=True)
class RewardModel:
    """A probe and how it does on the held-out gold test pairs. `trained`: the recorded model, of those that have one;
    `pairs`: it was fitted on."""

    label: str
    pairs: int
    evaluation: PairEvaluation
    calibration: Calibration | None = None
    trained: TrainedProbe | None = None


@dataclass(frozen=True)
class Difference:
    """Accuracy of one model minus another's, of the `pairs` that both scored. The 95 % interval is over prompts."""

    value: float
    interval: Interval | None
    pairs: int


@dataclass(frozen=True)
class Bench:
    """What all probes are trained with and measured on: features, held-out pairs for calibration (`dev`) and test."""

    workspace: Workspace
    config: DemoConfig
    cache: FeatureCache
    dev: Sequence[PreferencePair]
    test: Sequence[PreferencePair]

    def recorded(self, label: str) -> RewardModel:
        """Trained on the snapshot `label`, as `assay train probe --data` does, and calibrated on `dev`."""
        config = self.config
        plan = ProbePlan(config.probe, config.base, label, f"rm-{label}", max_length=config.max_length)
        trained = train_probe_model(self.workspace, plan, load_pairs(self.workspace, label))
        scorer = ProbeScorer(self.cache, trained.probe, name=plan.name, version=trained.spec.version)
        calibration = None
        try:
            margins = evaluate(scorer, self.dev, seed=config.seed).rewards()
            calibration = fit_calibration(*margins, fitted_on="heldout-dev")
        except BadInputError:  # no better than chance on the dev pairs: it gets no probabilities
            pass
        if calibration is not None:
            _write_calibration(trained.path, calibration)
        evaluation = evaluate(scorer, self.test, seed=config.seed, calibration=calibration)
        return RewardModel(label, trained.probe.pairs, evaluation, calibration, trained)

    def compared(self, label: str, pairs: Sequence[PreferencePair]) -> RewardModel:
        """Trained for a comparison alone: neither saved nor served."""
        probe = train_probe(self.cache, pairs, self.config.probe)
        return RewardModel(label, probe.pairs, evaluate(self._scorer(label, probe), self.test, seed=self.config.seed))

    def _scorer(self, label: str, probe: Probe) -> ProbeScorer:
        return ProbeScorer(self.cache, probe, name=label, version="not saved")


def read_responses(cache: FeatureCache, pairs: Sequence[PreferencePair]) -> None:
    """Compute the features of both sides, which is nearly all that a probe costs, with progress."""
    items = [ScoreItem(pair.prompt, text) for pair in pairs for text in (pair.chosen, pair.rejected)]
    with progress_bar("reading responses", len(items), unit="responses") as advance:
        cache.of(items, advance)


def relabelling_model(
    config: DemoConfig, cache: FeatureCache, trusted: Sequence[PreferencePair]
) -> tuple[LoopModel, Refit]:
    """The model of gold and good sources that relabels the rest, and how it is trained again without a fold of gold."""

    def fitted(pairs: Sequence[PreferencePair], name: str) -> LoopModel:
        probe = train_probe(cache, pairs, config.probe)
        return LoopModel(ProbeScorer(cache, probe, name=name, version="not saved"), UNCALIBRATED)

    return fitted(trusted, "gold and good sources"), lambda pairs: fitted(pairs, "refit")


def true_labels(pairs: Sequence[PreferencePair], prompts: Sequence[ConstrainedPrompt]) -> list[PreferencePair]:
    """The same pairs, each with the response as chosen that meets more of its prompt's constraints."""
    constraints: dict[Prompt, ConstrainedPrompt] = {prompt.prompt: prompt for prompt in prompts}

    def met(pair: PreferencePair, response: Response) -> float:
        return verify(constraints[pair.prompt].constraints, final_text(response)).fraction

    return [
        pair
        if met(pair, pair.chosen) > met(pair, pair.rejected)
        else replace(pair, chosen=pair.rejected, rejected=pair.chosen)
        for pair in pairs
    ]


def shorter_baseline(pairs: Sequence[PreferencePair]) -> float:
    """Accuracy of choosing the shorter response (characters); equal length counts as wrong."""
    return length_baseline([replace(pair, chosen=pair.rejected, rejected=pair.chosen) for pair in pairs])


def difference(model: PairEvaluation, other: PairEvaluation) -> Difference | None:
    """Paired: both models on the same pairs, those that both could score, by prompt. None where there is no such."""
    right = {item.comparison_id: float(item.margin > 0) for item in other.items if item.margin is not None}
    shared = [
        (item.prompt_id, float(item.margin > 0) - right[item.comparison_id])
        for item in model.items
        if item.margin is not None and item.comparison_id in right
    ]
    if not shared:
        return None
    changes = [change for _, change in shared]
    return Difference(
        sum(changes) / len(changes), clustered_mean(changes, [prompt for prompt, _ in shared]), len(shared)
    )


def _write_calibration(folder: Path, calibration: Calibration) -> None:
    spec = RewardModelSpec.read(Path(resolve_model(str(folder))))
    assert spec is not None  # train_probe_model wrote it
    spec.calibrated(calibration).write(folder)
