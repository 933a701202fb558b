"""The reward model of a loop: heads on a frozen backbone, fitted again on every label so far.

Covers: hidden states of labelled responses, computed once; fitting, saving and loading a version; the versions'
scorers, which share the backbone. Leaves out: the fit (`assay_rm_training.methods.head_ensemble`), who scores the
rollouts (`reward_host`), whether a version takes over (`shadow`).
"""

import json
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from assay import ids
from assay.domain import PreferencePair, prompt_of
from assay.errors import BadInputError
from assay.runs.model_run import reserved_folder
from assay.runs.progress_bar import Advance, silent
from assay.runs.record import Run, find_artifact
from assay.score import Score, ScoreFailure, ScorePart, ScoreResult
from assay.workspace import Workspace
from assay_pipelines.online.config import RewardPlan
from assay_pipelines.online.journal import LabelRow
from assay_rm_training.methods.head_ensemble import HeadsConfig, fit_heads
from assay_rm_training.methods.hidden_states import FeatureResult, Features, FrozenBackbone
from assay_serving.engines.heads import Heads, Posterior
from assay_serving.scorer import ModelInfo, ScoreItem

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

    def of(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[FeatureResult]:
        keys = [ids.response_id(ids.prompt_id(item.prompt), item.response) for item in items]
        missing = {key: item for key, item in zip(keys, items, strict=True) if key not in self._known}
        computed = dict(zip(missing, self.backbone.encode(list(missing.values())), strict=True))
        found = [computed.get(key) or self._known[key] for key in keys]
        self._known.update(computed)
        while len(self._known) > self._capacity:
            self._known.popitem(last=False)
        on_progress(len(items))
        return found

    def matrix(self, items: Sequence[ScoreItem]) -> Floats:
        """[n, H], NaN for a response that has none."""
        rows = self.of(items)
        empty = np.full(self.backbone.width, np.nan)
        return np.array([r.vector if isinstance(r, Features) else empty for r in rows], dtype=np.float64)


class HeadsScorer:
    """Scores with one version's heads."""

    def __init__(self, features: RecentFeatures, heads: Heads, info: ModelInfo, plan: RewardPlan) -> None:
        self.features, self.heads, self.info, self.plan = features, heads, info, plan

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        return [self._scored(result) for result in self.features.of(items, on_progress)]

    def rewards(self, features: Floats) -> Floats:
        """[n] of hidden states [n, H]."""
        return self._combined(self.heads.rewards(features))

    def _combined(self, members: Floats) -> Floats:
        mean, spread = members.mean(axis=1), members.std(axis=1)
        if self.plan.combine == "min":
            return np.asarray(members.min(axis=1))
        weight = {"mean": 0.0, "uwo": spread, "lower_bound": 1.0}[self.plan.combine] * self.plan.weight
        return np.asarray(mean - weight * spread)

    def _scored(self, result: FeatureResult) -> ScoreResult:
        if isinstance(result, ScoreFailure):
            return result
        members = self.heads.rewards(result.vector[None].astype(np.float64))
        reward = float(self._combined(members)[0])
        if not math.isfinite(reward):
            return ScoreFailure("non_finite", f"the model answered {reward}", self.info.name)
        info = self.info
        parts = tuple(ScorePart(f"member-{j}", float(value)) for j, value in enumerate(members[0]))
        return Score(
            reward,
            info.name,
            info.version,
            info.template_hash,
            result.tokens,
            result.truncated,
            uncertainty=float(members.std()),
            parts=parts,
        )


@dataclass(frozen=True)
class RewardVersion:
    """One reward model of the loop, saved as an artifact of the workspace."""

    name: str
    folder: Path
    scorer: HeadsScorer

    @property
    def heads(self) -> Heads:
        return self.scorer.heads


class HeadsRefit:
    """Makes and loads versions of the reward model `name`, which share a backbone."""

    def __init__(self, workspace: Workspace, name: str, plan: RewardPlan, base: str, device: str, seed: int) -> None:
        self.workspace, self.name, self.plan = workspace, name, plan
        backbone = FrozenBackbone(base, max_length=plan.max_length, device=device)
        self.features = RecentFeatures(backbone)
        self.config = HeadsConfig(method=plan.uncertainty, members=plan.members, l2=plan.l2, seed=seed)
        self._labelled: dict[tuple[Any, str], FeatureResult] = {}

    def fit(self, pairs: Sequence[TrainingPair], start: Heads | None = None) -> Heads:
        """Raises BadInputError where too few pairs have features on both sides."""
        self._keep([item for pair in pairs for item in (pair.chosen, pair.rejected)])
        sides = [(self._vector(pair.chosen), self._vector(pair.rejected), pair) for pair in pairs]
        used = [(c, r, pair) for c, r, pair in sides if c is not None and r is not None]
        if not used:
            raise BadInputError("no pair to fit the reward on: none is decided, with both sides within its length")
        numbers: dict[str, int] = {}
        groups = [numbers.setdefault(ids.prompt_id(pair.chosen.prompt), len(numbers)) for _, _, pair in used]
        return fit_heads(
            np.stack([c for c, _, _ in used]),
            np.stack([r for _, r, _ in used]),
            np.array([pair.weight for _, _, pair in used]),
            self.config,
            groups,
            wrong=np.array([pair.wrong for _, _, pair in used]),
            start=start,
        )

    def save(self, run: Run, heads: Heads, *, data: Sequence[str]) -> RewardVersion:
        """Under a name of its content; what is there already is taken. `data`: snapshots and files it was fitted on."""
        payload = _packed(heads)
        digest = ids.digest("".join(f"{k}{v.tobytes().hex()}" for k, v in payload.items()))
        name = f"{self.name}-{digest[:8]}"
        if (found := find_artifact(self.workspace, name, ("reward_model",))) is not None and found[0].is_dir():
            return self.load(found[0])
        folder = self.workspace.models / name
        if not folder.is_dir():
            with reserved_folder(self.workspace, name) as (folder, set_owner):
                set_owner(run.id)
                scratch = folder.with_name(f".{folder.name}.part")
                scratch.mkdir(parents=True, exist_ok=True)
                np.savez(scratch / "heads.npz", **payload)  # type: ignore[arg-type]
                about = {"backbone": self.features.backbone.name, "plan": asdict(self.plan), "data": list(data)}
                (scratch / "heads.json").write_text(json.dumps(about), encoding="utf-8")
                scratch.rename(folder)
        version = self.load(folder)
        spec = {"version": version.scorer.info.version, "base": self.features.backbone.base, "data": list(data)}
        run.add_artifact("reward_model", name, folder, content_hash=version.scorer.info.version, spec=spec)
        return version

    def load(self, folder: Path) -> RewardVersion:
        """Raises BadInputError for the heads of another backbone."""
        about = json.loads((folder / "heads.json").read_text(encoding="utf-8"))
        backbone = self.features.backbone
        if about["backbone"] != backbone.name:
            raise BadInputError(f"its heads read {about['backbone']}, not {backbone.name}", file=folder)
        with np.load(folder / "heads.npz") as packed:
            heads = Heads(packed["heads"], packed["centre"], Posterior(packed["mean"], packed["factor"]))
        info = ModelInfo(
            name=self.name,
            version=ids.digest("".join(f"{k}{v.tobytes().hex()}" for k, v in _packed(heads).items())),
            template_hash=backbone.renderer.template_hash,
            max_length=backbone.renderer.max_length,
            dtype="float32",
            device=str(backbone.trainable.model.device),
            bradley_terry=True,
        )
        return RewardVersion(folder.name, folder, HeadsScorer(self.features, heads, info, self.plan))

    def _keep(self, items: Sequence[ScoreItem]) -> None:
        missing = list({_key(item): item for item in items if _key(item) not in self._labelled}.values())
        self._labelled.update(zip(map(_key, missing), self.features.of(missing), strict=True))

    def _vector(self, item: ScoreItem) -> npt.NDArray[np.float32] | None:
        result = self._labelled[_key(item)]
        return result.vector if isinstance(result, Features) else None


def _key(item: ScoreItem) -> tuple[Any, str]:
    return item.prompt, str(item.response)


def _packed(heads: Heads) -> dict[str, Floats]:
    return {"heads": heads.heads, "centre": heads.centre, "mean": heads.mean, "factor": heads.posterior.factor}
