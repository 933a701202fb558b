"""Hidden states of a frozen backbone, one vector per response, computed once and cached.

Covers: the vector that a scalar head would read, in float32, with shared prefixes computed once where the model
allows (`assay.models.attention.packing`); the cache in memory and, with a workspace, in the table `embeddings`, so
that later training and scoring on the same backbone needs no forward pass. Leaves out: heads (`probe.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from assay import ids
from assay.errors import BadInputError
from assay.models.attention.packing import can_pack, forward, group_of
from assay.models.chat.renderer import Encoded, Renderer
from assay.models.devices import pick_device
from assay.models.heads import HEAD
from assay.models.loading import context_length, load_scalar_model, load_tokenizer, resolve_model
from assay.models.spec import weights_digest
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreFailure
from assay.store.database import Connection, registered
from assay.workspace import Workspace
from assay_rm_training.model.trainable_model import TrainableModel, has_reward_head
from assay_serving.engines.batching import plan_batches, plan_groups
from assay_serving.scorer import ScoreItem

Vector: TypeAlias = npt.NDArray[np.float32]
TOKEN_BUDGET = 4096  # positions of one forward pass, padding included
CHUNK = 512  # responses computed between two writes to the store


@dataclass(frozen=True, slots=True)
class Features:
    """The hidden state of one response. `vector`: [H]. `tokens`, `truncated`: of the conversation, as in a score."""

    vector: Vector
    tokens: int
    truncated: bool


FeatureResult: TypeAlias = Features | ScoreFailure


class FrozenBackbone:
    """A language model (or a reward model without its head) whose weights are not trained."""

    def __init__(self, base: str, *, max_length: int | None = None, device: str = "auto") -> None:
        """`max_length`: tokens of a conversation; None: the model's own. Raises NotFoundError for an unknown model."""
        where = pick_device(device)
        tokenizer = load_tokenizer(base)
        new_head = not has_reward_head(base)
        model = load_scalar_model(base, tokenizer, dtype=torch.float32, device=where, new_head=new_head)
        longest = context_length(model.config)
        limit = min(max_length or longest, longest)
        self.base = base
        self.renderer = Renderer(tokenizer, max_length=limit)
        self.trainable = TrainableModel(model, tokenizer, new_head)
        self.name = f"features:{base}@{_version(base)}/{self.renderer.template_hash}/{limit}"

    @property
    def width(self) -> int:
        """H, the length of a vector."""
        return int(getattr(self.trainable.model, HEAD).in_features)

    def encode(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[FeatureResult]:
        """Features of each response, or a failure (bad_input, too_long), in order."""
        results: list[FeatureResult | None] = [None] * len(items)
        rows: list[Encoded] = []
        places: list[int] = []
        for position, item in enumerate(items):
            try:
                row = self.renderer.encode(item.prompt, item.response)
            except BadInputError as error:
                results[position] = ScoreFailure("bad_input", str(error), self.base)
                continue
            if row.response_cut or not row.ids:
                message = f"the response alone does not fit in {self.renderer.max_length} tokens"
                results[position] = ScoreFailure("too_long", message, self.base)
                continue
            rows.append(row)
            places.append(position)
        on_progress(len(items) - len(places))
        for batch in self._plan(rows):
            numbers = [i for group in batch for i in group]
            for index, vector in zip(numbers, self._forward(batch, rows), strict=True):
                results[places[index]] = Features(vector, len(rows[index]), rows[index].truncated)
            on_progress(len(numbers))
        return [result for result in results if result is not None]

    def _plan(self, rows: Sequence[Encoded]) -> list[list[list[int]]]:
        """Forward passes: lists of groups of row indices."""
        if can_pack(self.trainable.model, max(map(len, rows), default=0)):
            return plan_groups([row.ids for row in rows], TOKEN_BUDGET)
        return [[[i] for i in batch] for batch in plan_batches([len(row) for row in rows], TOKEN_BUDGET)]

    def _forward(self, batch: list[list[int]], rows: Sequence[Encoded]) -> Vector:
        """[rows of the batch, H], in its order."""
        with torch.inference_mode():
            hidden = forward(self.trainable.model, [group_of([rows[i].ids for i in group]) for group in batch]).last()
            return np.asarray(hidden.float().cpu().numpy())


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


def _version(base: str) -> str:
    folder = Path(resolve_model(base))
    return weights_digest(folder) if folder.is_dir() else "hub"
