"""Environments of other projects, by their published packages: the reward of a good and of a bad trajectory is what
each project's own loop gives, and a policy trains in them.

Each runs as a program of tests/support/peers in the environment that `make peers-env` builds; without one its test
skips.
"""

from __future__ import annotations

from typing import Any

import pytest
from peer_programs import said_by

SMALL = [
    "sampling.prompts_per_step=2",
    "sampling.group_size=4",
    "optimisation.micro_batch_rows=8",
    "optimisation.autocast=false",
    "episodes.turns=3",
]
TRAINING = ["--steps", "3", *(word for setting in SMALL for word in ("--set", setting))]


def check_trained(metrics: dict[str, Any]) -> None:
    """Three steps were made, no episode failed."""
    assert metrics["step"] == 3, metrics
    assert metrics["episodes_failed"] == 0, metrics
    assert metrics["grad_norm"] > 0, metrics


class TestGymnasium:
    @pytest.fixture(scope="class")
    @classmethod
    def told(cls) -> dict[str, Any]:
        result: dict[str, Any] = said_by("gymnasium", "gymnasium_episodes.py", *TRAINING)
        return result

    @pytest.mark.parametrize("trajectory", ["good", "bad", "slippery", "cut", "truncated"])
    def test_the_reward_is_its_own(self, told: dict[str, Any], trajectory: str) -> None:
        """FrozenLake crossed, fallen into, and slipped on; Taxi, whose steps all earn, cut by us and by itself."""
        assert told[trajectory]["parts"] == {"reward": told[f"{trajectory}, its own"]}
        assert (told["good"]["parts"]["reward"], told["bad"]["parts"]["reward"]) == (1, 0)
        assert (told["cut"]["ended"], told["truncated"]["ended"]) == ("turns", "done")

    def test_what_terminals_colour_can_be_read(self, told: dict[str, Any]) -> None:
        assert told["good"]["opening"][0].endswith("\n\nActions: left, down, right, up\n\n[S]FFF\nFHFH\nFFFH\nHFFG")
        assert told["good"]["observed"][0] == "  (Down)\nSFFF\n[F]HFH\nFFFH\nHFFG"
        assert "\x1b" not in str(told["cut"])

    def test_a_turn_without_an_action_is_no_step(self, told: dict[str, Any]) -> None:
        assert told["illegal"]["observed"][1] == "error: a turn is left or down or right or up"
        assert told["texts"]["opening"] == ["seed 3, {'a': 1}"]
        assert told["texts"]["observed"][1].startswith("error: a turn is Text(")
        assert told["texts"]["parts"] == {"reward": (5 + 4) / 40}

    def test_what_goes_wrong_is_named(self, told: dict[str, Any]) -> None:
        assert told["no number"]["parts"] == {"reward": "not_finite"}
        assert told["raises"]["failure"] == "RuntimeError: the words are gone"
        assert "`FrozenLak` doesn't exist. Did you mean: `FrozenLake`?" in told["no id"]
        assert "environment.id" in told["no module"]
        assert "'environment.actions': the actions of Pendulum-v1 are Box(" in told["no names"]["failure"]

    def test_a_policy_trains(self, told: dict[str, Any]) -> None:
        check_trained(told["trained"])
