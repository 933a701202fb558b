"""Values of texts: what a logistic model of words and pairs of words learns, and that its weights are the data's."""

from itertools import product
from pathlib import Path

import pytest

from assay.errors import BadInputError
from assay_policy_training.core.text_values import TextValues

COLOURS = ("red", "tan", "gray")
PAIRS = [(f"buy {asked}", f"{shown} mug") for asked, shown in product(COLOURS, COLOURS)]
RIGHT = [float(asked == shown) for asked, shown in product(COLOURS, COLOURS)]


def test_a_pair_of_words_can_decide() -> None:
    values = TextValues()
    assert values(PAIRS) == [0.5] * 9
    values.fit(PAIRS, RIGHT)
    assert all(abs(value - right) < 0.1 for value, right in zip(values(PAIRS), RIGHT, strict=True))


def test_values_are_means_of_what_was_seen_and_follow_from_it(tmp_path: Path) -> None:
    values, again = TextValues(), TextValues()
    rows = [PAIRS[0]] * 4 + [PAIRS[1]] * 4
    targets = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.5, 0.5]
    for model in (values, again):
        model.fit(rows, targets)
    assert values(PAIRS) == again(PAIRS)
    assert values(PAIRS[:2]) == pytest.approx([0.75, 0.25], abs=0.02)
    values.save(tmp_path / "critic.json")
    assert TextValues.load(tmp_path / "critic.json")(PAIRS) == values(PAIRS)
    (tmp_path / "other.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(BadInputError, match=r"other\.json.*no values of texts"):
        TextValues.load(tmp_path / "other.json")
