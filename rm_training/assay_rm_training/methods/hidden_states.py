"""Hidden states of a frozen backbone, one vector per response, computed once and cached.

Covers: the vector that a scalar head would read, in float32; the cache in memory and, with a workspace, in the table
`embeddings`, so that later training and scoring on the same backbone needs no forward pass. Leaves out: the pass
(`assay_serving.engines.frozen_backbone`), heads (`probe.py`).
"""

from collections.abc import Sequence

import numpy as np
import torch

from assay import ids
from assay.models.chat.renderer import Renderer
from assay.models.devices import pick_device
from assay.models.heads import HEAD
from assay.models.loading import context_length, has_reward_head
from assay.models.spec import RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.store.database import Connection, registered
from assay.workspace import Workspace
from assay_rm_training.model.trainable_model import TrainableModel
from assay_serving.engines.frozen_backbone import (
    FeatureReader,
    FeatureResult,
    Features,
    Vector,
    backbone_version,
    load_backbone,
)
from assay_serving.scorer import ScoreItem

TOKEN_BUDGET = 4096  # positions of one forward pass, padding included
CHUNK = 512  # responses computed between two writes to the store


class FrozenBackbone:
    """A language model (or a reward model without its head) whose weights are not trained."""

    def __init__(self, base: str, *, max_length: int | None = None, device: str = "auto") -> None:
        """`max_length`: tokens of a conversation; None: the model's own. Raises NotFoundError for an unknown model."""
        model, tokenizer = load_backbone(base, dtype=torch.float32, device=pick_device(device))
        longest = context_length(model.config)
        limit = min(max_length or longest, longest)
        self.base, self.version = base, backbone_version(base)
        self.renderer = Renderer(tokenizer, max_length=limit)
        self.trainable = TrainableModel(model, tokenizer, not has_reward_head(base))
        spec = RewardModelSpec("scalar", base, self.renderer.template_hash, limit, self.version)
        self._reader = FeatureReader(model, self.renderer, spec, name=base, token_budget=TOKEN_BUDGET)
        self.name = f"features:{base}@{self.version}/{self.renderer.template_hash}/{limit}"

    @property
    def width(self) -> int:
        """H, the length of a vector."""
        return int(getattr(self.trainable.model, HEAD).in_features)

    def encode(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[FeatureResult]:
        """Features of each response, or a failure (bad_input, too_long), in order."""
        return self._reader.features(items, on_progress)


class FeatureCache:
    """A backbone's vectors by response, computed at most once per process, or per workspace where one is given."""

    def __init__(self, backbone: FrozenBackbone, workspace: Workspace | None = None) -> None:
        self.backbone = backbone
        self._workspace = workspace
        self._known: dict[str, FeatureResult] = {}

    def of(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[FeatureResult]:
        """As `FrozenBackbone.encode`. Computed vectors are stored every few hundred responses."""
        keys = [ids.response_id(ids.prompt_id(item.prompt), item.response) for item in items]
        missing = {key: item for key, item in zip(keys, items, strict=True) if key not in self._known}
        if missing and self._workspace is not None:
            with self._workspace.store.unit() as db:
                features = _load(db, self.backbone.name, list(missing))
            self._known.update(features)
            missing = {key: item for key, item in missing.items() if key not in features}
        on_progress(len(items) - len(missing))
        todo = list(missing.items())
        for start in range(0, len(todo), CHUNK):
            part = todo[start : start + CHUNK]
            computed = dict(
                zip((k for k, _ in part), self.backbone.encode([i for _, i in part], on_progress), strict=True)
            )
            self._known.update(computed)
            if self._workspace is not None:
                with self._workspace.store.unit() as db:
                    _save(db, self.backbone.name, computed)
        return [self._known[key] for key in keys]


def _load(db: Connection, encoder: str, refs: Sequence[str]) -> dict[str, Features]:
    table = db.execute(
        "SELECT ref, vector FROM embeddings JOIN (SELECT unnest($refs) AS ref) USING (ref) WHERE encoder = $encoder",
        {"refs": list(refs), "encoder": encoder},
    ).fetchall()
    return {ref: _unpacked(np.asarray(vector, dtype=np.float32)) for ref, vector in table}


def _save(db: Connection, encoder: str, features: dict[str, FeatureResult]) -> None:
    import pyarrow as pa

    rows = {key: _packed(value) for key, value in features.items() if isinstance(value, Features)}
    if not rows:
        return
    table = pa.table({"ref": list(rows), "vector": pa.array(list(rows.values()), type=pa.list_(pa.float32()))})
    with registered(db, "incoming", table):
        db.execute(
            """INSERT INTO embeddings (ref, encoder, vector) SELECT ref, $encoder, vector FROM incoming i
               WHERE NOT EXISTS (SELECT 1 FROM embeddings e WHERE e.ref = i.ref AND e.encoder = $encoder)""",
            {"encoder": encoder},
        )


def _packed(features: Features) -> list[float]:
    """As stored: the vector, then tokens, then 1 where truncated."""
    return [*features.vector.tolist(), float(features.tokens), float(features.truncated)]


def _unpacked(row: Vector) -> Features:
    return Features(row[:-2], int(row[-2]), bool(row[-1]))
