"""Prompt sources that adapt, mix or repeat: what they draw, and that a restart changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from rollout_rows import rollouts

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.dump import Dump
from assay_policy_training.plugins.prompts.gain_rl import (
    Angles,
    GainPrompts,
    GainRl,
    concentration,
    measure_angles,
    question_span,
)
from assay_policy_training.plugins.prompts.streams import Mixed, OneShot, PromptStage, PromptStages
from assay_policy_training.plugins.protocols import PromptSource, StepReport
from assay_policy_training.recipe.loading import load_recipe

CPU = torch.device("cpu")


def items(number: int = 30) -> list[PromptItem]:
    """Sources easy, hard, odd in turn."""
    return [
        PromptItem((Message("user", f"question {n}"),), meta={"source": ("easy", "hard", "odd")[n % 3]})
        for n in range(number)
    ]


def report(step: int, drawn: Sequence[PromptItem], reward: Callable[[str, int], float]) -> StepReport:
    """Four rows a prompt; `reward` of its source and the row's number."""
    rows = [(place, item, number) for place, item in enumerate(drawn) for number in range(4)]
    values = [reward(item.meta["source"], number) for _, item, number in rows]
    batch = rollouts(
        [2] * len(rows),
        uid=[f"{step}.{place}" for place, _, _ in rows],
        items=tuple(item for _, item, _ in rows),
        reward=torch.tensor(values, dtype=torch.float64),
        acc=torch.tensor(values, dtype=torch.float64),
    )
    return StepReport(step, {}, batch)


def mixed_rewards(source: str, number: int) -> float:
    return {"easy": 1.0, "hard": float(number == 0), "odd": float(number % 2)}[source]


def gain(prompts: Sequence[PromptItem], seed: int) -> GainPrompts:
    angles = [Angles(0.01 * number, 0.1) for number in range(len(prompts))]
    return GainPrompts(prompts, angles, GainRl(width=4.0, pace=5.0, limit=10.0), seed=seed)


SOURCES: dict[str, Callable[[], Any]] = {
    "mixed": lambda: Mixed({"easy": 1, "hard": 3}).open(items(), seed=2),
    "dump": lambda: Dump(window=8).open(items(), seed=2),
    "one_shot": lambda: OneShot(rows=(4, 7)).open(items(), seed=2),
    "stages": lambda: PromptStages((PromptStage(("easy",), 2), PromptStage(("hard", "odd"), 1), PromptStage())).open(
        items(), seed=2
    ),
    "gain_rl": lambda: gain(items(), seed=2),
}


def worked(source: PromptSource, first: int, last: int) -> list[list[str]]:
    """What the steps draw, each of which is told of."""
    found = []
    for step in range(first, last + 1):
        drawn = source.next(5)
        found.append([item.prompt[0].text for item in drawn])
        source.observe(report(step, drawn, mixed_rewards))
    return found


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_restart_changes_nothing(name: str) -> None:
    whole = worked(SOURCES[name](), 1, 8)
    first = SOURCES[name]()
    assert worked(first, 1, 3) == whole[:3]
    second = SOURCES[name]()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert worked(second, 4, 8) == whole[3:]


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_state_of_other_prompts_is_refused(name: str) -> None:
    state = SOURCES[name]().state_dict()
    other = [PromptItem((Message("user", f"another {n}"),), meta=item.meta) for n, item in enumerate(items())]
    opened: dict[str, Any] = {
        "mixed": lambda: Mixed().open(other, seed=2),
        "dump": lambda: Dump().open(other, seed=2),
        "one_shot": lambda: OneShot(rows=(4, 7)).open(other, seed=2),
        "stages": lambda: PromptStages(
            (PromptStage(("easy",), 2), PromptStage(("hard", "odd"), 1), PromptStage())
        ).open(other, seed=2),
        "gain_rl": lambda: gain(other, seed=2),
    }
    with pytest.raises(BadInputError, match="not the prompts"):
        opened[name]().load_state_dict(state)


def test_mixture_follows_its_weights() -> None:
    drawn = Mixed({"easy": 1, "hard": 3}).open(items(), seed=0).next(2000)
    counts = Counter(item.meta["source"] for item in drawn)
    assert counts["odd"] == 0
    assert counts["hard"] / counts["easy"] == pytest.approx(3, rel=0.15)
    with pytest.raises(BadInputError, match="no prompt of source 'none'"):
        Mixed({"none": 1}).open(items(), seed=0)
    with pytest.raises(BadInputError, match="row 1"):
        Mixed().open([PromptItem((Message("user", "of no source"),))], seed=0)


def test_dump_draws_where_there_is_most_to_learn() -> None:
    source = Dump(window=300).open(items(), seed=0)
    assert list(source.probabilities().values()) == pytest.approx([1 / 3] * 3)
    for step in range(1, 400):
        source.observe(report(step, [items()[step % 3]], mixed_rewards))
    found = source.probabilities()
    # Mean |R - group mean|: 0 for what is always right, 0.375 for one right of four, 0.5 for half.
    assert [sum(w) / len(w) for w in source.windows.values()] == pytest.approx([0, 0.375, 0.5])
    assert max(map(len, source.windows.values())) == 300
    assert found["odd"] > found["hard"] > found["easy"]


def test_dump_learns_from_unnormalised_advantages_before_filters() -> None:
    """Divided by the group's deviation the two sources would look alike; a row without a reward says nothing."""
    source = Dump().open(items(), seed=0)

    def reward(name: str, number: int) -> float:
        if number == 3:
            return float("nan")
        return {"easy": 0.5 + 0.01 * (number % 2), "hard": float(number % 2), "odd": 1.0}[name]

    source.observe(report(1, items(3), reward))
    learnt = {name: sum(window) / len(window) for name, window in source.windows.items()}
    assert learnt["hard"] == pytest.approx(100 * learnt["easy"])
    assert source.counts == {"easy": 3, "hard": 3, "odd": 3}


def test_one_shot_fills_a_batch_with_copies() -> None:
    drawn = OneShot(rows=(3,)).open(items(), seed=0).next(128)
    assert {item.prompt[0].text for item in drawn} == {"question 3"}
    two = OneShot(rows=(3, 5)).open(items(), seed=0)
    assert Counter(item.prompt[0].text for item in two.next(7)) == {"question 3": 4, "question 5": 3}
    assert two.next(1)[0].prompt[0].content == "question 5"
    with pytest.raises(BadInputError, match="no row 30"):
        OneShot(rows=(30,)).open(items(), seed=0)


def test_one_shot_takes_the_example_whose_accuracy_varied_most() -> None:
    prompts = items(4)
    histories = ([0.5, 0.5], [0.0, 1.0], [0.2, 0.4], None)
    prompts = [
        PromptItem(item.prompt, meta={"accuracy_history": history})
        for item, history in zip(prompts, histories, strict=True)
    ]
    drawn = OneShot(rows=(), count=2).open(prompts, seed=0).next(2)
    assert [item.prompt[0].text for item in drawn] == ["question 1", "question 2"]
    with pytest.raises(BadInputError, match="3 prompts have a history"):
        OneShot(rows=(), count=4).open(prompts, seed=0)


def test_one_shot_refuses_to_draw_until_groups_are_mixed() -> None:
    with pytest.raises(BadInputError) as caught:
        load_recipe("dapo", ["source.kind=one_shot"])
    assert caught.value.field == "filters"


def test_stages_follow_each_other() -> None:
    source = SOURCES["stages"]()
    found = []
    for step in range(1, 6):
        drawn = source.next(10)
        found.append({item.meta["source"] for item in drawn})
        source.observe(report(step, drawn, mixed_rewards))
    assert found == [{"easy"}, {"easy"}, {"hard", "odd"}, {"easy", "hard", "odd"}, {"easy", "hard", "odd"}]
    with pytest.raises(BadInputError, match="no prompt belongs"):
        PromptStages((PromptStage(("none",)),)).open(items(), seed=0)
    with pytest.raises(BadInputError, match=r"stages\.0\.steps"):
        PromptStages((PromptStage(), PromptStage()))


def test_gain_moves_from_concentrated_prompts_on() -> None:
    source = gain(items(), seed=0)
    assert source.order[:3] == [29, 28, 27], "the highest score first"
    early = [source.order.index(items().index(item)) for item in source.next(6)]
    assert len(set(early)) == 6, "no prompt twice"
    for step in range(1, 30):
        source.observe(report(step, source.next(2), lambda name, number: 1.0))
    assert source.centre == 29, "it stays at the last prompt"
    late = [source.order.index(items().index(item)) for item in source.next(6)]
    assert sum(late) > sum(early) + 60
    assert len(source.next(70)) == 70


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=CPU, max_prompt_tokens=64)


def test_angles_are_of_the_question_itself(policy: Policy) -> None:
    """The released slice cos[a:b][a:b] cuts rows twice: rows 2a..2b against all columns."""
    states = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1], [1, 1], [1, 0]])
    found = concentration(states, 2, 4)
    assert found == Angles(within=1.0, across=0.0)
    unit = torch.nn.functional.normalize(states, dim=-1)
    released = (unit @ unit.T)[2:4][2:4]
    assert released.numel() == 0, "and what is left is often nothing at all"
    item = PromptItem((Message("system", "Be brief."), Message("user", "What is tall, green and old?")))
    ids, start, end = question_span(policy.renderer, item)
    assert 0 < start < end <= len(ids)
    assert str(policy.tokenizer.decode(ids[start:end])).strip() == "What is tall, green and old?"


def test_angles_of_a_model(policy: Policy) -> None:
    asked = [
        PromptItem((Message("user", text),)) for text in ("same same same same", "tell me of 7 blue zebras, or 3?")
    ]
    repeated, varied = measure_angles(policy, asked)
    assert -1 <= varied.within < repeated.within <= 1 + 1e-6
    assert measure_angles(policy, asked) == [repeated, varied]
    opened = GainRl().open(asked, seed=0, policy=policy)
    assert sorted(opened.order) == [0, 1]
