"""Generated prompts: deterministic, distinct, never contradictory, spread over the kinds, split by topic."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay_policy_training.plugins.prompts.constrained import MIX, ConstrainedPrompt, generate_prompts, split_of
from assay_policy_training.plugins.prompts.demonstration import demonstrate
from assay_policy_training.plugins.prompts.topics import TASKS, TOPICS
from assay_serving.verifiers import conflict, constraint_from_dict, verify
from assay_serving.verifiers.catalogue import GENERATED


@pytest.fixture(scope="module")
def many() -> list[ConstrainedPrompt]:
    return generate_prompts(3000, seed=11)


def test_topics_and_tasks_are_many_and_distinct() -> None:
    assert len({topic.name for topic in TOPICS}) == len(TOPICS) >= 60
    assert len({task.text for task in TASKS}) == len(TASKS) >= 8
    assert all(len(topic.words) == len(set(topic.words)) >= 4 for topic in TOPICS)
    assert "umbrellas" not in {topic.name for topic in TOPICS}  # the examples' own topic


@given(st.integers(0, 2**32), st.integers(0, 40))
def test_same_seed_same_prompts_and_fewer_are_a_prefix(seed: int, n: int) -> None:
    assert generate_prompts(n, seed) == generate_prompts(40, seed)[:n]


def test_another_seed_gives_other_prompts() -> None:
    first, second = ({p.prompt for p in generate_prompts(200, seed)} for seed in (1, 2))
    assert len(first & second) < 20


def test_prompts_are_distinct_and_end_with_the_user(many: list[ConstrainedPrompt]) -> None:
    assert len({p.prompt for p in many}) == len(many)
    for p in many:
        assert [m.role for m in p.prompt] in (["user"], ["user", "assistant", "user"])
        assert p.split_key.lower() in p.prompt[-1].text.lower()


def test_no_two_constraints_of_a_prompt_conflict(many: list[ConstrainedPrompt]) -> None:
    for p in many:
        assert 1 <= len(p.constraints) <= 2
        assert len({c.kind for c in p.constraints}) == len(p.constraints)
        for first in p.constraints:
            for second in p.constraints:
                assert first is second or conflict(first, second) is None


def test_prompts_can_be_satisfied(many: list[ConstrainedPrompt]) -> None:
    """A simple builder finds a passing answer to nearly every prompt, and to some of every kind."""
    possible = Counter(p.kind for p in many if demonstrate(p.constraints) is not None)
    assert sum(possible.values()) > 0.95 * len(many)
    assert all(kind in possible for kind in MIX)


def test_worked_examples_pass_their_own_constraints(many: list[ConstrainedPrompt]) -> None:
    shown = [p for p in many if len(p.prompt) == 3]
    assert 0.3 * len(many) < len(shown) < 0.9 * len(many)
    assert all(verify(p.constraints, p.prompt[1].text).passed for p in shown)


def test_wordings_state_the_constraints(many: list[ConstrainedPrompt]) -> None:
    for p in many:
        text = p.prompt[-1].text.casefold()
        for constraint in p.constraints:
            assert any(wording.casefold() in text for wording in constraint.wordings())


def test_every_kind_occurs_about_as_often_as_the_mix_says(many: list[ConstrainedPrompt]) -> None:
    assert MIX.keys() == GENERATED.keys()
    counts = Counter(constraint.kind for p in many for constraint in p.constraints)
    total, weights = sum(counts.values()), sum(MIX.values())
    for kind, weight in MIX.items():
        expected = total * weight / weights
        assert 0.5 * expected < counts[kind] < 1.8 * expected, kind


@pytest.mark.parametrize("kind", sorted(MIX))
def test_kinds_can_be_chosen(kind: str) -> None:
    prompts = generate_prompts(30, 5, kinds=[kind], constraints_per_prompt=[1])
    assert {p.kind for p in prompts} == {kind}


def test_kind_names_are_sorted_and_sizes_are_kept() -> None:
    prompts = generate_prompts(50, 5, kinds=["no_commas", "max_words"], constraints_per_prompt=[2])
    assert {p.kind for p in prompts} == {"max_words+no_commas"}


def test_splits_share_no_topic(many: list[ConstrainedPrompt]) -> None:
    train = {p.split_key for p in generate_prompts(500, 3, split="train")}
    heldout = {p.split_key for p in generate_prompts(500, 3, split="heldout")}
    assert not train & heldout
    assert len(heldout) >= 10
    assert len(train) > 2 * len(heldout)
    assert all(p.split == split_of(p.split_key) for p in many)


def test_meta_reads_back(many: list[ConstrainedPrompt]) -> None:
    for p in many[:200]:
        meta = json.loads(json.dumps(p.to_meta()))
        assert tuple(constraint_from_dict(c) for c in meta["constraints"]) == p.constraints
        assert (meta["kind"], meta["topic"]) == (p.kind, p.split_key)


def test_none_are_made_when_none_are_wanted() -> None:
    assert generate_prompts(0, 1) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kinds": ["max_chars"]}, "no kind of constraint is named 'max_chars'; did you mean max_words"),
        ({"kinds": []}, "no kinds given"),
        ({"constraints_per_prompt": []}, "constraints_per_prompt"),
        ({"constraints_per_prompt": [0]}, "constraints_per_prompt"),
        ({"kinds": ["quoted"], "constraints_per_prompt": [2]}, "constraints_per_prompt"),
        ({"kinds": ["all_lowercase", "all_uppercase"], "constraints_per_prompt": [2]}, "only 0 distinct prompts"),
        ({"n": 100_000, "kinds": ["quoted"], "constraints_per_prompt": [1]}, r"only \d+ distinct prompts"),
        ({"n": -1}, "'n'"),
    ],
)
def test_wrong_requests_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        generate_prompts(**{"n": 10, "seed": 1, **arguments})  # type: ignore[arg-type]
