"""The plan of a reward model's training: its step, as `training/loop.py` runs it, on fake tensors.

Covers: every method, with rows of its data or made-up ones of given lengths, what would take less memory. Leaves out:
cards and the plan's text (`assay.planning`).
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch

from assay.domain import Message, PreferencePair, Prompt
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.devices import pass_tokens
from assay.models.loading import context_length
from assay.models.memory_options import check_base_weights, check_optimiser
from assay.models.parallelism.strategy import SingleProcess
from assay.planning.cards import Card
from assay.planning.fake_ranks import fake_ranks
from assay.planning.fake_step import measured, planned
from assay.planning.made_up import text_of
from assay.planning.plan import MeasuredStep, MemoryPlan, check_format, make_plan
from assay.planning.request import PlanRequest
from assay.runs.progress_bar import Advance, silent
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.principle_rows import PrincipleRow
from assay_rm_training.data.response_labels import UnpairedResponse
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.methods.method import Method, PreparesData
from assay_rm_training.methods.principle import Principle
from assay_rm_training.methods.task import TrainingTask
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.preference.pairs import PairMethod
from assay_rm_training.preference.unpaired import UnpairedMethod
from assay_rm_training.training.loop import make_optimizer, train_step, update_weights
from assay_rm_training.training_config import TrainingConfig, less_memory


class _Loaded(NamedTuple):
    trainable: TrainableModel
    task: TrainingTask[Any]
    items: list[Any]  #: the costliest first
    costs: list[int]


@dataclass(frozen=True)
class PlannedRewardModel:
    """`rows`: None for made-up ones. `ranks`: processes that share the weights."""

    method: Method
    config: TrainingConfig
    card: Card
    request: PlanRequest
    rows: Collection[Any] | None
    ranks: int = 1
    setting: str = "--micro-batch-tokens"

    @contextmanager
    def _loaded(self, config: TrainingConfig) -> Iterator[tuple[_Loaded, SingleProcess]]:
        with planned(self.card.kernels), fake_ranks(self.ranks) as parallel:
            trainable = self.method.load(config, torch.device("cpu"))
            longest = context_length(trainable.model.config)
            renderer = Renderer(trainable.tokenizer, max_length=min(config.max_length or longest, longest))
            rows = made_up(self.method, renderer, self.request) if self.rows is None else self.rows
            data = self.method.encode(rows, renderer)
            parallel.prepare(trainable)
            task = self.method.task(trainable, config)
            items = sorted(data.items, key=lambda item: -task.cost(item))
            yield _Loaded(trainable, task, items, [task.cost(item) for item in items]), parallel

    @cached_property
    def sizes(self) -> tuple[int, int]:
        with self._loaded(self.config) as (loaded, _):
            smallest = loaded.costs[0]
            default = pass_tokens(torch.device("cpu"))
        batch_cost = smallest * -(-self.config.batch_size // self.ranks)
        return smallest, max(smallest, min(batch_cost, self.config.micro_batch_tokens or default))

    def measure(self, size: int) -> MeasuredStep:
        """The two largest passes that a batch can have on every process: gradients are there before the second."""
        config = replace(self.config, micro_batch_tokens=size)
        with self._loaded(config) as (loaded, parallel):
            trainable, task, items, costs = loaded
            one = self.ranks * max(1, size // costs[0])  # items of a pass of every process
            number = max(one, min(config.batch_size, 2 * one))
            items = [items[n % len(items)] for n in range(number)]
            if isinstance(self.method, PreparesData):
                items = list(_prepared(self.method, trainable, config, items, parallel))
            optimizer = make_optimizer(trainable, config)
            tokens = []

            def step() -> None:
                tokens.append(train_step(trainable, task, items, config, optimizer, parallel=parallel).tokens)
                update_weights(optimizer, list(trainable.trainable().values()), parallel, measured=config.update_norm)

            cost = measured([trainable.model], [optimizer], step)
            weights = sum(p.numel() * p.element_size() for p in trainable.model.parameters())
        rank_tokens = tokens[0] // self.ranks
        passes = -(-number // one)
        return MeasuredStep(cost, rank_tokens, passes, tokens[0] * config.batch_size // len(items), weights=weights)

    def changes(self) -> Iterable[list[tuple[str, "PlannedRewardModel"]]]:
        config, words = self.config, ""

        def changed(text: str, ranks: int = self.ranks, **settings: Any) -> tuple[str, "PlannedRewardModel"]:
            return f"{words} {text}".strip(), replace(self, config=replace(config, **settings), ranks=ranks)

        first = []
        if not config.gradient_checkpointing:
            first = [changed("--gradient-checkpointing", gradient_checkpointing=True)]
            words, config = first[0][0], first[0][1].config
        less = [changed(text, **settings) for text, settings in less_memory(config, self.ranks).items()]
        offloaded = changed("--offload-activations", offload_activations=True)
        yield [*first, *(each for each in less if each[1].config.lora == config.lora), offloaded]
        yield [each for each in less if each[1].config.lora != config.lora]
        if self.ranks == 1 and config.optimizer == "adamw" and config.base_weights != "4bit":
            yield [changed("--parallel fsdp on 8 cards", ranks=8)]


def plan_training(
    method: Method,
    config: TrainingConfig,
    rows: Collection[Any] | None,
    card: Card,
    request: PlanRequest,
    advance: Advance = silent,
) -> MemoryPlan:
    """`rows`: of the data, the longest of which decide; None: made-up ones. `advance`: as of `make_plan`.

    Raises BadInputError for a method whose rows cannot be made up, a number format that the card lacks, what several
    processes do not train.
    """
    check_format(card, config.dtype)
    division = request.division(config.parallel)
    check_optimiser(config.optimizer, division)
    check_base_weights(config.base_weights, True, division)
    if config.dtype == "auto":
        config = replace(config, dtype="bfloat16" if card.has_bfloat16 else "float32")
    training = PlannedRewardModel(method, config, card, request, rows, request.ranks)
    return make_plan(training, card, changes=request.changes, advance=advance)


def _prepared(
    method: PreparesData, trainable: TrainableModel, config: TrainingConfig, items: list[Any], parallel: SingleProcess
) -> Iterable[Any]:
    return method.prepare(trainable, config, EncodedDataset(items, {}, 0, ""), None, parallel)[0].items


def made_up(method: Method, renderer: Renderer, request: PlanRequest) -> list[Any]:
    """Rows of the method with a prompt and responses of about so many tokens."""

    text = partial(text_of, renderer.tokenizer)

    def row(number: int) -> Any:
        prompt: Prompt = (Message("user", text(" the", request.prompt_length) + f" {number}"),)
        good, bad = text(" yes", request.response_tokens), text(" no", request.response_tokens)
        if isinstance(method, BradleyTerry | PairMethod):
            return PreferencePair(prompt, good, bad)
        if isinstance(method, UnpairedMethod):
            return UnpairedResponse(prompt, good, number % 2 == 0)
        if isinstance(method, Principle):
            return PrincipleRow(prompt, good, "clarity", number % 2 == 0)
        raise BadInputError("rows of this method cannot be made up: name data", field="--data")

    return [row(number) for number in range(16)]
