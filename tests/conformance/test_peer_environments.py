"""Environments of other projects, by their published packages: the reward of a good and of a bad trajectory is what
each project's own loop gives, and a policy trains in them.

Each runs as a program of tests/support/peers in the environment that `make peers-env` builds; without one its test
skips.
"""

from __future__ import annotations

import re
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
        errors = [text.startswith("error: a turn is 0 or 1") for text in told["numbers"]["observed"]]
        assert errors == [True, True, True, False]
        assert told["texts"]["parts"] == {"reward": (5 + 4) / 40}

    def test_what_goes_wrong_is_named(self, told: dict[str, Any]) -> None:
        assert told["no number"]["parts"] == {"reward": "not_finite"}
        assert told["raises"]["failure"] == "RuntimeError: the words are gone"
        assert "`FrozenLak` doesn't exist. Did you mean: `FrozenLake`?" in told["no id"]
        assert "environment.id" in told["no module"]
        assert "'environment.actions': the actions of Pendulum-v1 are Box(" in told["no names"]["failure"]

    def test_a_policy_trains(self, told: dict[str, Any]) -> None:
        check_trained(told["trained"])


class TestMcp:
    """Servers of the package mcp, over pipes and HTTP."""

    @pytest.fixture(scope="class")
    @classmethod
    def told(cls) -> dict[str, Any]:
        result: dict[str, Any] = said_by("mcp", "mcp_tools.py")
        return result

    @pytest.mark.slow
    @pytest.mark.parametrize("way", ["stdio", "http"])
    def test_tools_answer_as_to_its_own_client(self, told: dict[str, Any], way: str) -> None:
        assert [*sorted(told[way]["tools"]), told[way]["results"][0][0]] == told["its own"]
        assert told[way]["tools"]["add"]["a"]["type"] == "integer"

    @pytest.mark.slow
    @pytest.mark.parametrize("way", ["stdio", "http"])
    def test_calls_of_a_turn_run_together_within_their_time(self, told: dict[str, Any], way: str) -> None:
        assert told[way]["waits"] == ["waited 1 s"] * 3
        assert told[way]["took"] < 2.5
        (_, wrong, slow, after) = told[way]["results"]
        assert "unable to parse string as an integer" in wrong[0]
        assert slow == ["error: wait did not answer within 3 s", True]
        assert after == ["call 1, Bonn", False]

    def test_two_servers_in_one_episode(self, told: dict[str, Any]) -> None:
        first, wrong, _ = told["episode"]["observed"]
        assert first == "<tool_response>\n42\n</tool_response>\n<tool_response>\n2\n</tool_response>"
        assert "error: the arguments are a, b; not a" in wrong
        assert told["episode"]["tools"] == [
            f"{prefix}{name}" for prefix in ("", "city_") for name in told["stdio"]["tools"]
        ]

    def test_a_server_is_shared_or_of_an_episode(self, told: dict[str, Any]) -> None:
        counts = {way: [re.findall("call .", one[0]) for one in told[way]] for way in ("shared", "fresh")}
        assert counts == {"shared": [["call 1"], ["call 2"]], "fresh": [["call 1"], ["call 1"]]}

    def test_a_server_that_dies_fails_its_episode_by_name(self, told: dict[str, Any]) -> None:
        assert told["died"]["ended"] == "failed"
        assert re.search("the MCP server .* died under a call: .*the disk is full", told["died"]["failure"])
        assert "call 1, Bonn" in told["after"]["observed"][0]  # the next one has a new server
        assert re.search("the MCP server http.* does not answer", told["gone"])

    def test_an_answer_that_is_no_result_fails_its_episode_and_leaves_the_server_to_others(
        self, told: dict[str, Any]
    ) -> None:
        lied, after = told["lied"]
        assert re.search("the MCP server .* answers lie with what is no result", lied["failure"])
        assert "call 3, Bonn" in after["observed"][0]

    def test_wrong_settings_are_one_line(self, told: dict[str, Any]) -> None:
        assert "no-such-program" in told["no command"]
        assert "(no licence)" in told["ends at once"]
        assert told["both"] == "BadInputError: field 'tools.mcp': a server has a command or a url"
        assert re.search("no tool of the MCP server .* is named 'cuont'; did you mean count", told["no tool"])
        assert "no variable NO_SUCH_VARIABLE" in told["no variable"]

    @pytest.mark.slow
    def test_a_policy_trains(self) -> None:
        """One that was taught a call."""
        metrics = said_by("mcp", "mcp_tools.py", *TRAINING)["trained"]
        check_trained(metrics)
        assert metrics["tool_calls"] > metrics["invalid_calls"]


@pytest.mark.slow
class TestVerifiers:
    """A task of one turn, an environment that talks back, an agent with tools: each run by verifiers itself."""

    @pytest.fixture(scope="class")
    @classmethod
    def told(cls) -> dict[str, Any]:
        result: dict[str, Any] = said_by("verifiers", "verifiers_episodes.py", *TRAINING)
        return result

    @pytest.mark.parametrize("name", ["reverse", "guess", "bank"])
    def test_the_reward_is_its_own(self, told: dict[str, Any], name: str) -> None:
        """By reward function, and their weighted sum."""
        for quality in ("good", "bad"):
            *_, total = (own := told[f"{name} {quality}, its own"]).values()
            parts = told[f"{name} {quality}"]["parts"]
            assert parts == {part: value for part, value in own.items() if part}
            assert sum(parts.values()) == pytest.approx(total)
        assert told[f"{name} good, its own"][""] > told[f"{name} bad, its own"][""]

    def test_turns_and_tools_are_observed(self, told: dict[str, Any]) -> None:
        assert told["prompts"][0] == [
            {"role": "system", "content": "Say the word alone."},
            {"role": "user", "content": "Reverse gold."},
        ]
        assert told["guess bad"]["observed"] == ["higher", "lower", ""]
        assert told["bank good"]["tools"] == ["bank_tools_balance"]
        assert told["bank good"]["observed"][0] == "<tool_response>\n42\n</tool_response>"

    def test_an_episode_that_is_cut_is_scored_by_verifiers(self, told: dict[str, Any]) -> None:
        assert (told["cut"]["ended"], told["cut"]["parts"]) == ("turns", {"won": 0.0, "quick": 0.0})

    def test_what_goes_wrong_is_named(self, told: dict[str, Any]) -> None:
        assert told["not a number"]["parts"]["vowels"] == "not_finite"
        assert told["crash"]["failure"].endswith("TaskError: task Reverse scoring: RuntimeError: the rubric is broken")
        assert "'environment.taskset': verifiers: taskset 'no_such_taskset' not found" in told["no taskset"]
        assert "agent.max_turn Extra inputs are not permitted" in told["no setting"]

    def test_a_policy_trains(self, told: dict[str, Any]) -> None:
        check_trained(told["trained"])
