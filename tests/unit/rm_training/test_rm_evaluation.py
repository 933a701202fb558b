"""Evaluation through the serving engine: numbers, failures that are counted and never wrong silently, slices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.domain import Message, PreferencePair
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_rm_training.evaluation.pairs import evaluate
from assay_rm_training.run_settings import EvalConfig
from assay_serving.scorer import ModelInfo, ScoreItem

INFO = ModelInfo("letters", "1", "scalar", "t", 100, calibrated=False, parity="passed", dtype="float32", device="cpu")


class CountsLetters:
    """A whole scorer of a toy kind: the reward is the number of `+` minus `-`; a `?` cannot be scored."""

    info = INFO

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        return [
            ScoreFailure("too_long", "a question mark")
            if "?" in item.response
            else Score(
                float(item.response.count("+") - item.response.count("-")),
                model="letters",
                version="1",
                template_hash="t",
                tokens=len(item.response),
                truncated="~" in item.response,
            )
            for item in items
        ]


def pair(
    chosen: str, rejected: str, prompt: str = "p", source: str = "", category: str = "", comparison_id: str = ""
) -> PreferencePair:
    return PreferencePair(
        (Message("user", prompt),), chosen, rejected, comparison_id=comparison_id, source=source, category=category
    )


def test_the_figures_of_a_small_set() -> None:
    pairs = [
        pair("++", "-", "a", source="x", category="k"),
        pair("+", "++", "a", source="x", category="k"),
        pair("=", "==", "b", source="y", category="k"),
        pair("?", "-", "c", source="y", category="k"),
        pair("+~", "?", "d", source="y", category="k"),
    ]
    found = evaluate(CountsLetters(), pairs, seed=3)
    assert (found.pairs, found.scored) == (5, 3)
    assert found.failures == {"chosen too_long": 1, "rejected too_long": 1}
    assert found.accuracy.value == pytest.approx(1 / 3)
    assert found.accuracy.half_credit == pytest.approx(0.5)
    assert (found.accuracy.ties, found.accuracy.groups) == (1, 2)
    assert found.accuracy_failures_wrong == pytest.approx(1 / 5)
    assert found.length_baseline == pytest.approx(1 / 3)
    assert found.margin_mean == pytest.approx((3 - 1 + 0) / 3)
    assert found.truncated_share == 0.0  # the truncated one is among those that could not be scored
    assert {(s.by, s.name): (s.pairs, s.accuracy) for s in found.slices if s.by == "source"} == {
        ("source", "x"): (2, 0.5),
        ("source", "y"): (1, 0.0),
    }
    assert [item.failure for item in found.items] == [None, None, None, "chosen too_long", "rejected too_long"]
    assert found.items[4].chosen == 1.0  # what could be scored is kept
    assert found == evaluate(CountsLetters(), pairs, seed=3)
    json.dumps(found.to_dict())


texts = st.text(alphabet="+-=", min_size=1, max_size=6)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=20))
def test_swapping_every_pair_negates_margins_and_swaps_right_and_wrong(sides: list[tuple[str, str]]) -> None:
    there = evaluate(CountsLetters(), [pair(a, b) for a, b in sides])
    back = evaluate(CountsLetters(), [pair(b, a) for a, b in sides])
    assert back.margin_mean == pytest.approx(-there.margin_mean)
    assert there.accuracy.half_credit + back.accuracy.half_credit == pytest.approx(1.0)
    assert [i.margin for i in back.items] == [-(i.margin or 0.0) for i in there.items]


def test_items_are_written_one_a_line(tmp_path: Path) -> None:
    found = evaluate(CountsLetters(), [pair("+", "-", comparison_id="c-1"), pair("?", "-")])
    found.write(tmp_path)
    first, second = map(json.loads, (tmp_path / "items.jsonl").read_text().splitlines())
    assert (first["comparison_id"], first["margin"], first["failure"]) == ("c-1", 2.0, None)
    assert (second["chosen"], second["margin"], second["failure"]) == (None, None, "chosen too_long")


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(BadInputError, match="must be at least 0"):
        EvalConfig("rm", "pairs", limit=-5)


def test_nothing_to_evaluate_is_a_clear_error() -> None:
    with pytest.raises(BadInputError, match="no pairs"):
        evaluate(CountsLetters(), [])
    with pytest.raises(BadInputError, match="none of the 2 pairs could be scored"):
        evaluate(CountsLetters(), [pair("?", "?"), pair("a", "?")])
