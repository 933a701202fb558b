"""Rollouts in which the policy calls tools: its turns, the results between them, one row.

Covers: rounds over the batch, results as `forced` tokens (attended to, without any gradient), `segment` as the number
of the turn, traces in the rows' items. Leaves out: offering the tools, which the prompts do
(`assay_serving.tools.turns.offered`); caches kept between turns: each turn reads its row again; vLLM.

A row holds the tokens that were drawn and those of the results, as they were read: nothing is tokenized again. Its
random numbers are its own by position, so that it does not depend on the rows beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
from annotated_types import Ge

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import FINAL_TURN, PromptItem
from assay_policy_training.core.sampling import Sampling, group_seeds, row_uniforms
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.samplers.assembly import assemble, generation_ids, pad_left
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_serving.tools.calls import calls_in
from assay_serving.tools.kind import absolute_reference
from assay_serving.tools.tool import ToolTurn, transcript
from assay_serving.tools.toolbox import toolbox
from assay_serving.tools.turns import between_turns

TOOL_TURNS = "tool_turns"  #: entry of a row's item: the turns before it, as JSON (`ToolTurn.to_dict`)


@dataclass
class _Row:
    item: PromptItem
    context: list[int]
    seed: int
    index: int  #: in its group
    #: (token, log-prob, whether the policy drew it, number of the turn)
    tokens: list[tuple[int, float, bool, int]] = field(default_factory=list)
    turns: list[ToolTurn] = field(default_factory=list)
    final: str = ""
    finished: bool = False

    @property
    def ids(self) -> list[int]:
        return [token for token, *_ in self.tokens]


class ToolCallsSampler:
    """S2 by the policy's own weights. A row has at most `max_new_tokens` tokens, results included; one that a result
    does not fit in ends as cut."""

    def __init__(self, policy: Policy, sampling: Sampling, tools: tuple[str, ...], rounds: int) -> None:
        """Raises BadInputError for a tool that is not there."""
        self.policy, self.sampling, self.rounds = policy, sampling, rounds
        self.box, self._sampler = toolbox(tools), TransformersSampler(policy, sampling)

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        """`group_size` rollouts of each item; see `TransformersSampler.rollout`. Raises BadInputError for prompts that
        begin the policy's turn."""
        if any(item.forced for item in items):
            raise BadInputError("a turn that is begun for the policy does not go with tools", field="sampler")
        self._sampler.sampling = self.sampling
        groups = zip(items, generation_ids(self.policy, items), group_seeds(seed, len(items)), strict=True)
        rows = [_Row(*group, index) for group in groups for index in range(group_size)]
        going, size = list(rows), group_size  # rows of a group that begin share the pass over their prompt
        for turn in range(self.rounds + 1):
            self._generate(going, size)
            going, size = [row for row in going if turn < self.rounds and self._call(row)], 1
            if not going:
                break
        batch = self._batch(rows, version)
        return batch.with_(uid=tuple(f"{version}.{number // group_size}" for number in range(len(rows))))

    def _generate(self, rows: Sequence[_Row], size: int) -> None:
        """One more turn of every row."""
        most, tokenizer = self.sampling.max_new_tokens, self.policy.tokenizer
        window = max(most - len(row.tokens) for row in rows)
        ids, seen = pad_left([row.context + row.ids for row in rows[::size]], int(tokenizer.pad_token_id))
        spans = [(row, len(row.tokens)) for row in rows]
        uniforms = torch.stack([row_uniforms(row.seed, row.index, start, start + window) for row, start in spans])
        columns = (column.cpu() for column in self._sampler.generate(ids, seen, size, uniforms))
        for (row, start), tokens, mask, logp in zip(spans, *columns, strict=True):
            new = tokens[mask][: most - start].tolist()
            row.tokens += [(token, p, True, len(row.turns)) for token, p in zip(new, logp[mask].tolist(), strict=False)]
            row.finished = bool(new) and new[-1] in self.policy.end_ids
            row.final = str(tokenizer.decode(new, skip_special_tokens=True, clean_up_tokenization_spaces=False))

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
        row.tokens += [(token, 0.0, False, len(row.turns)) for token in between]
        return True

    def _batch(self, rows: Sequence[_Row], version: int) -> RolloutBatch:
        padding = (int(self.policy.tokenizer.pad_token_id), 0.0, False, -1)
        width = max(len(row.tokens) for row in rows)
        padded = [[*row.tokens, *[padding] * (width - len(row.tokens))] for row in rows]
        tokens, logp, drawn, segment = (torch.tensor([[t[n] for t in row] for row in padded]) for n in range(4))
        items = []
        for row in rows:
            meta = {**row.item.meta, FINAL_TURN: row.final, TOOL_TURNS: [turn.to_dict() for turn in row.turns]}
            items.append(replace(row.item, meta=meta))
        present = segment >= 0
        finished = torch.tensor([row.finished for row in rows])
        return assemble(self.policy, items, 1, (tokens, present, logp), version=version).with_(
            responses=tuple(transcript(row.turns, row.final) for row in rows),
            mask=drawn,
            loss_mask=drawn,
            forced=present & ~drawn,
            segment=segment.clamp(min=0),
            token_version=torch.where(drawn, version, 0),
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
