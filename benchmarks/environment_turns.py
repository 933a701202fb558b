"""Episodes of several turns beside plain generation: drawn tokens a second, with a tool of 50 ms in every turn.

Arms, of equally many rows and drawn tokens: `single` generates each row in one turn; `episodes` in turns of a quarter,
between which the environment sleeps 50 ms and says a sentence, others generated meanwhile (`overlap`); `rounds` the
same without overlap; `reread` the same as `episodes`, the keys and values of earlier turns computed again. No end of
turn is drawn, so that all rows are equally long; a token costs the same in all arms but for what is observed.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.domain import Message
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_policy_training.plugins.environments.episode import EpisodeLimits
from assay_policy_training.plugins.samplers.episodes import EpisodeSampler
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from measure import Report, arguments, interleaved, ratio, versions

EPISODES, TURNS, SLEEP_S = 32, 4, 0.05


class Slow(Environment):
    """Answers after 50 ms."""

    turns: int = TURNS

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self.said = 0
        return Observation()

    async def step(self, action: Action) -> Observation | Done:
        await asyncio.sleep(SLEEP_S)
        self.said += 1
        return Observation("Noted. Go on.") if self.said < self.turns else Done({"win": 1.0})


class Endless(TransformersSampler):
    """Draws no end of turn."""

    def adjusted(self, logits: Tensor) -> Tensor:
        return logits.index_fill(-1, torch.tensor(sorted(self.policy.end_ids)), -torch.inf)


class Rereading(Endless):
    def turns(self, *arguments: Any) -> Any:
        generation = super().turns(*arguments)
        resume = generation.resume

        def forgotten(row: int, between: Sequence[int]) -> None:
            generation.forget(row)
            resume(row, between)

        generation.resume = forgotten  # type: ignore[method-assign, assignment]
        return generation


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    drawn = 16 if options.quick else 64
    policy = Policy("smollm2", device=torch.device("cpu"), max_prompt_tokens=256)
    items = [PromptItem((Message("user", f"Tell a story of {n} mice."),)) for n in range(EPISODES)]
    room = Sampling(max_new_tokens=drawn + TURNS * 40, rows_at_once=EPISODES)

    def rate(sampler: Any) -> Callable[[], float]:
        def measured() -> float:
            start = time.perf_counter()
            batch = sampler.rollout(items, 1, seed=1, version=0)
            assert int(batch.mask.sum()) == EPISODES * drawn
            return int(batch.mask.sum()) / (time.perf_counter() - start)

        return measured

    def episodes(kind: type[Endless], overlap: bool) -> EpisodeSampler:
        limits = EpisodeLimits(turn_tokens=drawn // TURNS, turns=TURNS, overlap=overlap)
        return EpisodeSampler(policy, kind(policy, room), room, Slow(), limits)

    rates = interleaved(
        {
            "single": rate(Endless(policy, Sampling(max_new_tokens=drawn, rows_at_once=EPISODES))),
            "episodes": rate(episodes(Endless, True)),
            "rounds": rate(episodes(Endless, False)),
            "reread": rate(episodes(Rereading, True)),
        },
        2 if options.quick else 5,
    )
    report = Report("environment_turns", figures={"versions": versions("torch", "transformers")})
    report.ratios = {
        "episodes_to_single": ratio(rates["episodes"], rates["single"]),
        "rounds_to_single": ratio(rates["rounds"], rates["single"]),
        "kept_to_reread": ratio(rates["episodes"], rates["reread"]),
    }
    report.figures |= {f"{name}, tokens/s": values for name, values in rates.items()}
    report.finish(options)


if __name__ == "__main__":
    main()
