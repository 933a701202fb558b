"""Length bias of stored scores: correlations, their intervals, means by length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay.score import Score, ScoreFailure
from assay.store.records import insert_scores
from assay.workspace import Workspace
from assay_rm_training.length_bias.measure import correlation
from assay_rm_training.length_bias.stored import (
    ScoredModelRef,
    StoredLengths,
    by_length,
    labelled_lengths,
    length_correlation,
    stored_lengths,
)


def lengths_of(rewards: list[float], lengths: list[float], prompts: list[str]) -> StoredLengths:
    return StoredLengths(np.array(rewards), np.array(lengths), tuple(prompts), len(rewards))


def drawn(count: int = 200, seed: int = 0) -> StoredLengths:
    rng = np.random.default_rng(seed)
    prompts = [f"p-{n // 4}" for n in range(count)]
    lengths = rng.integers(1, 2000, size=count).astype(float)
    return StoredLengths(0.002 * lengths + rng.normal(size=count), lengths, tuple(prompts), count)


def test_the_correlations_are_pearsons_and_lie_in_their_intervals() -> None:
    scored = drawn()
    found = length_correlation(scored)
    assert found.overall is not None
    assert found.within_prompt is not None
    assert found.slope is not None
    assert found.overall.value == pytest.approx(np.corrcoef(scored.rewards, scored.lengths)[0, 1])
    groups = np.array([int(prompt[2:]) for prompt in scored.prompts])
    size = np.bincount(groups)
    r, length = (x - (np.bincount(groups, weights=x) / size)[groups] for x in (scored.rewards, scored.lengths))
    assert found.within_prompt.value == pytest.approx(correlation(r, length))
    assert found.slope.value == pytest.approx(100 * float(r @ length) / float(length @ length))
    for estimate in (found.overall, found.within_prompt, found.slope):
        assert estimate.interval is not None
        assert estimate.interval.low < estimate.value < estimate.interval.high
        assert estimate.pairs == 200


def test_figures_of_few_prompts_are_undetermined_and_single_responses_do_not_count() -> None:
    scored = drawn(36)  # 9 prompts
    singles = 40
    rewards, lengths = [*scored.rewards, *[1.0] * singles], [*scored.lengths, *map(float, range(singles))]
    found = length_correlation(lengths_of(rewards, lengths, [*scored.prompts, *(f"s-{n}" for n in range(singles))]))
    assert found.overall is not None
    assert found.overall.interval is not None
    for estimate in (found.within_prompt, found.slope):
        assert estimate is not None
        assert estimate.interval is None
        assert estimate.pairs == 36


def test_nothing_that_varies_is_no_figure() -> None:
    found = length_correlation(lengths_of([1.0, 2.0, 3.0], [7.0, 7.0, 7.0], ["a", "b", "c"]))
    assert found.overall is None
    single = length_correlation(lengths_of([1.0, 2.0, 4.0], [1.0, 2.0, 3.0], ["a", "b", "c"]))
    assert single.overall is not None
    assert single.within_prompt is None  # one response a prompt: nothing varies within
    assert single.slope is None
    with pytest.raises(BadInputError, match="no scored responses"):
        length_correlation(lengths_of([], [], []))


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 300), st.integers(0, 5)), min_size=1, max_size=60))
def test_the_groups_hold_every_response_once(rows: list[tuple[float, int, int]]) -> None:
    scored = lengths_of([r for r, _, _ in rows], [float(n) for _, n, _ in rows], [f"p-{p}" for _, _, p in rows])
    groups = by_length(scored)
    assert sum(group.responses for group in groups) == len(rows)
    assert [group.low for group in groups] == sorted(group.low for group in groups)
    total = sum(group.reward * group.responses for group in groups)
    assert total == pytest.approx(float(scored.rewards.sum()), abs=1e-6)
    assert all(group.interval is None or group.interval.low <= group.interval.high for group in groups)


def test_only_the_models_own_scores_are_read(
    workspace: Workspace, fill_comparisons: Callable[[int], list[str]]
) -> None:
    fill_comparisons(3)
    with workspace.store.unit() as db:
        responses = db.execute("SELECT response_id, content FROM responses ORDER BY response_id").fetchall()

        def keep(version: str, principle: str | None, scale: float, but: int) -> None:
            scores = [
                (
                    response,
                    ScoreFailure("too_long", "no room")
                    if n == but
                    else Score(scale * len(content), "m", version, "t", 5, False, principle=principle),
                )
                for n, (response, content) in enumerate(responses)
            ]
            asked = [principle] * len(scores)
            insert_scores(db, scores, model="m", version=version, template_hash="t", run_id=None, principles=asked)

        keep("one", None, 1.0, 0)
        keep("two", None, -1.0, -1)
        keep("one", "The response is short.", -1.0, -1)
        found = stored_lengths(db, ScoredModelRef("one", "t"))
        by_principle = stored_lengths(db, ScoredModelRef("one", "t", "The response is short."))
        pairs = labelled_lengths(db, ScoredModelRef("two", "t"))
        halved = labelled_lengths(db, ScoredModelRef("one", "t"))
    assert (len(found.rewards), found.total) == (5, 5)  # the failure is no number
    assert found.rewards.tolist() == found.lengths.tolist()
    assert by_principle.rewards.tolist() == (-by_principle.lengths).tolist()
    assert len(pairs.prompts) == 3
    assert (pairs.lengths[0] > pairs.lengths[1]).all()  # "The better answer ..." is the chosen one
    assert (pairs.rewards[0] < pairs.rewards[1]).all()
    assert len(halved.prompts) == 2  # a pair with a failed side is left out
