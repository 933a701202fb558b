"""Principle reward models (RLBFF's Flexible Principles ScalarRM): cross-entropy of a one-token answer.

Covers: the method `principle` and its task: cross-entropy of the label token over the full vocabulary at the answer's
position; only those positions go through the language head. Leaves out: the question
(`assay.models.chat.principle_renderer`), metrics (`evaluation/principle.py`).

Formulas: arXiv 2509.21319 as read in notes and on the released model's card: the loss is next-token cross-entropy with
all other positions masked, the reward log P(Yes) - log P(No).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from assay.errors import BadInputError
from assay.models.attention.packing import can_pack, forward
from assay.models.chat.principle_renderer import QUESTION, PrincipleRenderer
from assay.models.chat.renderer import Renderer
from assay.models.devices import pick_dtype, to_device
from assay.models.frozen_weights import loading_device
from assay.models.heads import answer_logits, log_odds
from assay.models.loading import has_reward_head, load_causal_lm, load_tokenizer
from assay.models.spec import Kind
from assay.models.token_losses import token_losses
from assay.runs.progress_bar import Advance, silent
from assay.workspace import Workspace
from assay_rm_training.data.encoded_dataset import Collect, EncodedDataset
from assay_rm_training.data.principle_dataset import JudgedResponse, encode_judgments
from assay_rm_training.data.principle_rows import PrincipleRow, load_rows_or_file
from assay_rm_training.evaluation.principle import PrincipleEvaluation, evaluate_rows
from assay_rm_training.evaluation.principle_split import base_rates, divide, with_cells
from assay_rm_training.methods.method import MethodFields
from assay_rm_training.methods.task import BatchLoss
from assay_rm_training.model.trainable_model import TrainableModel, prepare
from assay_rm_training.training_config import TrainingConfig
from assay_serving.engines.principle import PrincipleScorer, question_fields
from assay_serving.scorer import UNLIMITED, ScoreItem, Scorer


class PrincipleTask:
    """Losses of judged responses: an item's loss is the weighted mean over its questions, its weight their sum, so that
    the batch's loss is the weighted mean over questions however they are grouped."""

    def __init__(self, trainable: TrainableModel, config: TrainingConfig, renderer: PrincipleRenderer) -> None:
        self.answers = renderer.answers
        self._dtype = pick_dtype(trainable.model.device, config.dtype)
        self._share = config.share_prefix and can_pack(trainable.model, renderer.max_length)

    def cost(self, item: JudgedResponse) -> int:
        return item.group.computed if self._share else len(item.labels) * item.group.longest

    def weight(self, item: JudgedResponse) -> float:
        return sum(item.weights)

    def measure(self, trainable: TrainableModel, items: Sequence[JudgedResponse]) -> BatchLoss:
        device = trainable.model.device
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._dtype == torch.bfloat16):
            passed = forward(trainable.model, [item.group for item in items])
        labels = to_device(torch.tensor([label for item in items for label in item.labels]), device)
        owners = to_device(torch.tensor([n for n, item in enumerate(items) for _ in item.labels]), device)
        shares = to_device(torch.tensor([w / sum(item.weights) for item in items for w in item.weights]), device)

        def over_items(values: torch.Tensor) -> torch.Tensor:  # [questions] to the weighted mean of each item [n]
            return torch.zeros(len(items), device=device).index_add(0, owners, values * shares)

        states = passed.last()
        losses = over_items(token_losses(partial(answer_logits, trainable.model), states, labels)[0])
        reward = log_odds(trainable.model, states.detach(), yes=self.answers.yes, no=self.answers.no).detach()
        toward = torch.where(labels == self.answers.yes, reward, -reward)
        figures = {
            "accuracy": toward > 0,
            "nll": -F.logsigmoid(toward),
            "margin": toward,
            "said_yes": torch.sigmoid(reward),
            "labelled_yes": labels == self.answers.yes,
        }
        return BatchLoss(
            losses,
            {name: over_items(values.float()).sum() for name, values in figures.items()},
            sum(item.group.tokens for item in items),
            passed.computed,
            passed.padding,
        )


@dataclass(frozen=True)
class Principle(MethodFields):
    """A language model trained to answer Yes or No. `holdout_prompts`, `holdout_principles`: shares held out of the
    data where no held-out data is given; both 0: none. `together`: questions about one response per item, their prefix
    computed once; 1 makes every judgment an item. `question`: the wording; the default unless the base was trained with
    another."""

    name: ClassVar[str] = "principle"
    kind: ClassVar[Kind] = "principle"
    engine: ClassVar[type[PrincipleScorer]] = PrincipleScorer
    tags: ClassVar[tuple[str, ...]] = ("reward-model", "principle")
    unit: ClassVar[str] = "responses"

    holdout_prompts: float = 0.1
    holdout_principles: float = 0.1
    holdout_seed: int = 0
    together: int = 8
    question: str = QUESTION

    def __post_init__(self) -> None:
        if self.together < 1:
            raise BadInputError(f"must be at least 1, not {self.together}", field="together")
        for name in ("holdout_prompts", "holdout_principles"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInputError(f"is a share from 0 to below 1, not {getattr(self, name)}", field=name)

    def load(self, config: TrainingConfig, device: torch.device) -> TrainableModel:
        if has_reward_head(config.base):
            raise BadInputError(
                f"{config.base} is a scalar reward model; a principle model starts from a language model"
            )
        tokenizer = load_tokenizer(config.base)
        device = loading_device(config.base_weights, device)
        model = load_causal_lm(config.base, tokenizer, dtype=torch.float32, device=device)
        self._renderer(tokenizer)  # fail before encoding
        return prepare(TrainableModel(model, tokenizer, new_head=False, heads=()), config, language_model=True)

    def read(self, workspace: Workspace | None, data: str) -> list[PrincipleRow]:
        return load_rows_or_file(workspace, data)

    @property
    def holds_out(self) -> bool:
        """Whether some of the rows are held out where no held-out data is given."""
        return self.holdout_prompts > 0 or self.holdout_principles > 0

    def divide(
        self, rows: Sequence[PrincipleRow], eval_rows: Sequence[PrincipleRow] | None
    ) -> tuple[Sequence[PrincipleRow], Sequence[PrincipleRow] | None]:
        """Training rows, and held-out rows with their cell and their principle's base rate in training."""
        if eval_rows is None:
            if not self.holds_out:
                return rows, None
            rows, eval_rows = divide(
                rows, prompts=self.holdout_prompts, principles=self.holdout_principles, seed=self.holdout_seed
            )
        return rows, with_cells(rows, eval_rows)

    def describe(self, rows: Sequence[PrincipleRow]) -> dict[str, Any]:
        """Share of the training rows that fulfil their principle, overall and per principle."""
        rates = base_rates(rows)
        return {
            "rows": len(rows),
            "yes_share": sum(row.fulfilled for row in rows) / max(len(rows), 1),
            "principles": [asdict(rate) for rate in rates],
        }

    def encode(
        self,
        rows: Sequence[PrincipleRow],
        renderer: Renderer,
        *,
        collect: Collect = list,
        advance: Advance = silent,
    ) -> EncodedDataset[JudgedResponse]:
        return encode_judgments(
            rows, PrincipleRenderer(renderer, self.question), together=self.together, collect=collect, advance=advance
        )

    def task(self, trainable: TrainableModel, config: TrainingConfig) -> PrincipleTask:
        return PrincipleTask(trainable, config, self._renderer(trainable.tokenizer, config.max_length or UNLIMITED))

    def spec_fields(self, trainable: TrainableModel) -> dict[str, Any]:
        return question_fields(self._renderer(trainable.tokenizer))

    def responses(self, rows: Sequence[PrincipleRow]) -> list[ScoreItem]:
        return [ScoreItem(row.prompt, row.response, row.principle) for row in rows]

    def evaluate(
        self, scorer: Scorer, rows: Sequence[PrincipleRow], *, seed: int, advance: Advance = silent
    ) -> PrincipleEvaluation:
        return evaluate_rows(scorer, rows, seed=seed, advance=advance)

    def card_rows(self) -> list[tuple[str, str]]:
        return [
            ("loss", "cross-entropy of the answer's one token (Yes or No) under the whole vocabulary"),
            ("question", f"`{self.question}`".replace("\n", "\\n")),
            ("questions about one response", f"up to {self.together} in one item"),
        ]

    def _renderer(self, tokenizer: Any, max_length: int = UNLIMITED) -> PrincipleRenderer:
        return PrincipleRenderer(Renderer(tokenizer, max_length=max_length), self.question)
