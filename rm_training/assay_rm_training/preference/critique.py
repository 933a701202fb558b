"""CLoud: a reward model that writes a critique of the response and then scores it, with one set of weights.

Source: arXiv 2408.11791 and zankner/CLoud. Three stages: fine-tuning on given critiques (`critique-sft`), critiques
of the training pairs by the model itself, joint training on them (`cloud`): -log s(r_c - r_r) + w CE of the critiques'
tokens, both sides' together (w 1.25 at 8B, 0.75 at 70B). Departures: `assay_serving.generative.critique`; the mean of
the cross-entropy is over the tokens of a pair, theirs over those of a batch.

Covers: both methods. The pairs are criticised once, before training, by the model that it starts from: given critiques
instead would be another distribution than the one it meets when it is used. Leaves out: scoring.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import Ge

from assay.data.conversation import prompt_turns, text_or_empty
from assay.data.json_lines import RowError
from assay.data.pairs import open_pairs, pair_of
from assay.data.row_files import read_rows
from assay.domain import PreferencePair, Prompt, Response, prompt_of
from assay.errors import BadInputError
from assay.models.attention.packing import TokenGroup, group_of
from assay.models.chat.renderer import Renderer
from assay.models.heads import apply_head
from assay.models.parallelism.strategy import SingleProcess
from assay.models.readings import Critique
from assay.models.spec import Kind
from assay.runs.progress_bar import Advance, silent
from assay.workspace import Workspace
from assay_policy_training.core.logprobs import vocabulary_head
from assay_rm_training.data.encoded_dataset import Collect, EncodedDataset, Tags, tags_of
from assay_rm_training.data.response_groups import encode_rows, is_empty
from assay_rm_training.data.response_labels import UnpairedResponse
from assay_rm_training.data.stored_dataset import with_items
from assay_rm_training.methods.response_logprobs import response_lengths, response_log_probs
from assay_rm_training.methods.task import BatchLoss
from assay_rm_training.model.packed_forward import GroupTask, tokens_of
from assay_rm_training.model.trainable_model import TrainableModel, attach, auxiliary_module, new_linear
from assay_rm_training.preference.method import PolicyMethod
from assay_rm_training.preference.unpaired import Sft
from assay_rm_training.training_config import TrainingConfig
from assay_serving.generative.critique import HEAD, CritiqueScorer, critique_question, question_hash, write_critiques
from assay_serving.scorer import UNLIMITED

REWARD = HEAD.removeprefix("assay_")
_SIDES = re.compile(r"CHOSEN:\s*(?P<chosen>.*?)\s*\|\|\s*REJECTED:\s*(?P<rejected>.*)", re.DOTALL)


class CritiquedPair(NamedTuple):
    """Both conversations, chosen first, up to their critiques before training, with them in it. `starts`: of the
    critiques."""

    group: TokenGroup
    starts: tuple[int, ...]
    weight: float
    tags: Tags | None = None


class CloudTask(GroupTask[CritiquedPair]):
    """The joint loss. Figure `critique_nll`: mean over the critiques' tokens."""

    def __init__(self, trainable: TrainableModel, config: TrainingConfig, critique_weight: float) -> None:
        super().__init__(trainable, config)
        self._weight = critique_weight

    def measure(self, trainable: TrainableModel, items: Sequence[CritiquedPair]) -> BatchLoss:
        groups = [item.group for item in items]
        hidden = self._forward(trainable, groups)
        chosen, rejected = apply_head(auxiliary_module(trainable, REWARD), hidden.last()).view(-1, 2).unbind(1)
        with self._forward.autocast(trainable):
            sums = response_log_probs(hidden, items, vocabulary_head(trainable.model))
        tokens = torch.tensor([sum(response_lengths(item)) for item in items], device=sums.device)
        nll, d = -sums.sum(dim=1) / tokens, chosen - rejected
        return BatchLoss(
            joint_loss(d, nll, self._weight),
            {"accuracy": (d > 0).sum(), "margin": d.detach().sum(), "critique_nll": nll.detach().sum()},
            tokens_of(groups),
            hidden.computed,
            hidden.padding,
            {"chosen": chosen.detach(), "rejected": rejected.detach()},
        )


def joint_loss(d: torch.Tensor, critique_nll: torch.Tensor, weight: float) -> torch.Tensor:
    """[n] of differences of rewards and mean cross-entropies of critiques [n]."""
    return -F.logsigmoid(d) + weight * critique_nll


@dataclass(frozen=True)
class Cloud(PolicyMethod):
    """A causal language model with a reward head behind its own critiques. `samples`, `temperature`: of the finished
    model; the training pairs get one critique a side at the same temperature."""

    name: ClassVar[str] = "cloud"
    kind: ClassVar[Kind] = "scalar"
    engine: ClassVar[type[CritiqueScorer]] = CritiqueScorer  # type: ignore[assignment]
    tags: ClassVar[tuple[str, ...]] = ("reward-model", "critique")

    critique_weight: Annotated[float, Ge(0)] = 1.25
    samples: int = 1
    temperature: float = 0.0
    max_new_tokens: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.critique  # raises for wrong settings

    @property
    def critique(self) -> Critique:
        return Critique(question_hash(), self.samples, self.temperature, self.max_new_tokens)

    def load(self, config: TrainingConfig, device: torch.device) -> TrainableModel:
        trainable = super().load(config, device)
        trainable.new_head = True
        return attach(trainable, REWARD, new_linear(trainable, 1))

    def read(self, workspace: Workspace | None, data: str) -> Collection[PreferencePair]:
        return open_pairs(workspace, data)

    def encode(
        self,
        rows: Collection[PreferencePair],
        renderer: Renderer,
        *,
        collect: Collect = list,
        advance: Advance = silent,
    ) -> EncodedDataset[CritiquedPair]:
        """Items without critiques, which `prepare` adds."""
        unlimited = Renderer(renderer.tokenizer, max_length=UNLIMITED)
        room = renderer.max_length - self.max_new_tokens - 1

        def encode(pair: PreferencePair) -> tuple[CritiquedPair, bool] | str:
            if not pair.weight > 0:
                return f"weight not positive: {pair.weight}"
            if empty := [
                name for name, side in (("chosen", pair.chosen), ("rejected", pair.rejected)) if is_empty(side)
            ]:
                return f"{empty[0]} is empty"
            try:
                sides = [
                    unlimited.encode(critique_question(pair.prompt, side)).ids for side in (pair.chosen, pair.rejected)
                ]
            except BadInputError as error:
                return f"cannot be rendered: {error}"
            if max(map(len, sides)) > room:
                return f"does not fit: {max(map(len, sides))} tokens and a critique of {self.max_new_tokens}"
            lengths = tuple(map(len, sides))
            return CritiquedPair(group_of(sides), lengths, pair.weight, tags_of(pair)), False

        return encode_rows(rows, encode, unit=self.unit, collect=collect, advance=advance)

    def prepare(
        self,
        trainable: TrainableModel,
        config: TrainingConfig,
        data: EncodedDataset[Any],
        eval_data: EncodedDataset[Any] | None,
        parallel: SingleProcess | None = None,
    ) -> tuple[EncodedDataset[Any], EncodedDataset[Any] | None]:
        """The model's own critiques of both sides, from the seed: a resumed run writes the same ones."""
        parallel = parallel or SingleProcess()
        criticised = self._criticised(trainable, config, data, parallel)
        return criticised, None if eval_data is None else self._criticised(trainable, config, eval_data, parallel)

    def _criticised(
        self,
        trainable: TrainableModel,
        config: TrainingConfig,
        data: EncodedDataset[CritiquedPair],
        parallel: SingleProcess,
    ) -> EncodedDataset[CritiquedPair]:
        """The first process writes alone; where weights are divided all gather them for that time."""
        with parallel.gathered_parameters(trainable.model):
            rows = self._written(trainable, config, data) if parallel.main else []
        items = (item._replace(group=group_of(rows[2 * n : 2 * n + 2])) for n, item in enumerate(data.items))
        return with_items(data, items, parallel)

    def _written(
        self, trainable: TrainableModel, config: TrainingConfig, data: EncodedDataset[CritiquedPair]
    ) -> list[np.ndarray[Any, np.dtype[np.int32]]]:
        """Tokens of the question about each side, and of its critique."""
        questions = [tuple(ids.tolist()) for item in data.items for ids in item.group.sequences()]
        once = Critique(question_hash(), 1, self.temperature, self.max_new_tokens)
        renderer = Renderer(trainable.tokenizer, max_length=UNLIMITED)
        trainable.model.train(False)
        written = write_critiques(trainable.model, renderer, questions, once, seed=config.seed)
        trainable.model.train()
        both = zip(questions, written, strict=True)
        return [np.array((*ids, *critiques[0]), dtype=np.int32) for ids, critiques in both]

    def task(self, trainable: TrainableModel, config: TrainingConfig) -> CloudTask:
        return CloudTask(trainable, config, self.critique_weight)

    def spec_fields(self, trainable: TrainableModel) -> dict[str, Any]:
        return {"critique": self.critique}


@dataclass(frozen=True)
class CritiqueSft(Sft):
    """Fine-tuning on given critiques, the first stage: a policy that answers the critique's question.

    Rows: {"prompt", "response", "critique"}; {"prompt", "chosen", "rejected", "rationale": "CHOSEN: ... || REJECTED:
    ..."}; the normalised form with one of `responses` and a `rationale`.
    """

    name: ClassVar[str] = "critique-sft"

    def read(self, workspace: Workspace | None, data: str) -> Collection[UnpairedResponse]:
        return read_rows(Path(data).expanduser(), _critiques, what="critiques")


def _critiques(record: dict[str, Any]) -> list[UnpairedResponse]:
    text = record.get("critique") or record.get("rationale")
    if not isinstance(text, str) or not text.strip():
        return []
    if record.get("chosen") is not None:
        sides = _SIDES.fullmatch(text.strip())
        if sides is None:
            return []
        pair = pair_of(record)
        listed = [(pair.chosen, sides["chosen"]), (pair.rejected, sides["rejected"])]
        return [_lesson(pair.prompt, side, critique) for side, critique in listed]
    responses = record.get("responses", [record.get("response")])
    if not isinstance(responses, list) or len(responses) != 1:
        raise RowError("a critique is of one response", field="responses")
    prompt = prompt_of(prompt_turns(record.get("prompt")))
    return [_lesson(prompt, text_or_empty(responses[0], "response"), text.strip())]


def _lesson(prompt: Prompt, response: Response, critique: str) -> UnpairedResponse:
    """An empty response has an empty critique, so that the row is left out and counted."""
    return UnpairedResponse(critique_question(prompt, response), "" if is_empty(response) else critique)
