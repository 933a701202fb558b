"""Rollouts in which the policy calls tools: its turns, the results between them, one row.

Covers: rounds over the batch, results as `forced` tokens (attended to, without any gradient), `segment` as the number
of the turn, traces in the rows' items. Leaves out: offering the tools, which the prompts do
(`assay_serving.tools.turns.offered`); caches kept between turns: each turn reads its row again; vLLM.

A row holds the tokens that were drawn and those of the results, as they were read: nothing is tokenized again. Its
random numbers are its own by position, so that it does not depend on the rows beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import torch
from annotated_types import Ge

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling, group_seeds, row_uniforms
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.samplers.assembly import assemble, generation_ids, pad_left
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_serving.tools.calls import calls_in
from assay_serving.tools.kind import absolute_reference
from assay_serving.tools.tool import ToolTurn, transcript
from assay_serving.tools.toolbox import toolbox
from assay_serving.tools.turns import between_turns

FINAL_TURN = "final_turn"  #: entry of a row's item: the text of the last turn, which answers
TOOL_TURNS = "tool_turns"  #: entry of a row's item: the turns before it, as JSON (`ToolTurn.to_dict`)


@dataclass
class _Row:
    item: PromptItem
    context: list[int]
    seed: int
    index: int  #: in its group
    tokens: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    drawn: list[bool] = field(default_factory=list)  #: drawn from the policy, not a result
    segment: list[int] = field(default_factory=list)
    turns: list[ToolTurn] = field(default_factory=list)
    final: str = ""
    finished: bool = False

    def extend(self, tokens: Sequence[int], logp: Sequence[float] | None = None) -> None:
        self.tokens += tokens
        self.logp += [0.0] * len(tokens) if logp is None else logp
        self.drawn += [logp is not None] * len(tokens)
        self.segment += [len(self.turns)] * len(tokens)


class ToolCallsSampler:
    """S2 by the policy's own weights. A row has at most `max_new_tokens` tokens, results included; one that a result
    does not fit in ends as cut."""

    def __init__(self, policy: Policy, sampling: Sampling, tools: tuple[str, ...], rounds: int) -> None:
        """Raises BadInputError for a tool that is not there."""
        self.policy, self.sampling, self.rounds = policy, sampling, rounds
        self.box = toolbox(tools)
        self._sampler = TransformersSampler(policy, sampling)

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        """`group_size` rollouts of each item; see `TransformersSampler.rollout`. Raises BadInputError for prompts that
        begin the policy's turn."""
        if any(item.forced for item in items):
            raise BadInputError("a turn that is begun for the policy does not go with tools", field="sampler")
        self._sampler.sampling = self.sampling
        contexts = generation_ids(self.policy, items)
        rows = [
            _Row(item, context, group_seed, index)
            for item, context, group_seed in zip(items, contexts, group_seeds(seed, len(items)), strict=True)
            for index in range(group_size)
        ]
        going = list(rows)
        for turn in range(self.rounds + 1):
            # Rows of a group that begin share the pass over their prompt.
            self._generate(going, group_size if turn == 0 else 1)
            going = [row for row in going if turn < self.rounds and self._call(row)]
            if not going:
                break
        return self._batch(rows, len(items), group_size, version)

    def _generate(self, rows: Sequence[_Row], size: int) -> None:
        """One more turn of every row."""
        most = self.sampling.max_new_tokens
        window = max(most - len(row.tokens) for row in rows)
        ids, seen = pad_left(
            [row.context + row.tokens for row in rows[::size]], int(self.policy.tokenizer.pad_token_id)
        )
        uniforms = torch.stack(
            [row_uniforms(row.seed, row.index, len(row.tokens), len(row.tokens) + window) for row in rows]
        )
        columns = (column.cpu() for column in self._sampler.generate(ids, seen, size, uniforms))
        for row, tokens, mask, logp in zip(rows, *columns, strict=True):
            room = most - len(row.tokens)
            new = tokens[mask][:room].tolist()
            row.extend(new, logp[mask][:room].tolist())
            row.finished = bool(new) and new[-1] in self.policy.end_ids
            row.final = str(
                self.policy.tokenizer.decode(new, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            )

    def _call(self, row: _Row) -> bool:
        """Whether the row goes on: it has called tools, whose results are in it now."""
        calls = calls_in(row.final) if row.finished else []
        if not calls:
            return False
        results = self.box.run(calls, row.turns)
        between = between_turns(self.policy.renderer, results)
        if len(row.tokens) + len(between) >= self.sampling.max_new_tokens:
            row.finished = False
            return False
        row.turns.append(ToolTurn(row.final, tuple(results)))
        row.extend(between)
        return True

    def _batch(self, rows: Sequence[_Row], groups: int, group_size: int, version: int) -> RolloutBatch:
        width = max(len(row.tokens) for row in rows)
        pad = int(self.policy.tokenizer.pad_token_id)

        def column(values: Sequence[Sequence[Any]], fill: Any) -> torch.Tensor:
            return torch.tensor([[*one, *[fill] * (width - len(one))] for one in values])

        tokens = column([row.tokens for row in rows], pad)
        generated = column([row.drawn for row in rows], False)
        present = torch.arange(width) < torch.tensor([len(row.tokens) for row in rows])[:, None]
        items = [
            replace(
                row.item,
                meta={**row.item.meta, FINAL_TURN: row.final, TOOL_TURNS: [turn.to_dict() for turn in row.turns]},
            )
            for row in rows
        ]
        logp = column([row.logp for row in rows], 0.0)
        batch = assemble(self.policy, items, 1, (tokens, present, logp), version=version)
        finished = torch.tensor([row.finished for row in rows])
        return batch.with_(
            uid=tuple(f"{version}.{number}" for number in range(groups) for _ in range(group_size)),
            responses=tuple(transcript(row.turns, row.final) for row in rows),
            mask=generated,
            loss_mask=generated,
            forced=present & ~generated,
            segment=column([row.segment for row in rows], 0),
            token_version=torch.where(generated, version, 0),
            finished=finished,
            truncated=~finished,
        )


class ToolCalls(RecipeSettings, section="sampler"):
    """S2. `tools`: what the policy may call, as in `assay plugins tool`, with settings after a question mark; `rounds`:
    turns in which it may; the turn after them answers."""

    tools: tuple[str, ...] = ("calculator",)
    rounds: Annotated[int, Ge(1)] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "tools", tuple(map(absolute_reference, self.tools)))
        if not self.tools:
            raise BadInputError("names no tool", field="sampler.tools")

    def open(self, policy: Policy, sampling: Sampling) -> ToolCallsSampler:
        return ToolCallsSampler(policy, sampling, self.tools, self.rounds)
