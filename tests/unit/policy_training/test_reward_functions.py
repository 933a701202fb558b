"""Plain Python functions as rewards: every signature by the names of its parameters, and what a bad answer becomes."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.rollouts.functions.calls import MOST_STUCK, TimedCalls
from assay_policy_training.rollouts.functions.signatures import Signature
from assay_policy_training.rollouts.functions.source import CallSettings, FunctionReward
from assay_policy_training.rollouts.open_rewards import open_rewards
from assay_policy_training.rollouts.reward_uri import parse_reward, recorded_reward
from assay_policy_training.rollouts.rewards import composed, gather_rewards

TEXT = PromptItem((Message("user", "2+2?"),), meta={"answer": "4", "source": "sums"}, as_text=True)
CHAT = PromptItem((Message("system", "Be brief."), Message("user", "3+3?")), meta={"answer": "6"})
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "3+3?"}]
SHORT = CallSettings(timeout=0.2)


def values(function: Callable[..., Any], items: list[PromptItem], responses: list[str]) -> list[float]:
    rewards = FunctionReward(function, settings=SHORT).score(items, responses)
    assert not any(rewards.failures), rewards.failures
    return [float(number) for number in next(iter(rewards.parts.values()))]


def failures(
    function: Callable[..., Any], responses: list[str], settings: CallSettings = SHORT
) -> list[tuple[str, str] | None]:
    rewards = FunctionReward(function, settings=settings).score([TEXT] * len(responses), responses)
    part = next(iter(rewards.parts.values()))
    reasons = [(row[0].code, row[0].message) if row else None for row in rewards.failures]
    assert [reason is not None for reason in reasons] == part.isnan().tolist()  # never a number
    return reasons


def test_one_response_with_the_rows_own_entries() -> None:
    seen = []

    def right(prompt: Any, response: str, answer: str, **row: Any) -> float:
        seen.append((prompt, sorted(row)))
        return float(response == answer)

    assert values(right, [TEXT, CHAT], ["4", "5"]) == [1.0, 0.0]
    assert seen == [("2+2?", ["source"]), (MESSAGES, [])]


def test_a_batch_and_what_its_columns_hold() -> None:
    """Called once; a row that lacks an entry has None there."""

    def lengths(prompts: Any, responses: list[str], source: list[str | None]) -> Any:
        assert (prompts, source) == (["2+2?", MESSAGES], ["sums", None])
        return np.array([len(response) for response in responses])

    assert values(lengths, [TEXT, CHAT], ["four", "6"]) == [4.0, 1.0]
    assert values(lambda responses: torch.tensor([0.5, 2.0]), [TEXT, CHAT], ["", ""]) == [0.5, 2.0]


def test_trl_calls_as_its_trainer_makes_them() -> None:
    """Keywords `prompts`, `completions`, `completion_ids` and columns; a conversation's completion is a message."""

    def trl(prompts: Any, completions: Any, completion_ids: Any, **columns: Any) -> list[float | None]:
        assert columns["answer"] == ["4", "4"]
        return [float(completion == answer) for completion, answer in zip(completions, columns["answer"], strict=True)]

    def conversational(completions: Any, answer: list[str], **columns: Any) -> list[float]:
        return [float(messages[0]["content"] == right) for messages, right in zip(completions, answer, strict=True)]

    assert values(trl, [TEXT, TEXT], ["4", "5"]) == [1.0, 0.0]
    assert values(conversational, [CHAT], ["6"]) == [1.0]


def test_trl_reads_no_token_ids_and_may_log() -> None:
    def by_tokens(completions: Any, completion_ids: Any) -> list[float]:
        return [float(len(ids)) for ids in completion_ids]

    assert failures(by_tokens, ["a"]) == [("raised", failures(by_tokens, ["a"])[0][1])]  # type: ignore[index]
    assert "the sampled tokens are not passed" in str(failures(by_tokens, ["a"]))

    def logging(completions: Any, log_metric: Any, **columns: Any) -> list[float]:
        for completion in completions:
            log_metric("length", len(completion))
        return [0.0] * len(completions)

    source = FunctionReward(logging)
    source.score([TEXT, TEXT], ["a", "abc"])
    assert source.numbers() == {"reward_logging_length": 2.0}
    assert source.numbers() == {}


def test_trl_none_is_left_out_of_the_sum_and_a_failure_is_not() -> None:
    """As `nansum` in GRPOTrainer; a row that no function scores stays missing."""

    def sums(completions: Any, **columns: Any) -> list[float | None]:
        return [1.0, None, None, 1.0]

    def codes(prompts: Any, responses: Any) -> list[Any]:
        return [None, 2.0, None, "much"]

    rewards = gather_rewards([FunctionReward(sums), FunctionReward(codes)], [TEXT] * 4, list("abcd"))
    total = composed(Composition(), rewards)
    assert total[:2].tolist() == [1.0, 2.0]
    assert total[2:].isnan().all()
    assert rewards.parts["sums"].isnan().tolist() == [False, True, True, False]  # recorded as missing
    assert composed(Composition({"sums": 0.0, "codes": 1.0}), rewards).isnan().tolist() == [True, False, True, True]


def test_verl_calls_one_and_a_batch() -> None:
    row = {
        "data_source": "openai/gsm8k",
        "reward_model": {"style": "rule", "ground_truth": "72"},
        "extra_info": {"index": 0},
    }
    item = PromptItem((Message("user", "How many?"),), meta=row)

    def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> Any:
        assert (data_source, extra_info) == ("openai/gsm8k", {"index": 0})
        return {"score": float(solution_str == ground_truth), "acc": True}

    def batch(data_sources: Any, solution_strs: Any, ground_truths: Any, extra_infos: Any) -> list[float]:
        return [float(a == b) for a, b in zip(solution_strs, ground_truths, strict=True)]

    assert values(compute_score, [item, item], ["72", "7"]) == [1.0, 0.0]
    assert values(batch, [item, item], ["72", "7"]) == [1.0, 0.0]
    assert values(compute_score, [PromptItem(item.prompt, meta={**row, "reward_model": {"ground_truth": "7"}})], ["7"])


def test_openrlhf_reads_prompts_and_what_follows_them() -> None:
    def reward_func(queries: list[str], prompts: list[str], labels: list[str], **kwargs: Any) -> dict[str, Any]:
        assert (prompts, kwargs) == (["2+2?", "Be brief.\n3+3?"], {})
        answers = [query.removeprefix(prompt) for query, prompt in zip(queries, prompts, strict=True)]
        right = torch.tensor([float(a == b) for a, b in zip(answers, labels, strict=True)])
        return {"rewards": right, "scores": right, "extra_logs": {"right": right}}

    assert values(reward_func, [TEXT, CHAT], ["4", "5"]) == [1.0, 0.0]
    assert values(lambda queries: torch.ones(len(queries)), [TEXT], ["4"]) == [1.0]


@pytest.mark.parametrize("parameters", ["x, y", "response, responses", "completions, solution_str", ""])
def test_an_ambiguous_signature_says_how_to_name_its_parameters(parameters: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def mine({parameters}): return 0.0", namespace)
    with pytest.raises(
        BadInputError, match=r"cannot tell how to call mine\(.*\): name exactly one parameter of response"
    ):
        Signature.of(namespace["mine"], "mine")


def test_coroutines_run_together_in_one_loop_that_stays() -> None:
    """All wait for the last one to have begun; a second step finds the loop of the first."""
    loops = []

    async def slow(response: str) -> float:
        loops.append(asyncio.get_running_loop())
        while len(loops) % 8:
            await asyncio.sleep(0.001)
        return float(response)

    source = FunctionReward(slow, settings=CallSettings(timeout=30))
    for _ in range(2):
        part = source.score([TEXT] * 8, list("01234567")).parts["slow"]
        assert part.tolist() == list(range(8))
    assert len(set(loops)) == 1
    source.close()


def test_every_bad_answer_fails_its_row_by_name() -> None:
    def moody(response: str) -> Any:
        match response:
            case "raise":
                raise ValueError("bad\n  mood")
            case "exit":
                raise SystemExit(3)
            case _:
                return {"nan": float("nan"), "inf": float("inf"), "text": "1.0", "none": None, "list": [1.0]}.get(
                    response, 1.0
                )

    reasons = failures(moody, ["raise", "exit", "nan", "inf", "text", "none", "list", "fine"])
    assert [reason and reason[0] for reason in reasons] == [
        "raised",
        "raised",
        "non_finite",
        "non_finite",
        "bad_value",
        "not_applicable",
        "bad_value",
        None,
    ]
    assert str(reasons[0]).startswith("('raised', 'ValueError: bad mood (")
    assert reasons[4] == ("bad_value", "returned '1.0' (str), not a number")


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ([1.0], "wrong_length", "returned 1 values for 2 responses"),
        (1.0, "bad_value", "not a list of 2 numbers"),
        ("ab", "bad_value", "not a list of 2 numbers"),
        (None, "bad_value", "not a list of 2 numbers"),
    ],
)
def test_a_batch_that_answers_wrongly_fails_all_its_rows(answer: Any, code: str, message: str) -> None:
    reasons = failures(lambda responses: answer, ["a", "b"])
    assert [reason and reason[0] for reason in reasons] == [code, code]
    assert message in str(reasons)
    assert [r and r[0] for r in failures(lambda responses: [1.0, None], ["a", "b"])] == [None, "not_applicable"]


def test_a_hang_fails_its_row_and_the_others_are_scored() -> None:
    """The row that hangs runs out of time; calls left running are bounded, and counted again once they end."""
    leave = threading.Event()

    def waits(response: str) -> float:
        if response == "hang":
            leave.wait()
        return 1.0

    assert [r and r[0] for r in failures(waits, ["a", "hang", "b"])] == [None, "timeout", None]
    source = FunctionReward(waits, settings=SHORT)
    refused = source.score([TEXT] * 7, ["hang"] * 6 + ["a"]).failures
    messages = [row[0].message for row in refused]
    assert messages[:MOST_STUCK] == ["no answer in 0.2 s (--reward-timeout)"] * MOST_STUCK
    assert set(messages[MOST_STUCK:]) == {"not called: 4 earlier calls are still running"}
    leave.set()
    while any(thread.name == "reward waits" and thread.is_alive() for thread in threading.enumerate()):
        leave.wait(0.01)
    assert source.score([TEXT], ["a"]).parts["waits"].tolist() == [1.0]


@pytest.mark.slow
def test_coroutines_that_hang_or_block_the_loop_time_out() -> None:
    leave = threading.Event()

    async def waits(response: str) -> float:
        if response == "hang":
            await asyncio.Event().wait()
        return 1.0

    async def blocks(response: str) -> float:
        leave.wait()
        return 1.0

    assert [r and r[0] for r in failures(waits, ["a", "hang", "b"])] == [None, "timeout", None]
    assert [r and r[0] for r in failures(blocks, ["a", "b"])] == ["timeout", "timeout"]
    leave.set()


def test_stop_ends_the_run_with_the_reason() -> None:
    def zero(response: str) -> float:
        return 1 / 0

    stopping = FunctionReward(zero, settings=CallSettings(on_error="stop"))
    with pytest.raises(
        BackendError, match=r"reward zero: ZeroDivisionError: .*; 2 of 2 rows failed.*--on-reward-error"
    ):
        stopping.score([TEXT, TEXT], ["a", "b"])
    skipping = FunctionReward(lambda responses: [None, 1.0], name="some", settings=CallSettings(on_error="stop"))
    assert skipping.score([TEXT, TEXT], ["a", "b"]).parts["some"].isnan().tolist() == [True, False]


def test_calls_are_taken_in_order() -> None:
    assert TimedCalls("n", 5.0).run([partial(int, n) for n in range(20)]) == list(range(20))


def test_a_function_of_a_file_or_module_is_opened_by_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def shorter(prompt, response, **row):\n    return -len(response)\n", "utf-8")
    names = [f"{tmp_path}/x/../mine.py:shorter", f"brief={tmp_path}/mine.py:shorter", "length=operator:length_hint"]
    recorded = [recorded_reward(name, "m") for name in names]
    assert recorded == [f"{tmp_path}/mine.py:shorter", f"brief={tmp_path}/mine.py:shorter", names[2]]
    assert parse_reward(recorded[1]).part == "brief"
    with ExitStack() as stack:
        sources = open_rewards(stack, recorded[:2], [None, None], wait=0, deadline=1, calls=SHORT)
        rewards = gather_rewards(sources, [TEXT], ["abc"])
        assert {name: part.tolist() for name, part in rewards.parts.items()} == {"shorter": [-3.0], "brief": [-3.0]}
        with pytest.raises(BadInputError, match="cannot tell how to call length"):
            open_rewards(stack, recorded[2:], [None], wait=0, deadline=1)
