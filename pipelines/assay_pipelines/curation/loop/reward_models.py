"""The reward models of a loop: a linear probe or full Bradley-Terry training, loaded again when the loop resumes."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from assay.browsing.candidates import Candidate
from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.models.spec import Calibration
from assay.runs.progress_bar import progress_bar
from assay.runs.record import Run
from assay.score import ScoreFailure
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_pipelines.curation.loop.config import Stage1ModelConfig
from assay_pipelines.curation.reliability.estimates import log_odds
from assay_serving.scorer import ScoreItem, Scorer

if TYPE_CHECKING:
    from assay_rm_training.methods.hidden_states import FeatureCache

SUREST = 0.99  #: probability, at most, that a model's reading of a pair counts for
UNCALIBRATED = Calibration(temperature=1.0, reference=0.0, fitted_on="nothing", pairs=0)


@dataclass(frozen=True)
class LoopModel:
    """A reward model with the temperature that gold gives it (1 where it is no better than chance there)."""

    scorer: Scorer
    calibration: Calibration

    def margins(self, pairs: Sequence[PreferencePair]) -> list[tuple[float, float] | None]:
        """(reward of chosen, of rejected) per pair; None where a side cannot be scored."""
        items = [ScoreItem(pair.prompt, text) for pair in pairs for text in (pair.chosen, pair.rejected)]
        scores = self.scorer.score(items)
        return [
            None if isinstance(c, ScoreFailure) or isinstance(r, ScoreFailure) else (c.reward, r.reward)
            for c, r in zip(scores[::2], scores[1::2], strict=True)
        ]

    def probabilities(self, pairs: Sequence[PreferencePair]) -> list[float | None]:
        """P(chosen beats rejected) per pair; None where a side cannot be scored."""
        return [None if m is None else self.calibration.pair_probability(*m) for m in self.margins(pairs)]

    def p_a(self, candidates: Sequence[Candidate]) -> dict[str, float]:
        """comparison id -> P(A beats B), of those that can be scored."""
        p = self.probabilities([preferring(c, "A") for c in candidates])
        return {c.comparison_id: q for c, q in zip(candidates, p, strict=True) if q is not None}

    def log_odds(self, candidates: Sequence[Candidate]) -> dict[str, float]:
        """comparison id -> log odds of A against B, of those that can be scored; no surer than SUREST, for which no
        calibration on gold can vouch."""
        return {c: log_odds(min(max(p, 1 - SUREST), SUREST)) for c, p in self.p_a(candidates).items()}

    def calibrated_on(self, gold: Sequence[PreferencePair], name: str) -> "LoopModel":
        """With the temperature fitted on `gold`, where the model ranks it better than chance."""
        from assay_rm_training.calibration.fitting import fit_temperature

        margins = [margin[0] - margin[1] for margin in self.margins(gold) if margin is not None]
        try:
            temperature = fit_temperature(margins)
        except BadInputError:
            return LoopModel(self.scorer, UNCALIBRATED)
        return LoopModel(self.scorer, Calibration(temperature, 0.0, fitted_on=name, pairs=len(margins)))


def preferring(candidate: Candidate, label: str | None) -> PreferencePair:
    """The comparison with the side `label` (A or B) as chosen."""
    sides = (candidate.response_a, candidate.response_b)
    chosen, rejected = sides if label == "A" else sides[::-1]
    return PreferencePair(candidate.prompt, chosen, rejected, candidate.comparison_id)


class RewardModels(Protocol):
    """Trains and loads. What `train` returns is JSON, kept with the loop; `load` takes it."""

    def train(
        self, run: Run, name: str, snapshot: str, pairs: Sequence[PreferencePair], gold: Sequence[PreferencePair]
    ) -> dict[str, Any]: ...

    def load(self, trained: dict[str, Any]) -> Scorer: ...

    def publish(self, run: Run, trained: dict[str, Any], name: str, sample: Sequence[PreferencePair]) -> str:
        """Make it a model of the workspace under `name`; returns the artifact id. `sample`: for the parity check."""


@dataclass(frozen=True)
class ProbeModels:
    """Linear probes; the head of each is a small file in the workspace's folder `loops`."""

    workspace: Workspace
    config: Stage1ModelConfig
    waivers: Mapping[str, str] = field(default_factory=dict)
    shared: "FeatureCache | None" = None  #: features that several loops use; None: the workspace's own

    @cached_property
    def cache(self) -> "FeatureCache":
        if self.shared is not None:
            return self.shared
        from assay_rm_training.methods.hidden_states import FeatureCache, FrozenBackbone

        backbone = FrozenBackbone(self.config.base, max_length=self.config.max_length, device=self.config.device)
        return FeatureCache(backbone, self.workspace)

    def train(
        self, run: Run, name: str, snapshot: str, pairs: Sequence[PreferencePair], gold: Sequence[PreferencePair]
    ) -> dict[str, Any]:
        import numpy as np

        from assay_rm_training.methods.probe import ProbeConfig, train_probe
        from assay_rm_training.runs.recorded import check_contamination

        check_contamination(self.workspace, run, snapshot, self.waivers)
        with progress_bar("features", 2 * (len(pairs) + len(gold)), unit="responses") as advance:
            probe = train_probe(self.cache, pairs, self._options(ProbeConfig), gold=gold, advance=advance)
        relative = Path("loops") / f"{name}.npy"
        path = self.workspace.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as stream:
            np.save(stream, probe.head)
        return {
            "backend": "probe",
            "name": name,
            "head": str(relative),
            "version": hashlib.sha256(probe.head.tobytes()).hexdigest()[:16],
            "snapshot": snapshot,
            "l2": probe.l2,
            "pairs": probe.pairs,
            "left_out": probe.left_out,
            "chosen_on": probe.chosen_on,
            "candidates": [[l2, *figures] for l2, figures in probe.candidates.items()],
        }

    def load(self, trained: dict[str, Any]) -> Scorer:
        from assay_rm_training.methods.probe import ProbeScorer

        return ProbeScorer(self.cache, self._probe(trained), name=trained["name"], version=trained["version"])

    def publish(self, run: Run, trained: dict[str, Any], name: str, sample: Sequence[PreferencePair]) -> str:
        from assay_rm_training.runs.probe import save_probe

        return save_probe(run, self.cache, self._probe(trained), name, data=trained["snapshot"], sample=sample)[0]

    def _probe(self, trained: dict[str, Any]) -> Any:
        import numpy as np

        from assay_rm_training.methods.probe import Probe

        head = np.load(self.workspace.root / trained["head"])
        candidates = {l2: (accuracy, nll) for l2, accuracy, nll in trained["candidates"]}
        return Probe(head, trained["l2"], trained["pairs"], trained["left_out"], candidates, trained["chosen_on"])

    def _options(self, kind: Any) -> Any:
        options = {k: tuple(v) if isinstance(v, list) else v for k, v in self.config.options.items()}
        try:
            return kind(**options)
        except TypeError as error:
            raise BadInputError(f"not an option of the probe: {error}", field="model.options") from error


@dataclass(frozen=True)
class BTModels:
    """Full Bradley-Terry trainings, each a checkpoint of the workspace with its own run and model card."""

    workspace: Workspace
    config: Stage1ModelConfig
    waivers: Mapping[str, str] = field(default_factory=dict)

    def train(
        self, run: Run, name: str, snapshot: str, pairs: Sequence[PreferencePair], gold: Sequence[PreferencePair]
    ) -> dict[str, Any]:
        from assay_rm_training.methods.method import method_of
        from assay_rm_training.runs.train import TrainingPlan, train_model
        from assay_rm_training.training_config import TrainingConfig

        plain = {"base": self.config.base, "max_length": self.config.max_length, "device": self.config.device}
        options = dict(self.config.options)
        method = method_of({"name": "bt", "loss": options.pop("loss", {})})
        config = TrainingConfig.from_dict({**plain, **options})
        plan = TrainingPlan(config, snapshot, None, name, force=True, waivers=dict(self.waivers), method=method)
        trained = train_model(self.workspace, plan, pairs)
        run.link("output", "run", trained.run_id)
        return {
            "backend": "bt",
            "name": trained.name,
            "artifact": trained.artifact_id,
            "path": str(trained.path.relative_to(self.workspace.root)),
            "version": trained.spec.version,
            "snapshot": snapshot,
            "pairs": trained.metrics["coverage"]["used"],
            "left_out": sum(trained.metrics["left_out"].values()),
        }

    def load(self, trained: dict[str, Any]) -> Scorer:
        from assay_serving.engines.transformers import TransformersScorer
        from assay_serving.model_config import ModelConfig

        return TransformersScorer.load(
            ModelConfig(str(self.workspace.root / trained["path"]), device=self.config.device)
        )

    def publish(self, run: Run, trained: dict[str, Any], name: str, sample: Sequence[PreferencePair]) -> str:
        return str(trained["artifact"])  # it is one already, under its iteration's name


def open_models(
    workspace: Workspace, config: Stage1ModelConfig, waivers: Mapping[str, str] | None = None
) -> RewardModels:
    """`waivers`: of the contamination ledger, for every training."""
    kind = ProbeModels if config.backend == "probe" else BTModels
    return kind(workspace, config, waivers or {})
