"""Episodes of several turns beside plain generation: drawn tokens a second, with a tool of 50 ms in every turn.

Arms, of the same rows with the same planned numbers of drawn tokens, 32 rows under generation at once: `single`
generates each row in one turn; `reading` the same, where a row's prompt also holds the tokens that its episode is told,
so that it reads and draws as many tokens as an episode; `episodes` in turns of uneven length (a half to three halves of
the mean), between which the environment sleeps 50 ms and says a sentence, others generated meanwhile (`overlap`);
`rounds` the same without overlap; `reread` the same as `episodes`, the keys and values of earlier turns computed again.
Rates are by wall and by CPU seconds of this process.
"""

import asyncio
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
from assay_policy_training.plugins.samplers import decoding
from assay_policy_training.plugins.samplers.decoding import Decoding
from assay_policy_training.plugins.samplers.episodes import EpisodeSampler
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from measure import Cost, Report, arguments, compare, spent

MEASURES = (
    "policy_training/assay_policy_training/plugins/environments",
    "policy_training/assay_policy_training/plugins/samplers",
)

AT_ONCE, TURNS, SLEEP_S, SAID = 32, 4, 0.05, "Noted. Go on."


class Slow(Environment):
    """Answers after 50 ms."""

    turns: int = TURNS

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self.said = 0
        return Observation()

    async def step(self, action: Action) -> Observation | Done:
        await asyncio.sleep(SLEEP_S)
        self.said += 1
        return Observation(SAID) if self.said < self.turns else Done({"win": 1.0})


class Planned(Decoding):
    """Ends each row's turns after as many tokens as `plan` [rows, turns] says, by the end token; in one turn, after
    their sum."""

    plan: Tensor
    kept = True  #: keys and values between turns

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.number = torch.zeros(len(self.tokens), dtype=torch.long)  #: of each row's turn

    def _sample(self, rows: Tensor, logits: Tensor, unended: Tensor) -> tuple[Tensor, Tensor]:
        plan = self.plan if self.in_turns else self.plan.sum(1, keepdim=True)
        over = self._lengths[rows] - self._turn_starts[rows] + 1 >= plan[rows, self.number[rows]]
        end = self.ends[:1]
        ending = torch.full_like(logits[:1], -torch.inf).index_fill(-1, end, 0.0)
        going = logits.index_fill(-1, self.ends, -torch.inf)
        return super()._sample(rows, torch.where(over[:, None], ending, going), unended)

    def resume(self, row: int, observed: Sequence[int]) -> None:
        self.number[row] += 1
        if not self.kept:
            self.forget(row)
        super().resume(row, observed)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn-tokens", type=int, default=None, help="mean of a turn; default: 32; quick: 8")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    mean = options.turn_tokens or (8 if options.quick else 32)
    rows = AT_ONCE if options.quick else 3 * AT_ONCE
    random = torch.Generator().manual_seed(0)
    Planned.plan = torch.randint(mean // 2, mean + mean // 2 + 1, (rows, TURNS), generator=random)
    drawn = int(Planned.plan.sum())
    decoding.Decoding = Planned  # type: ignore[misc]
    policy = Policy("smollm2", device=torch.device("cpu"), max_prompt_tokens=512)
    items = [PromptItem((Message("user", f"Tell a story of {n} mice."),)) for n in range(rows)]
    told = [PromptItem((*item.prompt, *_told())) for item in items]
    room = Sampling(max_new_tokens=int(Planned.plan.sum(1).max()) + TURNS * 24, rows_at_once=AT_ONCE)
    present: dict[str, int] = {}

    def turn(
        name: str, sampler: Any, prompts: Sequence[PromptItem] = items, *, kept: bool = True
    ) -> Callable[[], Cost]:
        def rollout() -> None:
            Planned.kept = kept
            batch = sampler.rollout(prompts, 1, seed=1, version=0)
            assert int(batch.mask.sum()) == drawn, (name, int(batch.mask.sum()), drawn)
            present[name] = int(batch.present.sum()) + int(batch.gen_mask.sum())

        return lambda: spent(rollout, amount=drawn)

    def episodes(overlap: bool) -> EpisodeSampler:
        limits = EpisodeLimits(turns=TURNS, overlap=overlap)
        return EpisodeSampler(policy, TransformersSampler(policy, room), room, Slow(), limits)

    arms = {
        "single": turn("single", TransformersSampler(policy, room)),
        "reading": turn("reading", TransformersSampler(policy, room), told),
        "episodes": turn("episodes", episodes(True)),
    }
    if not options.quick:
        arms |= {
            "rounds": turn("rounds", episodes(False)),
            "reread": turn("reread", episodes(True), kept=False),
        }
    compared = compare(arms, options, rounds=options.rounds)
    report = Report("environment_turns", measures=MEASURES)
    for name, (ours, peer) in {
        "episodes / plain generation": ("episodes", "single"),
        "episodes / generation that reads as much": ("episodes", "reading"),
        "turns in step / plain generation": ("rounds", "single"),
        "episodes / turns read again": ("episodes", "reread"),
    }.items():
        if ours in arms and peer in arms:
            report.ratios[name] = compared.ratio(ours, peer)
    report.figures |= {f"{name}, drawn tokens/s": str(compared.per_second(name)) for name in arms}
    report.figures |= {f"{name}, drawn tokens/CPU s": str(compared.per_cpu_second(name)) for name in arms}
    report.figures |= {"rows": rows, "mean tokens of a turn": mean, "drawn": drawn, "read and drawn": present}
    report.finish(options)


def _told() -> tuple[Message, ...]:
    """What an episode is told, for a prompt: its sentences, with turns as short as the template allows between them."""
    return tuple(message for _ in range(TURNS - 1) for message in (Message("assistant", "x"), Message("user", SAID)))


if __name__ == "__main__":
    main()
