"""Scores of many responses on shards (`assay.compute`): by processes of this machine or a cluster, with exact resume.

Leaves out: one response at a time, and servers, which batch by themselves.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assay.compute.executor import Executor
from assay.compute.job import JobSpec
from assay.compute.stage import in_order, map_stage, open_stage
from assay.conversation.message import prompt_of, response_form, response_of
from assay.errors import BadInputError
from assay.models.readings import implicit_parts
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreResult, score_from_dict
from assay.workspace import Workspace
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import Loader, load_scorer
from assay_serving.model_reference import is_description, is_url, known_spec
from assay_serving.scorer import ModelInfo, ScoreItem

if TYPE_CHECKING:
    import pyarrow as pa

SHARD = 2_000  #: responses
_INFO = b"assay.model"


class ItemScoring:
    """Job: the score of each item, as JSON of `assay.score`. `model`: of `ModelConfig.to_dict`, resolved."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._model = ModelConfig.from_dict(model)

    def open(self) -> None:
        self._scorer = load_scorer(self._model)

    def map(self, shard: "pa.Table") -> "pa.Table":
        import pyarrow as pa

        results = self._scorer.score([_item(text) for text in shard.column("item").to_pylist()])
        table = pa.table({"score": pa.array([json.dumps(result.to_dict()) for result in results], pa.string())})
        return table.replace_schema_metadata({_INFO: json.dumps(self._scorer.info.to_dict())})


class ShardedScorer:
    """A `Scorer` whose model is loaded by the executor's workers. `info` is the model's own once it has scored."""

    def __init__(self, workspace: Workspace, config: ModelConfig, executor: Executor) -> None:
        """Raises BadInputError for the URL of a server, NotFoundError for an unknown model."""
        if is_url(config.reference):
            raise BadInputError("a reward server scores where it is; --on is for models that are loaded")
        self._workspace, self._executor = workspace, executor
        self._config = Loader(workspace.root).resolve(config)
        self.spec = known_spec(self._config.reference)
        kind, version = (self.spec.kind, self.spec.version) if self.spec is not None else (config.kind or "scalar", "")
        self.info = ModelInfo(self._config.name, version, kind, stepwise=self._reads_steps(kind))

    def _reads_steps(self, kind: str) -> bool:
        """Whether it is a process reward model, which is asked in another way."""
        from assay.models.adapters.kind import adapter_of

        if self.spec is not None:
            return self.spec.stepwise is not None
        reference = self._config.reference
        if kind != "scalar" or is_description(reference) or implicit_parts(reference) is not None:
            return False
        published = adapter_of(reference, self._config.adapter)
        return published is not None and published[1].stepwise is not None

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """As `Scorer.score`; interrupted, the same items resume where they stopped."""
        import pyarrow.parquet as pq
        import xxhash

        content = xxhash.xxh3_128()
        for item in items:
            content.update(_form(item).encode())
        reads = f"{self.info.version} {self.spec.calibration.id if self.spec and self.spec.calibration else ''}"
        arguments, gpus = {"model": self._config.to_dict()}, float(self._config.device != "cpu")
        spec = JobSpec(f"{__name__}:{ItemScoring.__name__}", arguments, reads, gpus=gpus)
        results: list[ScoreResult] = []
        question = {"items": content.hexdigest()}
        with open_stage(self._workspace, "score", spec, question, lambda: _shards(items)) as stage:
            for unit in in_order(map_stage(stage, self._executor, advance=on_progress)):
                table = pq.read_table(unit.result)
                self.info = ModelInfo.from_dict(json.loads(table.schema.metadata[_INFO]))
                results += [score_from_dict(json.loads(text)) for text in table.column("score").to_pylist()]
        return results


def shared_workspace(workspace: Workspace | None) -> Workspace:
    """Raises BadInputError for none."""
    if workspace is None:
        raise BadInputError("--on keeps shards in a workspace, and there is none here; make one with: assay init")
    return workspace


def _shards(items: Sequence[ScoreItem]) -> "Iterator[pa.Table]":
    import pyarrow as pa

    for start in range(0, len(items), SHARD):
        yield pa.table({"item": pa.array([_form(item) for item in items[start : start + SHARD]], pa.string())})


def _form(item: ScoreItem) -> str:
    """JSON of an item; rendered ones are a trainer's, which asks a server."""
    assert item.rendered is None
    prompt, response = [message.to_dict() for message in item.prompt], response_form(item.response)
    return json.dumps([prompt, response, item.principle, item.label, item.references, item.steps])


def _item(text: str) -> ScoreItem:
    prompt, response, principle, label, references, steps = json.loads(text)
    texts, cut = tuple(references), None if steps is None else tuple(steps)
    return ScoreItem(prompt_of(prompt), response_of(response), principle, label=label, references=texts, steps=cut)
