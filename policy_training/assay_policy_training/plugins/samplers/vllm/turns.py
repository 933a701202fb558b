"""Rows that vLLM draws turn by turn, for environments: a request for each turn, with all the tokens before it.

Covers: what `TurnGeneration` asks. Keys and values live on in vLLM's prefix cache, where it has one. A step is one turn
of every row that is ready, so that a turn waits for the longest beside it. Leaves out: the engine (`policy_engine`).
"""

from collections.abc import Sequence

import torch

from assay.errors import BackendError, BadInputError
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling, derived_seed
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.plugins.samplers.vllm.completions import PolicyEngine, ended, request_fields


class VllmTurns:
    """Rows after these contexts. `places`: of each, its group's seed and its index in it."""

    def __init__(
        self,
        policy: Policy,
        engine: PolicyEngine,
        sampling: Sampling,
        contexts: Sequence[Sequence[int]],
        places: Sequence[tuple[int, int]],
        turn_tokens: int | None,
    ) -> None:
        """Raises BadInputError for contexts that do not fit."""
        longest, limit = max(map(len, contexts)) + sampling.max_new_tokens, sampling.max_new_tokens
        if engine.max_length is not None and longest > engine.max_length:
            raise BadInputError(
                f"{longest} tokens of prompt and answer do not fit: {engine.where} takes {engine.max_length}",
                field="sampling.max_new_tokens",
            )
        self.policy, self.engine, self.sampling = policy, engine, sampling
        self.contexts, self.places, self.turn_tokens = contexts, places, turn_tokens
        self.tokens = torch.full((len(contexts), limit), int(policy.tokenizer.pad_token_id))
        self.mask = torch.zeros(self.tokens.shape, dtype=torch.bool)
        self.logp = torch.zeros(self.tokens.shape)
        self._rows: list[list[int]] = [[] for _ in contexts]
        self._starts = [0] * len(contexts)
        self._ready = list(range(len(contexts)))

    @property
    def busy(self) -> bool:
        return bool(self._ready)

    def step(self) -> list[int]:
        """Raises BackendError."""
        rows, self._ready = self._ready, []
        stops = StopStrings(self.policy.tokenizer, self.sampling.stop)
        room = [min(self.remaining(row), self.turn_tokens or self.remaining(row)) for row in rows]
        fields = {**request_fields(self.sampling, sorted(self.policy.end_ids)), "max_tokens": max(room)}
        seeds = [derived_seed(*self.places[row], len(self._rows[row])) % 2**32 for row in rows]
        contexts = [[*self.contexts[row], *self._rows[row]] for row in rows]
        for row, most, answer in zip(rows, room, self.engine.complete(contexts, 1, fields, seeds), strict=True):
            drawn = ended(answer[0], stops)
            ids, logps = drawn.ids[:most], drawn.logps[:most]
            if not ids or len(ids) != len(logps):
                raise BackendError(f"{self.engine.where} answers {len(ids)} tokens with {len(logps)} log-probs")
            start = len(self._rows[row])
            span = slice(start, start + len(ids))
            self.tokens[row, span], self.logp[row, span] = torch.tensor(ids), torch.tensor(logps)
            self.mask[row, span] = True
            self._rows[row] += ids
        return rows

    def turn(self, row: int) -> list[int]:
        return self._rows[row][self._starts[row] :]

    def remaining(self, row: int) -> int:
        return self.sampling.max_new_tokens - len(self._rows[row])

    def resume(self, row: int, observed: Sequence[int]) -> None:
        start = len(self._rows[row])
        self.tokens[row, start : start + len(observed)] = torch.tensor(observed)
        self._rows[row] += observed
        self._starts[row] = len(self._rows[row])
        self._ready.append(row)

    def forget(self, row: int) -> None:
        """vLLM forgets by itself."""
