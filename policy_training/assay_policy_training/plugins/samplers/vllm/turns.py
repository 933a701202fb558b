"""Rows that vLLM draws turn by turn, for environments: a request for each turn, with all the tokens before it.

Covers: what `TurnGeneration` asks. Keys and values live on in vLLM's prefix cache, where it has one. Rows are asked for
beside each other, each as soon as it is ready, where the engine takes several requests at once; one that does not
generates the rows that are ready together, so that a turn waits for the longest of them. Leaves out: the engine
(`policy_engine`).
"""

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import torch

from assay.errors import BackendError, BadInputError
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling, derived_seed
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.plugins.samplers.vllm.completions import (
    PolicyEngine,
    VllmCompletion,
    ended,
    request_fields,
)

WAIT_S = 0.02  #: for a turn to end, before rows that are ready meanwhile are asked for


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
        self._stops = StopStrings(policy.tokenizer, sampling.stop)
        self._threads = ThreadPoolExecutor(engine.at_once, thread_name_prefix="turns")
        self._running: set[Future[list[tuple[int, VllmCompletion]]]] = set()

    @property
    def busy(self) -> bool:
        return bool(self._ready or self._running)

    def step(self) -> list[int]:
        """Raises BackendError."""
        ready, self._ready = self._ready, []
        for rows in [[row] for row in ready] if self.engine.at_once > 1 else [ready] if ready else []:
            self._running.add(self._threads.submit(self._drawn, rows))
        over, self._running = wait(self._running, timeout=WAIT_S, return_when=FIRST_COMPLETED)
        ended_rows = [row for future in over for row in self._take(future.result())]
        if over and not self._running:
            self.engine.confirm()
        return ended_rows

    def _drawn(self, rows: Sequence[int]) -> list[tuple[int, VllmCompletion]]:
        """The turns of rows, as the engine ended them."""
        room = [min(self.remaining(row), self.turn_tokens or self.remaining(row)) for row in rows]
        fields = {**request_fields(self.sampling, sorted(self.policy.end_ids)), "max_tokens": max(room)}
        seeds = [derived_seed(*self.places[row], len(self._rows[row])) % 2**32 for row in rows]
        contexts = [[*self.contexts[row], *self._rows[row]] for row in rows]
        answers = self.engine.complete(contexts, 1, fields, seeds)
        return [
            (row, VllmCompletion(answer[0].ids[:most], answer[0].logps[:most]))
            for row, most, answer in zip(rows, room, answers, strict=True)
        ]

    def _take(self, turns: Sequence[tuple[int, VllmCompletion]]) -> list[int]:
        for row, completion in turns:
            drawn = ended(completion, self._stops)
            if not drawn.ids or len(drawn.ids) != len(drawn.logps):
                raise BackendError(
                    f"{self.engine.where} answers {len(drawn.ids)} tokens with {len(drawn.logps)} log-probs"
                )
            start = len(self._rows[row])
            span = slice(start, start + len(drawn.ids))
            self.tokens[row, span], self.logp[row, span] = torch.tensor(drawn.ids), torch.tensor(drawn.logps)
            self.mask[row, span] = True
            self._rows[row] += drawn.ids
        return [row for row, _ in turns]

    def close(self) -> None:
        """See `TurnGeneration`. Requests that are under way are not awaited."""
        self._threads.shutdown(wait=False, cancel_futures=True)

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
