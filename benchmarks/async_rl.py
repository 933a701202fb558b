"""Rollout actors beside a trainer: steps a second where generation or rewards take time, against a lag of 1.

The loop, the buffer, the relay and the update are the product's, on the tiny model; generation is a sleep: an engine
takes 0.2 s for a group (the median; log-normal, sigma 0.8, cut at five times that), one group after another, the same
for a group in every arm, since it follows from the group's seed; twelve times as long for 32 engines, which one core
could not train for else. In the arms with rewards, generation takes nothing and the reward of a group as long, one
after another in a call; calls do not wait for each other, and there are as many at once as engines. Arms take turns.
Actors are threads of this process: 32 processes would measure its cores.

`actors_4`: four engines, staleness 4, to one engine with lag 1 (what there is without actors), and to the same four
with lag 1. `actors_32_linear`: the share of 32 engines' time that goes into groups that are trained on, to that of one.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from measure import Cost, Report, arguments, compare, ratio

MEASURES = (
    "policy_training/assay_policy_training/plugins/samplers",
    "policy_training/assay_policy_training/rollouts",
    "policy_training/assay_policy_training/training",
)

MEDIAN_S, SIGMA, LONGEST = 0.2, 0.8, 5.0
GROUP = 2  #: responses
WARM_UP = 5  #: steps until the pipeline is full


@dataclass(frozen=True)
class Arm:
    asynchrony: dict[str, Any]
    prompts: int = 8
    steps: int = 12
    slower: float = 1.0  #: how many times longer a group takes, where the trainer would be the limit
    rewards: bool = False  #: whether it is the reward that takes time

    @property
    def engines(self) -> int:
        return max(1, int(self.asynchrony.get("actors", 0)))


ARMS = {
    "lag 1, one engine": Arm({"lag": 1}),
    "lag 1, 4 actors": Arm({"lag": 1, "actors": 4}),
    "staleness 4, 4 actors": Arm({"staleness": 4, "actors": 4}),
    "staleness 4, 1 actor": Arm({"staleness": 4, "actors": 1}, steps=6),
    "staleness 4, 32 actors": Arm({"staleness": 4, "actors": 32}, prompts=32, steps=8, slower=12.0),
}
ARMS |= {f"{name}, rewards": replace(arm, rewards=True) for name, arm in list(ARMS.items())}

QUICK_ARMS = 3


def seconds_of(seed: int | str) -> float:
    """What a group with this seed, or with this first response, takes."""
    return MEDIAN_S * min(LONGEST, random.Random(seed).lognormvariate(0, SIGMA))


class SleepingEngine:
    """An actor whose generation takes time and nothing else."""

    tokenizer = Lock()  #: two threads may not use one

    def __init__(self, policy: Any, slower: float) -> None:
        self.policy, self.slower = policy, slower

    def call(self, method: str, handle: Any, key: str, version: int, probe: Any, request: Any) -> Any:
        from assay_policy_training.plugins.samplers.assembly import assemble

        time.sleep(self.slower * sum(map(seconds_of, request.seeds)))
        size = request.sampling.group_size
        generator = torch.Generator().manual_seed(request.seeds[0])
        tokens = torch.randint(
            1, 250, (size * len(request.items), request.sampling.max_new_tokens), generator=generator
        )
        columns = (tokens, torch.ones_like(tokens, dtype=torch.bool), torch.full(tokens.shape, -5.0))
        with self.tokenizer:
            batch = assemble(self.policy, request.items, size, columns, version=version)
        return batch.with_(uid=tuple(uid for uid in request.uids for _ in range(size)))

    def close(self) -> None:
        pass


class LetterShare:
    """`slower`: of the groups' seconds; 0 takes none."""

    name, concurrent = "letters", True

    def __init__(self, slower: float) -> None:
        self.slower = slower

    def score(self, items: Sequence[Any], responses: Sequence[str]) -> Any:
        from assay_policy_training.plugins.protocols import Rewards

        time.sleep(self.slower * sum(map(seconds_of, responses[::GROUP])))
        return Rewards.of(self.name, [sum(c.isalpha() for c in text) / max(1, len(text)) for text in responses])


def steps_of(arm: Arm, used: dict[str, list[float]], name: str) -> Cost:
    """Of the steps after the first; `used[name]` gets the share of the engines' time that their groups took."""
    from assay.domain import Message
    from assay.runs.callbacks import StepCallback
    from assay_policy_training.core.config import Asynchrony, Optimisation
    from assay_policy_training.core.policy import Policy
    from assay_policy_training.core.prompt import PromptItem
    from assay_policy_training.core.sampling import Sampling, derived_seed
    from assay_policy_training.plugins.prompts.source import ShuffledPrompts
    from assay_policy_training.recipe.loading import load_recipe
    from assay_policy_training.training.loop import PolicyLoop

    items = [PromptItem((Message("user", f"Name colour {n}."),)) for n in range(64)]
    last = WARM_UP + arm.steps
    recipe = replace(
        load_recipe("async_grpo"),
        sampling=Sampling(prompts_per_step=arm.prompts, group_size=GROUP, max_new_tokens=8, max_prompt_tokens=64),
        optimisation=Optimisation(lr=1e-4, micro_batch_rows=64),
        asynchrony=Asynchrony(**arm.asynchrony),
        report_kl=False,
        steps=last + 8,  # engines go on to the end
        checkpoint_every=0,
        checkpoint_minutes=0.0,
    )
    ends: dict[int, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="async-rl-") as folder:
        policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64)
        reward = LetterShare(arm.slower if arm.rewards else 0.0)
        trainer = PolicyLoop(recipe, policy, ShuffledPrompts(items, seed=0), [reward], Path(folder))
        pool = trainer.collector.pool
        assert pool is not None
        pool.hire = lambda index: SleepingEngine(policy, 0.0 if arm.rewards else arm.slower)
        with closing(trainer):
            ended = StepCallback(lambda row: ends.update({row["step"]: (time.perf_counter(), time.process_time())}))
            rows = trainer.train(last, callbacks=[ended])
        rollouts = [json.loads(line) for line in (Path(folder) / "rollouts.jsonl").read_text().splitlines()]
    assert max(row["staleness_max"] for row in rows) <= recipe.asynchrony.ahead
    seconds, cpu = (late - early for late, early in zip(ends[last], ends[WARM_UP], strict=True))
    firsts = [row for row in rollouts[::GROUP] if row["step"] > WARM_UP]
    seeds = [row["response"] if arm.rewards else derived_seed(recipe.seed, row["uid"]) for row in firsts]
    busy = arm.slower * sum(map(seconds_of, seeds))
    used.setdefault(name, []).append(busy / (arm.engines * seconds))
    return Cost(seconds, cpu, arm.steps)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    used: dict[str, list[float]] = {}
    arms = dict(list(ARMS.items())[:QUICK_ARMS]) if options.quick else ARMS
    if options.quick:
        arms = {name: replace(arm, steps=arm.steps // 2, slower=arm.slower / 2) for name, arm in arms.items()}
    contenders = {name: (lambda name=name, arm=arm: steps_of(arm, used, name)) for name, arm in arms.items()}
    compared = compare(contenders, options, rounds=options.rounds)
    report = Report(
        "async_rl",
        measures=MEASURES,
        figures={"median_group_s": MEDIAN_S, "sigma": SIGMA},
    )
    for which in ("",) if options.quick else ("", ", rewards"):
        lag, lag_four, four, one, many = (name + which for name in list(ARMS)[: len(ARMS) // 2])
        title = f"4 actors / a lag of 1 with one engine{which}"
        report.ratios[title], report.limits[title] = compared.ratio(four, lag), 1.8
        report.by_wall = [*report.by_wall, title]
        report.ratios[f"4 actors / a lag of 1 with the same actors{which}"] = compared.ratio(four, lag_four)
        if many in used:
            report.ratios[f"32 actors / 32 times one{which}"] = ratio(used[many], used[one])
    for name in arms:
        rate = compared.per_second(name)
        report.figures[name] = {"steps_a_second": str(rate), "engines_in_use": used[name]}
        print(f"{name:<33} {rate.median:6.2f} steps/s, engines in use {max(used[name]):.2f}", file=sys.stderr)
    report.finish(options)


if __name__ == "__main__":
    main()
