"""Process reward models: one logit per labelled step from the stock head.

Covers: the method `steps`, its task and its evaluation. Leaves out: the token a step is read at
(`assay.models.chat.step_reader`), the loss (`objectives/steps.py`), labels (`assay_rm_training.data.response_labels`),
scoring (`assay_serving.engines.process_reward`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch

from assay.errors import BadInputError
from assay.ids import prompt_id
from assay.models.attention.packing import TokenGroup, group_of
from assay.models.chat.renderer import Renderer
from assay.models.chat.step_reader import read_steps, read_turns
from assay.models.heads import HEAD, apply_head
from assay.models.spec import Kind, Stepwise
from assay.runs.coverage import Coverage
from assay.runs.progress_bar import Advance, silent
from assay.score import Score
from assay.statistics.intervals import Interval, interval_text, share_interval
from assay.workspace import Workspace
from assay_rm_training.data.encoded_dataset import Collect, EncodedDataset
from assay_rm_training.data.response_groups import encode_rows
from assay_rm_training.data.response_labels import SteppedResponse, load_steps
from assay_rm_training.evaluation.report import EvaluationReport
from assay_rm_training.methods.method import MethodFields
from assay_rm_training.methods.task import BatchLoss
from assay_rm_training.model.packed_forward import GroupTask, tokens_of
from assay_rm_training.model.trainable_model import TrainableModel, load_trainable
from assay_rm_training.objectives.responses import step_loss
from assay_rm_training.training_config import TrainingConfig
from assay_serving.engines.process_reward import StepScorer
from assay_serving.scorer import ScoreItem, Scorer


class EncodedSteps(NamedTuple):
    """One conversation; `places`: the token each step is read at; `labels` [K], nan where missing."""

    group: TokenGroup
    places: tuple[int, ...]
    labels: tuple[float, ...]
    weight: float  #: number of labelled steps, so that every step of a batch counts equally


class ProcessRewardTask(GroupTask[EncodedSteps]):
    """Mean binary cross-entropy of a response's labelled steps. Figure `accuracy`: its share of steps classified
    correctly at 1/2 (labels of exactly 1/2 count as wrong)."""

    def measure(self, trainable: TrainableModel, items: Sequence[EncodedSteps]) -> BatchLoss:
        groups = [item.group for item in items]
        hidden = self._forward(trainable, groups)
        states = torch.cat([hidden.branch_states(n)[list(item.places)] for n, item in enumerate(items)])
        logits = apply_head(getattr(trainable.model, HEAD), states)
        labels = torch.tensor([label for item in items for label in item.labels], device=logits.device)
        labelled = ~labels.isnan()
        losses = step_loss(logits, labels, labelled)
        right = ((logits.detach() > 0) == (labels > 0.5)) & labelled & (labels != 0.5)
        each, shares, numbers = (_per_response(values, items) for values in (losses, right, labelled))
        means = torch.stack([loss.sum() / n.sum() for loss, n in zip(each, numbers, strict=True)])
        accuracy = torch.stack([share.sum() / n.sum() for share, n in zip(shares, numbers, strict=True)]).sum()
        return BatchLoss(means, {"accuracy": accuracy}, tokens_of(groups), hidden.computed, hidden.padding)


def _per_response(values: torch.Tensor, items: Sequence[EncodedSteps]) -> tuple[torch.Tensor, ...]:
    """Values [all steps] as one tensor per response."""
    return torch.split(values, [len(item.places) for item in items])


@dataclass(frozen=True)
class ProcessRewardEvaluation(EvaluationReport):
    """Held-out steps: `accuracy` of all labelled steps at 1/2, `base_rate` of right ones, and of responses with a wrong
    step, the share whose first labelled wrong step is found exactly (`first_error`)."""

    responses: int
    failures: int
    steps: int
    accuracy: float
    accuracy_interval: Interval | None
    base_rate: float
    with_error: int
    first_error: float | None
    items: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    @property
    def coverage(self) -> Coverage:
        return Coverage(
            self.responses,
            self.responses - self.failures,
            "responses",
            {"not scored": self.failures} if self.failures else {},
        )

    def item_records(self) -> tuple[dict[str, Any], ...]:
        return self.items

    def card_rows(self) -> list[tuple[str, str]]:
        first_error = "no response has a wrong step" if self.first_error is None else f"{self.first_error:.4f}"
        return [
            (
                "accuracy of steps",
                f"{self.accuracy:.4f} (95 %: {interval_text(self.accuracy_interval)}) of {self.steps}",
            ),
            *self.warning_rows(),
            ("calling every step right", f"{self.base_rate:.4f}"),
            ("first wrong step found", f"{first_error} of {self.with_error} responses"),
        ]


@dataclass(frozen=True)
class ProcessRewardMethod(MethodFields):
    """A process reward model in a stock sequence classifier of one label. `reading`: how a response is split into steps
    and their rewards are aggregated."""

    name: ClassVar[str] = "steps"
    kind: ClassVar[Kind] = "scalar"
    engine: ClassVar[type[StepScorer]] = StepScorer
    tags: ClassVar[tuple[str, ...]] = ("reward-model", "process-reward-model")
    unit: ClassVar[str] = "responses"

    reading: Stepwise = field(default_factory=Stepwise)

    @classmethod
    def read_fields(cls, payload: Mapping[str, Any]) -> dict[str, Any]:
        return {**payload, "reading": Stepwise(**payload["reading"])}

    def load(self, config: TrainingConfig, device: torch.device) -> TrainableModel:
        return load_trainable(config, device)

    def read(self, workspace: Workspace | None, data: str) -> Collection[SteppedResponse]:
        return load_steps(data)

    def encode(
        self,
        rows: Collection[SteppedResponse],
        renderer: Renderer,
        *,
        collect: Collect = list,
        advance: Advance = silent,
    ) -> EncodedDataset[EncodedSteps]:
        return encode_rows(
            rows, lambda row: self._encode(row, renderer), unit=self.unit, collect=collect, advance=advance
        )

    def _encode(self, row: SteppedResponse, renderer: Renderer) -> tuple[EncodedSteps, bool] | str:
        if not row.turns and any(self.reading.separator in step for step in row.steps):
            return f"a step holds the separator {self.reading.separator!r}, at which engines would split it"
        try:
            if row.turns:
                read = read_turns(renderer, row.prompt, row.turns)
            else:
                read = read_steps(renderer, row.prompt, row.steps, separator=self.reading.separator)
        except BadInputError as error:
            return f"cannot be read step by step: {error}"
        labels = tuple(float("nan") if label is None else label for label in row.labels)
        weight = row.weight * sum(label == label for label in labels)
        return EncodedSteps(group_of([read.ids]), read.places, labels, weight), read.truncated

    def task(self, trainable: TrainableModel, config: TrainingConfig) -> ProcessRewardTask:
        return ProcessRewardTask(trainable, config)

    def spec_fields(self, trainable: TrainableModel) -> dict[str, Any]:
        return {"stepwise": self.reading}

    def responses(self, rows: Collection[SteppedResponse]) -> list[ScoreItem]:
        return [ScoreItem(row.prompt, row.turns or self.reading.separator.join(row.steps)) for row in rows]

    def evaluate(
        self, scorer: Scorer, rows: Collection[SteppedResponse], *, seed: int, advance: Advance = silent
    ) -> ProcessRewardEvaluation:
        """Of every labelled step, at P = 1/2; soft labels are rounded."""
        items = [
            ScoreItem(row.prompt, row.turns) if row.turns else ScoreItem.of_steps(row.prompt, row.steps) for row in rows
        ]
        results = scorer.score(items, advance)
        scored = [(row, score.steps) for row, score in zip(rows, results, strict=True) if isinstance(score, Score)]
        if not scored:
            raise BadInputError(f"none of the {len(rows)} responses could be scored")
        right = [
            (reward > 0) == (label > 0.5)
            for row, scores in scored
            for label, reward in zip(row.labels, scores, strict=True)
            if label is not None
        ]
        groups = [prompt_id(row.prompt) for row, _ in scored for label in row.labels if label is not None]
        labels = [label > 0.5 for row, _ in scored for label in row.labels if label is not None]
        errors = []
        for row, scores in scored:
            labelled = [(n, label) for n, label in enumerate(row.labels) if label is not None]
            first = next((n for n, label in labelled if label <= 0.5), None)
            if first is not None:
                errors.append(first == next((n for n, _ in labelled if scores[n] <= 0), None))
        return ProcessRewardEvaluation(
            scorer.info,
            len(rows),
            len(rows) - len(scored),
            len(right),
            sum(right) / len(right),
            share_interval(right, groups),
            sum(labels) / len(labels),
            len(errors),
            sum(errors) / len(errors) if errors else None,
            tuple({"rewards": list(scores), "labels": list(row.labels)} for row, scores in scored),
        )

    def card_rows(self) -> list[tuple[str, str]]:
        reading = self.reading
        return [
            ("loss", "binary cross-entropy of each labelled step"),
            ("reading", f"joined by {reading.separator!r}; a response's reward: {reading.aggregation} of its steps"),
        ]
