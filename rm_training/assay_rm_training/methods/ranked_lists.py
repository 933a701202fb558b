"""Training on ranked lists: Plackett-Luce over all responses of a prompt in one pass, or all their pairs.

Covers: the method `lists` and its task. Leaves out: the losses (`objectives/lists.py`), reading lists and building
them from comparisons (`assay_rm_training.data.ranked_lists`).

A scorer that scores each response once, however many comparisons it is in. Leaves out: scoring, storing scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import torch

from assay.domain import Comparison, PreferencePair
from assay.errors import BadInputError
from assay.models.attention.packing import TokenGroup
from assay.models.chat.renderer import Renderer
from assay.models.spec import Kind
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreResult
from assay.workspace import Workspace
from assay_rm_training.data.encoded_dataset import Collect, EncodedDataset
from assay_rm_training.data.ranked_lists import RankedList, load_ranked_lists
from assay_rm_training.data.response_groups import encode_responses, encode_rows
from assay_rm_training.evaluation.pairs import PairEvaluation, evaluate
from assay_rm_training.methods.method import MethodFields
from assay_rm_training.methods.task import BatchLoss
from assay_rm_training.model.packed_forward import GroupTask, rewards_of, tokens_of
from assay_rm_training.model.trainable_model import TrainableModel, load_trainable
from assay_rm_training.objectives import lists
from assay_rm_training.training_config import TrainingConfig
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.scorer import ModelInfo, ScoreItem, Scorer

ListLoss = Literal["plackett_luce", "pairs"]


class EncodedList(NamedTuple):
    """Conversations of one prompt, and the ranks of their responses, 1 for the best."""

    group: TokenGroup
    ranks: tuple[int, ...]
    weight: float


class ListTask(GroupTask[EncodedList]):
    """Losses of ranked lists. Figures of a list: `accuracy`, the share of its ordered pairs that are ranked right;
    `top`, whether the highest reward is a best response's."""

    def __init__(self, trainable: TrainableModel, config: TrainingConfig, method: "RankedLists") -> None:
        super().__init__(trainable, config)
        self._loss = lists.plackett_luce if method.loss == "plackett_luce" else lists.all_pairs
        self._centring = method.centring

    def measure(self, trainable: TrainableModel, items: Sequence[EncodedList]) -> BatchLoss:
        groups = [item.group for item in items]
        hidden = self._forward(trainable, groups)
        lengths = [len(item.ranks) for item in items]
        each = torch.split(rewards_of(trainable, hidden), lengths)
        losses = []
        accuracy, top = 0.0, 0.0
        for item, rewards in zip(items, each, strict=True):
            loss = self._loss(rewards, item.ranks)
            losses.append(loss + self._centring * (2 * rewards.mean()) ** 2 if self._centring else loss)
            values = rewards.detach().tolist()
            pairs = lists.ordered_pairs(item.ranks)
            accuracy += sum(values[i] > values[j] for i, j in pairs) / len(pairs)
            top += item.ranks[values.index(max(values))] == min(item.ranks)
        figures = {"accuracy": torch.tensor(accuracy), "top": torch.tensor(top)}
        return BatchLoss(torch.stack(losses), figures, tokens_of(groups), hidden.computed, hidden.padding)


@dataclass(frozen=True)
class RankedLists(MethodFields):
    """A stock sequence classifier of one label, trained on ranked lists.

    `category`: only its lists. Of demonstrations before samples of a policy, the likelihood is that of maximum-entropy
    inverse reinforcement learning, whose partition function the list stands for: the shadow reward of each category of
    DR-IRL (arXiv 2503.18991; its policy, beta and alternation are not here).

    `loss`: `plackett_luce`, the likelihood of the ranking (equal ranks: of any order among them), or `pairs`, mean
    Bradley-Terry over all ordered pairs of the list. `centring`: weight of (2 * mean reward of the list)^2, which is
    (c + r)^2 for two.
    """

    name: ClassVar[str] = "lists"
    kind: ClassVar[Kind] = "scalar"
    engine: ClassVar[type[TransformersScorer]] = TransformersScorer
    tags: ClassVar[tuple[str, ...]] = ("reward-model", "plackett-luce")
    unit: ClassVar[str] = "lists"

    loss: ListLoss = "plackett_luce"
    centring: float = 0.01
    category: str | None = None

    def __post_init__(self) -> None:
        if self.loss not in get_args(ListLoss):
            raise BadInputError(f"unknown loss {self.loss!r}; one of {', '.join(get_args(ListLoss))}", field="loss")
        if not self.centring >= 0:
            raise BadInputError(f"must not be negative, but is {self.centring}", field="centring")

    def load(self, config: TrainingConfig, device: torch.device) -> TrainableModel:
        return load_trainable(config, device)

    def read(self, workspace: Workspace | None, data: str) -> list[RankedList]:
        rows = load_ranked_lists(workspace, data)
        if self.category is None:
            return rows
        if not (selected := [row for row in rows if row.category == self.category]):
            raise BadInputError(f"holds no list of category {self.category!r}", file=data, field="category")
        return selected

    def encode(
        self,
        rows: Sequence[RankedList],
        renderer: Renderer,
        *,
        collect: Collect = list,
        advance: Advance = silent,
    ) -> EncodedDataset[EncodedList]:
        return encode_rows(
            rows,
            lambda row: _encode(row, renderer),
            unit=self.unit,
            collect=collect,
            advance=advance,
        )

    def task(self, trainable: TrainableModel, config: TrainingConfig) -> ListTask:
        return ListTask(trainable, config, self)

    def responses(self, rows: Sequence[RankedList]) -> list[ScoreItem]:
        return [ScoreItem(row.prompt, response) for row in rows for response in row.responses]

    def evaluate(
        self, scorer: Scorer, rows: Sequence[RankedList], *, seed: int, advance: Advance = silent
    ) -> PairEvaluation:
        """On every ordered pair of the lists; intervals are by prompt."""
        return evaluate(MemoisedScorer(scorer), pairs_of(rows), seed=seed, advance=advance)

    def card_rows(self) -> list[tuple[str, str]]:
        return [("loss", f"{self.loss} of ranked lists, centring {self.centring:g}")]


def pairs_of(rows: Sequence[RankedList]) -> list[PreferencePair]:
    """Every ordered pair of every list; equal ranks give none."""
    pairs = []
    for row in rows:
        for i, j in lists.ordered_pairs(row.ranks):
            better, worse = row.responses[i], row.responses[j]
            comparison = Comparison.of(row.prompt, better, worse)[0].id
            pairs.append(
                PreferencePair(row.prompt, better, worse, comparison, source=row.source, category=row.category)
            )
    return pairs


def _encode(row: RankedList, renderer: Renderer) -> tuple[EncodedList, bool] | str:
    if not row.weight > 0:
        return f"weight not positive: {row.weight}"
    if not lists.stages(row.ranks):
        return "all responses are tied"
    equals = max((row.ranks.count(rank) for rank in row.ranks if rank != max(row.ranks)), default=0)
    if equals > lists.MOST_EQUAL:
        return f"too many responses of one rank: {equals}, at most {lists.MOST_EQUAL} above the last"
    encoded = encode_responses(renderer, row.prompt, row.responses)
    return (
        encoded if isinstance(encoded, str) else (EncodedList(encoded.group, row.ranks, row.weight), encoded.truncated)
    )


class MemoisedScorer:
    """Wraps another scorer for one evaluation."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._known: dict[ScoreItem, ScoreResult] = {}

    @property
    def info(self) -> ModelInfo:
        return self._scorer.info

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """As the wrapped scorer; progress counts responses not scored before."""
        new = list(dict.fromkeys(item for item in items if item not in self._known))
        if new:
            self._known.update(zip(new, self._scorer.score(new, on_progress), strict=True))
        return [self._known[item] for item in items]
