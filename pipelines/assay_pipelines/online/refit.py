"""The reward model of a loop, as a rule heads on a frozen backbone, fitted again on every label so far.

Covers: hidden states of labelled responses, computed once; fitting, saving and loading a version; the versions'
scorers, which share the backbone. Leaves out: the fit (`assay_rm_training.methods.head_ensemble`), models trained as a
whole (`whole_model`), who scores the rollouts (`reward_host`), whether a version takes over (`shadow`).
"""

import hashlib
import shutil
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from assay import ids
from assay.domain import PreferencePair, prompt_of
from assay.errors import BadInputError
from assay.models.spec import RewardModelSpec
from assay.runs.model_run import reserved_folder
from assay.runs.progress_bar import Advance, silent
from assay.runs.record import Run, find_artifact, start_run
from assay.workspace import Workspace
from assay_pipelines.online.config import RewardPlan
from assay_pipelines.online.journal import LabelRow
from assay_rm_training.methods.head_ensemble import FittedHeads, fit_heads
from assay_rm_training.methods.heads_config import HeadsConfig
from assay_rm_training.methods.hidden_states import FeatureCache, FrozenBackbone
from assay_rm_training.runs.heads import write_head_ensemble
from assay_serving.engines.aggregation import MemberAggregation
from assay_serving.engines.frozen_backbone import FeatureResult, Features
from assay_serving.engines.head_ensemble import HeadEnsembleScorer, HeadEnsembleSpec, read_heads
from assay_serving.engines.heads import Heads
from assay_serving.scorer import ScoreItem, Scorer

Floats = npt.NDArray[np.float64]
RECENT = 8192  #: responses whose hidden states are kept, beside the labelled ones


@dataclass(frozen=True)
class TrainingPair:
    """One labelled pair. `weight`: of its loss."""

    chosen: ScoreItem
    rejected: ScoreItem
    weight: float = 1.0
    wrong: float = 0.0

    @classmethod
    def of(cls, row: LabelRow) -> "TrainingPair | None":
        """None for a tie, and without a label."""
        if row.label not in ("A", "B"):
            return None
        a, b = (ScoreItem(prompt_of(row.prompt), text) for text in row.responses)
        return cls(a, b) if row.label == "A" else cls(b, a)

    @classmethod
    def of_pair(cls, pair: PreferencePair) -> "TrainingPair":
        chosen, rejected = (ScoreItem(pair.prompt, response) for response in (pair.chosen, pair.rejected))
        return cls(chosen, rejected, pair.weight, 1.0 - pair.preference)


class RecentFeatures:
    """Hidden states of the latest responses, so that scoring and choosing need one pass."""

    def __init__(self, backbone: FrozenBackbone, capacity: int = RECENT) -> None:
        self.backbone, self._capacity = backbone, capacity
        self._known: OrderedDict[str, FeatureResult] = OrderedDict()
        self._lock = Lock()

    def of(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[FeatureResult]:
        """As `FrozenBackbone.encode`; threads take turns."""
        keys = [ids.response_id(ids.prompt_id(item.prompt), item.response) for item in items]
        with self._lock:
            missing = {key: item for key, item in zip(keys, items, strict=True) if key not in self._known}
            self._known.update(zip(missing, self.backbone.encode(list(missing.values())), strict=True))
            vectors = [self._known[key] for key in keys]
            while len(self._known) > self._capacity:
                self._known.popitem(last=False)
        on_progress(len(items))
        return vectors

    def matrix(self, items: Sequence[ScoreItem]) -> Floats:
        """[n, H], NaN for a response that has none."""
        rows = self.of(items)
        empty = np.full(self.backbone.width, np.nan)
        return np.array([r.vector if isinstance(r, Features) else empty for r in rows], dtype=np.float64)


class LoopReward(HeadEnsembleScorer):
    """Scores with one version's heads, on hidden states that the versions share."""

    states: RecentFeatures

    def features(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[FeatureResult]:
        return self.states.of(items, on_progress)


@dataclass(frozen=True)
class RewardVersion:
    """One reward model of the loop, saved as an artifact of the workspace. `heads`: of an ensemble of heads."""

    name: str
    folder: Path
    scorer: Scorer
    heads: Heads | None = None

    def reference(self, workspace: Workspace) -> str:
        """Of its folder, relative to the workspace's models where it is one of them."""
        return self.folder.name if self.folder.parent == workspace.models else str(self.folder)


class Refit(Protocol):
    """Makes and loads versions of a loop's reward model. `features`: hidden states, where the versions share them."""

    features: RecentFeatures | None

    def fitted(
        self, pairs: Sequence[TrainingPair], inputs: Mapping[str, str], before: RewardVersion | None
    ) -> RewardVersion:
        """A version fitted on the pairs, by a recorded run that reads `inputs` (ref -> kind), the first of them first.
        The same pairs and the same `before` give the same version. Raises BadInputError where they are too few."""
        ...

    def load(self, folder: Path) -> RewardVersion: ...


class HeadsRefit:
    """Ensembles of heads, called `name`, which share a backbone."""

    def __init__(self, workspace: Workspace, name: str, plan: RewardPlan, base: str, device: str, seed: int) -> None:
        self.workspace, self.name, self.plan = workspace, name, plan
        backbone = FrozenBackbone(base, max_length=plan.max_length, device=device)
        self._cache = FeatureCache(backbone)
        self.features: RecentFeatures | None = RecentFeatures(backbone)
        self._states = self.features
        self.config = HeadsConfig(method=plan.uncertainty, members=plan.members, l2=plan.l2, seed=seed)
        self._labelled: dict[tuple[Any, str], FeatureResult] = {}

    def fitted(
        self, pairs: Sequence[TrainingPair], inputs: Mapping[str, str], before: RewardVersion | None
    ) -> RewardVersion:
        """See `Refit`."""
        settings = {"name": self.name, "pairs": len(pairs), **asdict(self.config)}
        with start_run(self.workspace, "loop-refit", settings, inputs=inputs) as run:
            version = self.save(run, self.fit(pairs, before.heads if before else None), data=next(iter(inputs)))
            run.metrics.update({"pairs": len(pairs), "model": version.name})
        return version

    def fit(self, pairs: Sequence[TrainingPair], start: Heads | None = None) -> FittedHeads:
        """Raises BadInputError where too few pairs have features on both sides."""
        self._keep([item for pair in pairs for item in (pair.chosen, pair.rejected)])
        sides = [(self._vector(pair.chosen), self._vector(pair.rejected), pair) for pair in pairs]
        used = [(c, r, pair) for c, r, pair in sides if c is not None and r is not None]
        numbers: dict[str, int] = {}
        groups = [numbers.setdefault(ids.prompt_id(pair.chosen.prompt), len(numbers)) for _, _, pair in used]
        if len(numbers) < 2:
            raise BadInputError(
                f"{len(pairs)} decided labels of {len(numbers)} prompts are too few to fit the reward on: buy more "
                "(reward.labels), or begin with another start",
                field="reward",
            )
        return fit_heads(
            np.stack([c for c, _, _ in used]),
            np.stack([r for _, r, _ in used]),
            np.array([pair.weight for _, _, pair in used]),
            self.config,
            groups,
            wrong=np.array([pair.wrong for _, _, pair in used]),
            start=start,
        )

    def save(self, run: Run, heads: FittedHeads, *, data: str) -> RewardVersion:
        """Under a name of its content; what is there already is taken. `data`: the snapshot or file fitted on."""
        name = f"{self.name}-{_digest(heads)[:8]}"
        if (artifact := find_artifact(self.workspace, name, ("reward_model",))) is not None and artifact[0].is_dir():
            return self.load(artifact[0])
        shutil.rmtree(self.workspace.models / name, ignore_errors=True)  # of a life that was killed while it wrote
        with reserved_folder(self.workspace, name) as (folder, set_owner):
            set_owner(run.id)
            aggregation = MemberAggregation(self.plan.combine, self.plan.weight)
            write_head_ensemble(run, self._cache, heads, folder, data=data, aggregation=aggregation)
        return self.load(folder)

    def load(self, folder: Path) -> RewardVersion:
        """Raises BadInputError for the heads of another backbone, and for what is no ensemble of heads."""
        spec, backbone = HeadEnsembleSpec.read(folder), self._cache.backbone
        if spec.ratings is not None:
            raise BadInputError("its heads are of ratings: a loop learns from pairs", file=folder)
        if (spec.backbone_version, spec.width) != (backbone.version, backbone.width):
            raise BadInputError(
                f"its heads read {spec.backbone}, and not {backbone.base}: reward.backbone", file=folder
            )
        described = RewardModelSpec(
            "scalar",
            spec.backbone,
            spec.template_hash,
            spec.max_length,
            spec.version,
            contamination=spec.contamination,
            ranked=spec.aggregation.combine == "mean",
        )
        scorer = LoopReward(backbone.trainable.model, backbone.renderer, described, name=self.name)
        scorer.states, scorer.aggregation, scorer.heads = self._states, spec.aggregation, read_heads(folder, spec)
        return RewardVersion(folder.name, folder, scorer, scorer.heads)

    def _keep(self, items: Sequence[ScoreItem]) -> None:
        missing = list({_key(item): item for item in items if _key(item) not in self._labelled}.values())
        self._labelled.update(zip(map(_key, missing), self._states.of(missing), strict=True))

    def _vector(self, item: ScoreItem) -> npt.NDArray[np.float32] | None:
        result = self._labelled[_key(item)]
        return result.vector if isinstance(result, Features) else None


def _key(item: ScoreItem) -> tuple[Any, str]:
    return item.prompt, str(item.response)


def _digest(heads: Heads) -> str:
    """Of the heads as they are stored."""
    hasher = hashlib.sha256()
    for values in (heads.heads, heads.centre, heads.mean, heads.posterior.factor):
        hasher.update(np.ascontiguousarray(values, dtype=np.float32).tobytes())
    return hasher.hexdigest()
