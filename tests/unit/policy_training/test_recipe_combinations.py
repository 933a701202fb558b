"""Combinations of plug-ins that would train something else than they say are refused, and the key is named."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import BadInputError
from assay_policy_training.recipe.loading import recipe_from_dict

STAGES = {"kind": "stages", "setting": "lr", "stages": [{"step": 9, "value": 1e-4}]}
COOLER = {"kind": "linear", "end": 20, "setting": "temperature", "final": 0.5}
WEIGHTS = {"kind": "gradient_weights", "parts": ["a", "b"]}
RECAP = {"kind": "objectives"}
PLAIN: dict[str, Any] = {"name": "plain", "estimator": "grpo", "objective": "ppo_clip"}


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"schedules": [{"kind": "length_lr", "at": 5}, STAGES]}, "schedules"),
        ({"schedules": [STAGES, {"kind": "cosine", "end": 20}]}, "schedules"),
        ({"contexts": "guide", "objective": "aipo"}, "objective"),
        ({"contexts": "guide", "objective": {"kind": "ppo_clip", "bypass": True}}, "objective"),
        ({"estimator": "gdpo", "shaping": ["overlong"]}, "shaping"),
        ({"estimator": "signed", "shaping": ["overlong"]}, "shaping"),
        ({"estimator": "constant", "shaping": ["kl"]}, "shaping"),
        ({"estimator": {"kind": "constrained", "thresholds": {"a": 1.0}}, "shaping": ["overlong"]}, "shaping"),
        ({"replay": RECAP, "aggregation": {"mode": "token-mean"}}, "replay.denominator"),
        ({"replay": {**RECAP, "denominator": "tokens"}}, "replay.denominator"),
        ({"reward": WEIGHTS, "sampling": {"temperature": 0.6}}, "reward.temperature"),
        ({"objective": "pacs", "corrections": ["token_tis"]}, "corrections"),
        ({"objective": {"kind": "drpo", "max_length": 128}, "corrections": ["geometric"]}, "corrections"),
        ({"objective": "inpo", "token_weights": ["not_truncated"]}, "token_weights"),
        ({"objective": "pacs", "replay": "recent"}, "objective"),
        ({"replay": "recent", "schedules": [COOLER]}, "schedules"),
        ({"objective": "gspo", "aggregation": {"mode": "token-mean"}}, "aggregation.mode"),
        ({"objective": "gmpo", "aggregation": {"mode": "seq-mean-token-sum"}}, "aggregation.mode"),
        ({"objective": "direct_advantage"}, "aggregation.mode"),
        ({"replay": "priority", "aggregation": {"mode": "token-mean"}}, "aggregation.mode"),
        ({"teacher": "tiny"}, "teacher"),
        ({"critic": "value_model"}, "critic"),
        ({"objective": "reinforce", "asynchrony": {"lag": 1}}, "asynchrony.lag"),
        ({"objective": "gpg", "asynchrony": {"lag": 2}, "corrections": ["geometric"]}, "asynchrony.lag"),
    ],
)
def test_refused(sections: dict[str, Any], key: str) -> None:
    with pytest.raises(BadInputError) as refusal:
        recipe_from_dict({**PLAIN, **sections})
    assert refusal.value.field == key


@pytest.mark.parametrize(
    "sections",
    [
        {"schedules": [STAGES, {"kind": "cosine", "end": 20, "setting": "temperature", "final": 0.5}]},
        {"contexts": "guide"},
        {"replay": "recent", "schedules": [STAGES]},
        {"objective": "gspo"},
        {"objective": "direct_advantage", "aggregation": {"mode": "seq-mean-token-sum"}},
        {"estimator": "gdpo"},
        {"replay": {**RECAP, "denominator": "tokens"}, "aggregation": {"mode": "token-mean"}},
        {"reward": {**WEIGHTS, "temperature": 0.6}, "sampling": {"temperature": 0.6}},
        {"teacher": "tiny", "auxiliary": ["teacher_kl"]},
        {"critic": "value_model", "estimator": "gae"},
        {"objective": "reinforce", "asynchrony": {"lag": 1}, "corrections": ["token_tis"]},
        {"objective": "reinforce", "asynchrony": {"chunks": 2}},
        {"objective": "ppo_clip", "asynchrony": {"lag": 1}},
    ],
)
def test_the_rest_is_not(sections: dict[str, Any]) -> None:
    recipe_from_dict({**PLAIN, **sections})
