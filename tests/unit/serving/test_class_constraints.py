"""Exact classes (CLS-RL): the same verdicts as the released rewards, written here again, and the settings refused."""

import re
from typing import Any

import pytest

from assay.errors import BadInputError
from assay_serving.verifiers.catalogue import CLASSES, constraint_from_dict
from assay_serving.verifiers.constraints.classes import ExactClass, ThinkAnswer

RESPONSES = [
    "<think>It has thorns.</think><answer>Dog rose</answer>",
    "<think>It has\nthorns.</think>\n <answer> dog rose </answer>",
    "<think>Is it <answer>tulip</answer>?</think><answer>dog rose</answer>",  # the first answer counts
    "<think>a</think><answer>\ndog rose\n</answer>",  # an answer on a line of its own is none to the code
    "<think>a</think> then <answer>dog rose</answer>",
    "<think>a</think><answer>dog rose</answer> Done.",
    "<think>a</think></think><answer></answer><answer>dog rose</answer>",
    "</think><answer>dog rose</answer>",
    "<think></think><answer></answer>",
    "<think></think><answer>",
    "DOG ROSE",
    "dog rose",
    "<answer>dog\nrose</answer><answer>dog rose</answer></answer>",
    "dog roses",
    "a dog rose",
]


def released_accuracy(content: str, label: str) -> bool:
    """`accuracy_reward` of minglllli/CLS-RL at 926eb1b, without its comparison by math-verify."""
    match = re.search(r"<answer>(.*?)</answer>", content)
    answer = match.group(1).strip() if match else content.strip()
    return answer.lower() == label.strip().lower()


def released_form(content: str) -> bool:
    return re.fullmatch(r"<think>.*?</think>\s*<answer>.*?</answer>", content, re.DOTALL) is not None


@pytest.mark.parametrize("response", RESPONSES)
def test_the_verdicts_are_those_of_the_released_rewards(response: str) -> None:
    assert ExactClass("dog rose").check(response).passed is released_accuracy(response, "dog rose")
    assert ThinkAnswer().check(response).passed is released_form(response)
    assert ExactClass("dog rose", thinking=False).check(response).passed is (response == "dog rose")


def test_what_is_right_and_what_is_not() -> None:
    right = [ExactClass("dog rose").check(response).passed for response in RESPONSES]
    assert right == [True, True, False, False, True, True, False, True, False, False, True, True, True, False, False]
    assert [n for n, text in enumerate(RESPONSES) if ThinkAnswer().check(text).passed] == [0, 1, 2, 3, 6, 8]
    long = "<think>" + "</think><answer>" * 20_000 + "</answer"
    assert not ThinkAnswer().check(long).passed  # in linear time
    assert not ExactClass("rose").check("<answer>" * 200_000).passed
    assert not ExactClass("rose").check("").passed


def test_rows_and_refusals() -> None:
    settings: dict[str, Any] = {"exact_class": {"label": "rose"}, "exact_answer": {"answers": ["rose", "dog rose"]}}
    for kind in CLASSES:
        made = constraint_from_dict({"kind": kind, **settings.get(kind, {})})
        assert constraint_from_dict(made.to_dict()) == made
    for wrong, field in (({}, "label"), ({"label": ""}, "label"), ({"label": "x", "thinking": "no"}, "thinking")):
        with pytest.raises(BadInputError) as caught:
            constraint_from_dict({"kind": "exact_class", **wrong})
        assert caught.value.field == field
