"""Supervised fine-tuning of a generative reward model on rationales with their verdicts.

Covers: the method `generative-sft`, both orders of a pair in one item (so in one batch, arXiv 2505.10320),
cross-entropy of the answer's tokens, with logits computed in chunks; answers that call tools, whose results are read
and not trained on. Leaves out: rows (`judged_rows`), reinforcement
(`rl_run`), evaluation's figures (`evaluation`).

The batch's loss is the mean over its answer tokens: an item's loss is the mean over its tokens, weighted by their
number.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from assay import ids
from assay.domain import Comparison, Prompt
from assay.errors import BadInputError
from assay.models.attention.packing import TokenGroup, forward
from assay.models.chat.renderer import Renderer
from assay.models.devices import pick_dtype
from assay.models.frozen_weights import loading_device
from assay.models.loading import load_causal_lm, load_tokenizer
from assay.models.spec import Judging, Kind
from assay.models.token_losses import token_losses
from assay.models.unread_weights import reads_later
from assay.runs.progress_bar import Advance, silent
from assay.workspace import Workspace
from assay_policy_training.core.logprobs import check_head, vocabulary_head
from assay_rm_training.data.encoded_dataset import Collect, EncodedDataset
from assay_rm_training.data.response_groups import encode_rows
from assay_rm_training.generative.evaluation import JudgeEvaluation, evaluate_judge
from assay_rm_training.generative.judged_rows import REASONS, JudgedRow, content_free_rows, read_judged
from assay_rm_training.methods.method import MethodFields
from assay_rm_training.methods.task import BatchLoss
from assay_rm_training.model.trainable_model import TrainableModel, prepare
from assay_rm_training.training_config import TrainingConfig
from assay_serving.generative.reader import VerdictReader
from assay_serving.generative.templates import JudgeFormat, own_format
from assay_serving.scorer import ScoreItem, Scorer
from assay_serving.tools.kind import absolute_reference
from assay_serving.tools.toolbox import toolbox
from assay_serving.tools.turns import between_turns, offered

Tokens = npt.NDArray[np.int32]


class EncodedOrder(NamedTuple):
    """One question with its answer. `trained`: places of the answer's tokens that the judge itself writes, all but the
    results of tools; `judgement`: the place of the judgement token among them."""

    question: Tokens
    answer: Tokens
    trained: Tokens
    judgement: int


class VerdictItem(NamedTuple):
    """A judgment in all orders of its responses."""

    orders: tuple[EncodedOrder, ...]

    @property
    def answer_tokens(self) -> int:
        """Tokens that are trained on."""
        return sum(len(one.trained) for one in self.orders)


class VerdictTask:
    """Cross-entropy of answers. `verdict_weight`: of the judgement token; others have 1."""

    def __init__(self, trainable: TrainableModel, config: TrainingConfig, verdict_weight: float) -> None:
        self._weight = verdict_weight
        self._dtype = pick_dtype(trainable.model.device, config.dtype)

    def cost(self, item: VerdictItem) -> int:
        return sum(len(one.question) + len(one.answer) for one in item.orders)

    def weight(self, item: VerdictItem) -> float:
        return float(item.answer_tokens)

    def measure(self, trainable: TrainableModel, items: Sequence[VerdictItem]) -> BatchLoss:
        device = trainable.model.device
        orders = [one for item in items for one in item.orders]
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._dtype == torch.bfloat16):
            packed = forward(trainable.model, [TokenGroup(one.question, (one.answer,)) for one in orders])
            targets = torch.from_numpy(np.concatenate([one.answer[one.trained] for one in orders])).long().to(device)
            starts = np.cumsum([0, *(len(one.answer) for one in orders)])[:-1]
            trained = np.concatenate([start + one.trained for start, one in zip(starts, orders, strict=True)])
            states = packed.before().index_select(0, torch.from_numpy(trained).long().to(device))
            nll, right = token_losses(vocabulary_head(trainable.model), states, targets)
        ends = np.cumsum([len(one.trained) for one in orders])
        places = torch.tensor([end - len(one.trained) + one.judgement for end, one in zip(ends, orders, strict=True)])
        places = places.to(device)
        weights = torch.ones_like(nll).index_fill(0, places, self._weight)
        sizes = [item.answer_tokens for item in items]
        parts = torch.split(nll * weights, sizes)
        losses = torch.stack([part.mean() for part in parts])
        verdicts, per_answer = nll.detach()[places], torch.split(nll.detach(), sizes)
        owners = torch.repeat_interleave(
            torch.tensor([1.0 / len(item.orders) for item in items], device=device),
            torch.tensor([len(item.orders) for item in items], device=device),
        )
        return BatchLoss(
            losses,
            {
                "token_nll": torch.stack([part.mean() for part in per_answer]).sum(),
                "verdict_nll": (verdicts * owners).sum(),
                "accuracy": (right[places].float() * owners).sum(),
            },
            packed.computed - packed.padding,
            packed.computed,
            packed.padding,
        )


@dataclass(frozen=True)
class GenerativeSft(MethodFields):
    """A stock causal language model that reasons and then judges. `format`: pointwise, rating or pairwise.

    `both_orders`: train on both orders of a pair (else one, chosen by its hash). `content_free`: content-free rows
    added to the training rows, as a share of them. `samples`, `temperature`, `max_new_tokens`: of the finished model's
    judging, in its spec. `tools`, `tool_rounds`, `tool_errors`: what the judge may call (`Judging`); with tools, rows
    are trained with their traces, and the results in them get no gradient.
    """

    name: ClassVar[str] = "generative-sft"
    kind: ClassVar[Kind] = "generative"
    engine: ClassVar[type[VerdictReader]] = VerdictReader
    tags: ClassVar[tuple[str, ...]] = ("reward-model", "generative", "judge")
    unit: ClassVar[str] = "judgments"

    format: str = "pairwise"
    both_orders: bool = True
    verdict_weight: float = 1.0
    content_free: float = 0.0
    samples: int = 1
    temperature: float = 0.0
    max_new_tokens: int = 256
    tools: tuple[str, ...] = ()
    tool_rounds: int = 4
    tool_errors: Literal["show", "fail"] = "show"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", tuple(map(absolute_reference, self.tools)))
        if not self.verdict_weight > 0:
            raise BadInputError(f"must be above 0, not {self.verdict_weight}", field="verdict_weight")
        if not 0 <= self.content_free <= 1:
            raise BadInputError(f"goes from 0 to 1, not {self.content_free}", field="content_free")
        _ = self.judging, toolbox(self.tools)  # raise for wrong settings

    @property
    def form(self) -> JudgeFormat:
        return own_format(self.format)

    @property
    def judging(self) -> Judging:
        return Judging(
            self.format,
            self.form.hash,
            self.samples,
            self.temperature,
            max_new_tokens=self.max_new_tokens,
            tools=self.tools,
            tool_rounds=self.tool_rounds,
            tool_errors=self.tool_errors,
        )

    def load(self, config: TrainingConfig, device: torch.device) -> TrainableModel:
        tokenizer = load_tokenizer(config.base)
        device = loading_device(config.base_weights, device)
        model = load_causal_lm(config.base, tokenizer, dtype=torch.float32, device=device)
        if not (later := reads_later()):
            check_head(model, device)
        trainable = TrainableModel(model, tokenizer, new_head=False, heads=(), unchecked=later)
        return prepare(trainable, config, language_model=True)

    def read(self, workspace: Workspace | None, data: str) -> list[JudgedRow]:
        return read_judged(workspace, data, self.form)

    def divide(
        self, rows: Sequence[JudgedRow], eval_rows: Sequence[JudgedRow] | None
    ) -> tuple[Sequence[JudgedRow], Sequence[JudgedRow] | None]:
        """Add content-free rows to the training rows."""
        if not self.content_free:
            return rows, eval_rows
        extra_rows = content_free_rows(rows, self.form)[: round(self.content_free * len(rows))]
        reason = REASONS[self.form.responses]
        return [*rows, *(replace(row, rationale=reason) for row in extra_rows)], eval_rows

    def describe(self, rows: Sequence[JudgedRow]) -> dict[str, Any]:
        """Counts of the verdicts, before pairs are used in both orders."""
        return {"labels": dict(Counter(row.label for row in rows))}

    def encode(
        self, rows: Sequence[JudgedRow], renderer: Renderer, *, collect: Collect = list, advance: Advance = silent
    ) -> EncodedDataset[VerdictItem]:
        """Unusable rows are left out and counted. Raises BadInputError when none remains."""

        def encode(row: JudgedRow) -> tuple[VerdictItem, bool] | str:
            encoded = self._encode(row, renderer)
            return encoded if isinstance(encoded, str) else (encoded, False)

        return encode_rows(
            rows,
            encode,
            unit=self.unit,
            identity=lambda row: row.identity,
            name_of=_comparison,
            collect=collect,
            advance=advance,
        )

    def _encode(self, row: JudgedRow, renderer: Renderer) -> VerdictItem | str:
        """The item, or why there is none."""
        if not row.rationale:
            return "no rationale"
        ways = [row]
        if len(row.responses) == 2:
            other = row.swapped()
            if other is None and self.both_orders:
                return "the rationale names its sides in a way that cannot be swapped"
            if self.both_orders and other is not None:
                ways = [row, other]
            elif other is not None and int(ids.digest("".join(row.identity)), 16) % 2:
                ways = [other]
        orders = [encode_answer(way, self.form, renderer, self.tools) for way in ways]
        fault = next((one for one in orders if isinstance(one, str)), None)
        return fault or VerdictItem(tuple(one for one in orders if not isinstance(one, str)))

    def task(self, trainable: TrainableModel, config: TrainingConfig) -> VerdictTask:
        return VerdictTask(trainable, config, self.verdict_weight)

    def spec_fields(self, trainable: TrainableModel) -> dict[str, Any]:
        return {"judging": self.judging, "principles": True}

    def responses(self, rows: Sequence[JudgedRow]) -> list[ScoreItem]:
        """Questions with their right answers, for the parity checks."""
        return target_answers(rows, self.form)

    def evaluate(
        self, scorer: Scorer, rows: Sequence[JudgedRow], *, seed: int, advance: Advance = silent
    ) -> JudgeEvaluation:
        """Both orders of a pair are judged; `advance` counts them as `responses` does."""
        if not isinstance(scorer, VerdictReader):
            raise TypeError(f"not the engine of this method: {type(scorer).__name__}")
        # A reader that was loaded has no tools, for it reads complete answers; the judge is asked with those it has.
        spec = replace(scorer.spec, judging=self.judging)
        return evaluate_judge(scorer.writer, spec, rows, seed=seed, advance=advance)

    def card_rows(self) -> list[tuple[str, str]]:
        order_text = "both orders in one batch" if self.both_orders else "one order, drawn"
        return [
            ("format", f"{self.format}, question `{self.form.hash}`"),
            ("loss", f"cross-entropy of rationale and verdict (weight {self.verdict_weight:g}); {order_text}"),
            ("asked with", f"{self.samples} samples, temperature {self.temperature:g}, {self.max_new_tokens} tokens"),
            *([("tools", ", ".join(self.tools))] if self.tools else []),
        ]


def _comparison(row: JudgedRow) -> str:
    """The id of a pair's comparison, as messages name it."""
    return Comparison.of(row.prompt, *row.responses)[0].id if len(row.responses) == 2 else ""


def encode_answer(
    row: JudgedRow, form: JudgeFormat, renderer: Renderer, tools: tuple[str, ...] = ()
) -> EncodedOrder | str:
    """Tokens of the question and of the right answer with its end of turn, or why they cannot be used. With `tools` the
    answer begins with the row's recorded calls and results, in the tokens in which the judge will meet them."""
    answer_text = row.answer(form)
    if answer_text is None:
        return "the rationale holds a verdict line of its own"
    try:
        plain = row.question(form)
        question = offered(plain, toolbox(tools).definitions, renderer) if tools else plain
        before, conversation = renderer.encode(question), renderer.encode(question, answer_text)
    except BadInputError as error:
        return f"cannot be rendered: {error}".partition(" (")[0]
    if before.truncated or conversation.truncated:
        return f"question and answer pass {renderer.max_length} tokens (max_length)"
    start = len(before.ids)
    if conversation.ids[:start] != before.ids:
        return "the chat template renders past answers differently"
    answer = list(conversation.ids[start:])
    end = renderer.tokenizer.eos_token_id
    if end in answer:
        answer = answer[: answer.index(end) + 1]  # without what the template adds after the end of turn
    earlier, judge_places = _calling(row, question, start, renderer, tools) if tools else ([], [])
    if isinstance(earlier, str):
        return earlier
    if start + len(earlier) + len(answer) > renderer.max_length:
        return f"question, tools and answer pass {renderer.max_length} tokens (max_length)"
    lines = {label: _line_ids(renderer, form.final_line(label)) for label in form.labels}
    line = lines[row.label]
    verdict_start = next((i for i in range(len(answer) - len(line), -1, -1) if answer[i : i + len(line)] == line), None)
    if verdict_start is None:
        return "the final line is not made of tokens of its own"
    parts = next(i for i in range(len(line)) if len({tuple(other[: i + 1]) for other in lines.values()}) > 1)
    trained = [*judge_places, *range(len(earlier), len(earlier) + len(answer))]
    return EncodedOrder(
        np.asarray(before.ids, np.int32),
        np.asarray([*earlier, *answer], np.int32),
        np.asarray(trained, np.int32),
        len(judge_places) + verdict_start + parts,
    )


def _calling(
    row: JudgedRow, question: Prompt, start: int, renderer: Renderer, tools: tuple[str, ...]
) -> tuple[list[int] | str, list[int]]:
    """Tokens of the turns that call tools with their results, and the places of the judge's own; or why not.
    `start`: tokens of the question."""
    row_ids: list[int] = []
    judge_places: list[int] = []
    end = int(renderer.tokenizer.eos_token_id)
    available = toolbox(tools).tools
    for turn in row.trace:
        if missing := [one.call.name for one in turn.results if one.call.name not in available]:
            return f"its trace calls {missing[0]}, which is not among the tools", []
        ids = list(renderer.encode(question, turn.text).ids[start:])
        ids = [*(ids[: ids.index(end)] if end in ids else ids), end]
        judge_places += range(len(row_ids), len(row_ids) + len(ids))
        row_ids += [*ids, *between_turns(renderer, turn.results)]
    return row_ids, judge_places


def target_answers(rows: Sequence[JudgedRow], form: JudgeFormat) -> list[ScoreItem]:
    """Question and right answer of each row, both orders of a pair where its rationale can be swapped."""
    items = []
    for row in rows:
        for way in [row, row.swapped()] if len(row.responses) == 2 else [row]:
            if way is not None and (text := way.answer(form)) is not None:
                items.append(ScoreItem(way.question(form), text))
    return items


def _line_ids(renderer: Renderer, line: str) -> list[int]:
    """Tokens of a line after a line feed, which some tokenizers merge with preceding text."""

    def ids_of(text: str) -> list[int]:
        return list(renderer.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    feed, with_line = ids_of("\n"), ids_of("\n" + line)
    return with_line[len(feed) :] if with_line[: len(feed)] == feed else ids_of(line)
