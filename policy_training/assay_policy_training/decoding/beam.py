"""Reward-guided beam search: the response grows by blocks of tokens, of whose samples the best by reward stay.

With one beam this is blockwise best-of-k, as in controlled decoding (arXiv 2310.17022); the reward reads responses that
are not complete, so one that judges only whole responses guides badly. Leaves out: rewards of single tokens (ARGS,
arXiv 2402.01694, is blocks of one token here, sampled and not enumerated).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge

from assay.statistics.best_of_n import kl_best_of
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import derived_seed, group_uniforms
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.decoding.kind import DecodedResponse, DecodePrompts, DecodingInputs, RewardedText
from assay_policy_training.plugins.samplers.assembly import generation_ids, pad_left
from assay_policy_training.plugins.samplers.transformers import TransformersSampler


class Beam(RecipeSettings, section="decoder"):
    """`width` beams stay after each block of `block_tokens`, each continued by `candidates` samples.

    `kl` is a bound: blocks * (ln k - (k-1)/k) for one beam, else ln width + blocks * ln k, since a response is expected
    among the last candidates at most width * k^blocks times as often as the policy gives it.
    """

    block_tokens: Annotated[int, Ge(1)] = 8
    candidates: Annotated[int, Ge(1)] = 4
    width: Annotated[int, Ge(1)] = 1

    @property
    def rows_a_response(self) -> int:
        return self.width * self.candidates

    def open(self, inputs: DecodingInputs) -> DecodePrompts:
        return BeamSearch(self, inputs).decode

    def kl(self, blocks: int) -> float:
        if self.width == 1:
            return blocks * kl_best_of(self.candidates)
        return math.log(self.width) + blocks * math.log(self.candidates)


@dataclass(frozen=True)
class BeamState:
    ids: tuple[int, ...]  #: tokens of the response so far
    text: RewardedText


class BeamSearch:
    def __init__(self, plan: Beam, inputs: DecodingInputs) -> None:
        self.plan, self.inputs = plan, inputs
        self.sampler = TransformersSampler(inputs.policy, inputs.sampling)
        self.stops = StopStrings(inputs.policy.tokenizer, inputs.sampling.stop)

    def decode(self, items: Sequence[PromptItem], seeds: Sequence[int]) -> list[DecodedResponse]:
        plan, longest = self.plan, self.inputs.sampling.max_new_tokens
        contexts = generation_ids(self.inputs.policy, items)
        start = BeamState((), RewardedText("", 0, finished=False))
        # From nothing there is one beam, continued by as many samples as later all beams together.
        beams: list[list[BeamState]] = [[start] * plan.width for _ in items]
        blocks, generated, scored = [0] * len(items), [0] * len(items), [0] * len(items)
        for block in range(-(-longest // plan.block_tokens)):
            going = [
                (row, number)
                for row, states in enumerate(beams)
                for number, state in enumerate(states)
                if not state.text.finished
            ]
            if not going:
                break
            block_seeds = [derived_seed(seeds[row], block, number) for row, number in going]
            limit = min(plan.block_tokens, longest - block * plan.block_tokens)
            grown = self._grown(contexts, beams, going, block_seeds, limit)
            texts = self.inputs.rewarded([items[row] for row, _ in grown], [state.text for _, state in grown])
            pools = [[state for state in states if state.text.finished] for states in beams]
            for (row, state), text in zip(grown, texts, strict=True):
                pools[row].append(replace(state, text=text))
                generated[row] += text.tokens - block * plan.block_tokens
                scored[row] += 1
            for row in {row for row, _ in going}:
                blocks[row] += 1
                beams[row] = sorted(pools[row], key=lambda state: -state.text.rank)[: plan.width]
        return [
            DecodedResponse(states[0].text, plan.kl(blocks[row]), "bound", generated[row], scored[row])
            for row, states in enumerate(beams)
        ]

    def _grown(
        self,
        contexts: Sequence[Sequence[int]],
        beams: Sequence[Sequence[BeamState]],
        going: Sequence[tuple[int, int]],
        seeds: Sequence[int],
        limit: int,
    ) -> list[tuple[int, BeamState]]:
        """Of each beam in `going` its continuations by at most `limit` tokens, each with its prompt's number."""
        tokenizer, size = self.inputs.policy.tokenizer, self.plan.candidates
        ids, seen = pad_left([[*contexts[row], *beams[row][n].ids] for row, n in going], int(tokenizer.pad_token_id))
        tokens, mask, _ = self.sampler.generate(ids, seen, size, group_uniforms(seeds, size, limit))
        grown = []
        for index, (drawn, valid) in enumerate(zip(tokens.cpu(), mask.cpu(), strict=True)):
            row, number = going[index // size]
            added = drawn[valid].tolist()
            all_ids = (*beams[row][number].ids, *added)
            length = self.stops.length(all_ids)  # a stop string may begin in an earlier block
            all_ids = all_ids[:length]
            finished = all_ids[-1] in self.inputs.policy.end_ids or (bool(self.stops) and self.stops.reached(all_ids))
            text = tokenizer.decode(list(all_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
            grown.append((row, BeamState(all_ids, RewardedText(str(text), len(all_ids), finished))))
        return grown
