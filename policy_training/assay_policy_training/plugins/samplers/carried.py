"""Rollouts that are generated a part at a time: what is kept of one in between, and how it continues.

Covers: rows with the version of the weights and the log-prob of each token as it was drawn, the next tokens of rows at
any length, the batch that they make. A row's random numbers are its own (`core.sampling.row_uniforms`), so its tokens
depend only on the weights that drew them. Keys and values are computed again when a row continues. Leaves out: who
carries rows, and when (`windowed`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem, item_from_dict
from assay_policy_training.core.sampling import row_uniforms
from assay_policy_training.plugins.samplers.assembly import assemble, generation_ids, pad_left
from assay_policy_training.plugins.samplers.transformers import TransformersSampler


@dataclass(frozen=True)
class CarriedRow:
    """One rollout so far; the columns hold one entry a token that the policy generated. `seed`, `index`: of its group,
    and in it."""

    uid: str
    item: PromptItem
    seed: int
    index: int
    tokens: Tensor  #: int64
    logp: Tensor  #: float32, when it was drawn
    version: Tensor  #: int64, of the weights that drew it

    def __len__(self) -> int:
        return len(self.tokens)

    def longer(self, tokens: Tensor, logp: Tensor, version: int) -> "CarriedRow":
        versions = torch.cat([self.version, torch.full_like(tokens, version)])
        return replace(
            self, tokens=torch.cat([self.tokens, tokens]), logp=torch.cat([self.logp, logp]), version=versions
        )

    def ended(self, policy: Policy, limit: int) -> bool:
        """Whether the policy ended its turn, or the row has `limit` tokens."""
        return len(self) >= limit or (len(self) > 0 and int(self.tokens[-1]) in policy.end_ids)

    def to_dict(self) -> dict[str, Any]:
        """JSON, without the columns."""
        return {"uid": self.uid, "item": self.item.to_dict(), "seed": self.seed, "index": self.index}

    def columns(self) -> dict[str, Tensor]:
        return {"tokens": self.tokens, "logp": self.logp, "version": self.version}


def empty_row(uid: str, item: PromptItem, seed: int, index: int) -> CarriedRow:
    nothing = torch.zeros(0, dtype=torch.long)
    return CarriedRow(uid, item, seed, index, nothing, nothing.float(), nothing)


def row_from_dict(payload: Mapping[str, Any]) -> CarriedRow:
    """Without its columns."""
    return empty_row(payload["uid"], item_from_dict(payload["item"]), payload["seed"], payload["index"])


def continued(
    sampler: TransformersSampler, rows: Sequence[CarriedRow], window: int, *, version: int
) -> list[CarriedRow]:
    """The rows, none of which has ended, with up to `window` more tokens each."""
    most = sampler.sampling.max_new_tokens
    after: dict[int, CarriedRow] = {}
    begun = [number for number, row in enumerate(rows) if not len(row)]
    begun_groups = [list(same) for _, same in groupby(begun, lambda number: (rows[number].seed, rows[number].uid))]
    if len({len(same) for same in begun_groups}) > 1:
        begun_groups = [[number] for number in begun]
    continued_rows = [[number] for number, row in enumerate(rows) if len(row)]
    for groups in (begun_groups, continued_rows):  # rows of a group that begins share the pass over their prompt
        if not groups:
            continue
        first = [rows[same[0]] for same in groups]
        contexts = generation_ids(sampler.policy, [row.item for row in first])
        contexts = [ids + row.tokens.tolist() for ids, row in zip(contexts, first, strict=True)]
        ids, seen = pad_left(contexts, int(sampler.policy.tokenizer.pad_token_id))
        order = [number for same in groups for number in same]
        limit = min(window, most)
        ends = [(rows[number], len(rows[number]) + limit) for number in order]
        uniforms = torch.stack([row_uniforms(row.seed, row.index, len(row), end) for row, end in ends])
        drawn = (column.cpu() for column in sampler.generate(ids, seen, len(groups[0]), uniforms))
        for number, tokens, mask, logp in zip(order, *drawn, strict=True):
            new = slice(0, max(0, most - len(rows[number])))
            after[number] = rows[number].longer(tokens[mask][new], logp[mask][new], version)
    return [after[number] for number in range(len(rows))]


def rows_batch(policy: Policy, rows: Sequence[CarriedRow], trained_from: Sequence[int], *, limit: int) -> RolloutBatch:
    """The batch of the rows, on the CPU. `trained_from`: of each row, the tokens that get no gradient any more.
    `limit`: tokens at which a row is cut; a row below that which the policy did not end is `unfinished`."""
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    tokens = torch.full(mask.shape, int(policy.tokenizer.pad_token_id))
    logp = torch.zeros(mask.shape)
    tokens[mask] = torch.cat([row.tokens for row in rows])
    logp[mask] = torch.cat([row.logp for row in rows])
    batch = assemble(policy, [row.item for row in rows], 1, (tokens, mask, logp), version=0)
    # Text that the turn starts with lies before a row's own tokens, whose order is that of `mask` all the same.
    versions, fresh = torch.zeros_like(batch.tokens), torch.zeros_like(batch.mask)
    versions[batch.mask] = torch.cat([row.version for row in rows])
    fresh[batch.mask] = torch.cat([torch.arange(len(r)) >= start for r, start in zip(rows, trained_from, strict=True)])
    unfinished = ~batch.finished & (lengths < limit)
    return batch.with_(
        uid=tuple(row.uid for row in rows),
        loss_mask=fresh,
        version=torch.stack([row.version[0] for row in rows]),
        token_version=versions,
        unfinished=unfinished,
        truncated=~batch.finished & ~unfinished,
    )
