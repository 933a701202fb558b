"""Environments whose answers are checked, whose user or tools are models, and that replay a trace; guided retries."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from rollout_rows import rollouts

from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.http.running import running_app
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.plugins.contexts.guided_retry import GuidedRetry
from assay_policy_training.plugins.contexts.hints import GUIDED
from assay_policy_training.plugins.environments import user_simulator
from assay_policy_training.plugins.environments.checked import CheckedTools
from assay_policy_training.plugins.environments.environment import Action, Done, Observation
from assay_policy_training.plugins.environments.episode import Episode, EpisodeLimits
from assay_policy_training.plugins.environments.replay import TraceReplay
from assay_policy_training.plugins.environments.routing import Routing
from assay_policy_training.plugins.environments.shipped.form_filling import FormFilling, expert_trace, tasks
from assay_policy_training.plugins.environments.user_simulator import UserSimulator
from assay_policy_training.plugins.prompts.source import short_forms
from assay_serving.chat.app import create_chat_app
from assay_serving.chat.scripted import ReceivedRequest, ScriptedChat, always
from assay_serving.tools.tool import ToolCall
from assay_serving.verifiers.constraints.answers import ExactAnswer

GOAL = {"goal": "a blue mug", "check": "import json, sys\nassert 'blue' in json.load(sys.stdin)[-1]['content']"}


def item(text: str, **row: Any) -> PromptItem:
    return PromptItem((Message("user", text),), short_forms(row, ()), row)


def user(request: ReceivedRequest) -> str:
    """Asks for its goal, and ends once the assistant's turn, which it sees as a user's, has it."""
    messages = request.body["messages"]
    assert "a blue mug" in messages[0]["content"]
    return "Thanks. [DONE]" if "blue" in messages[-1]["content"] else "A blue one."


@pytest.fixture
def endpoint() -> Iterator[str]:
    with running_app(create_chat_app(ScriptedChat(user))) as url:
        yield f"{url}/v1"


def test_a_wrong_program_is_told_its_failing_test_and_may_be_mended() -> None:
    rows = item("def twice(x):\n", tests="def check(f):\n    assert f(2) == 4\n", entry_point="twice")
    environment = CheckedTools(tools=("python",), attempts=2)
    environment.reset(rows, 0)
    [run] = environment.step(Action("", (ToolCall("python", {"code": "print(2 + 2)"}),))).results  # type: ignore[union-attr]
    assert run.content == "4\n"
    told = environment.step(Action("def twice(x):\n    return x + 1"))
    assert isinstance(told, Observation)
    assert "not right" in str(told.messages)
    assert environment.step(Action("def twice(x):\n    return 2 * x")) == Done({"passed": 1.0})
    environment.reset(rows, 0)
    environment.step(Action("x"))
    failed = environment.step(Action("def twice(x):\n    return 5"))
    assert isinstance(failed, Done)
    assert failed.rewards == {"passed": 0.0}
    assert failed.feedback
    environment.reset(item("?"), 0)
    with pytest.raises(BadInputError, match="no constraints"):
        environment.step(Action("4"))


@pytest.mark.parametrize("row", [{"answer": "42"}, {"answers": ["Tintin"]}])
def test_a_policy_that_may_try_again_does_not_read_the_right_answer(row: dict[str, Any]) -> None:
    environment = CheckedTools(attempts=2)
    environment.reset(item("?", **row), 0)
    told = environment.step(Action("7"))
    assert isinstance(told, Observation)
    assert "This is not right" in str(told.messages)
    assert not any(right in str(told.messages) for right in ("42", "Tintin"))


def test_the_user_is_a_model_that_has_a_goal_and_ends_the_conversation(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = UserSimulator(url=endpoint, model="fake")

    def said(*turns: str) -> Any:
        environment.reset(item("Hello.", **GOAL), 3)
        return [asyncio.run(_stepped(environment, text)) for text in turns][-1]

    assert said("Which colour?").messages == "A blue one."
    assert said("Which colour?", "Here is a blue mug.") == Done({"goal": 1.0})
    lost = asyncio.run(_cut(environment, item("Hello.", **GOAL)))
    assert lost.rewards == {"goal": 0.0}
    assert "assert" in lost.feedback.lower()
    monkeypatch.setattr(user_simulator, "CHECK_SECONDS", 0.5)
    with pytest.raises(BackendError, match="no verdict"):
        asyncio.run(_cut(environment, item("Hello.", **GOAL | {"check": "while True: pass"})))
    with pytest.raises(BadInputError, match="what the user wants"):
        environment.reset(item("Hello."), 0)
    with pytest.raises(BadInputError, match="name the endpoint"):
        UserSimulator()


def test_an_endpoint_that_fails_fails_the_turn_by_name() -> None:
    with running_app(create_chat_app(ScriptedChat(user, faults=always("401")))) as url:
        environment = UserSimulator(url=f"{url}/v1", model="fake")
        environment.reset(item("Hello.", **GOAL), 3)
        with pytest.raises(BackendError, match=r"fake at http.*no access"):
            asyncio.run(_stepped(environment, "Which colour?"))


async def _stepped(environment: UserSimulator | Routing, text: str) -> Observation | Done:
    return await environment.step(Action(text))


async def _cut(environment: UserSimulator, prompt: PromptItem) -> Done:
    environment.reset(prompt, 0)
    return await environment.cut()


def test_the_policy_asks_models_at_their_price_and_answers() -> None:
    with running_app(create_chat_app(ScriptedChat(lambda _: "12 tokens or so", count_tokens=lambda _: 12))) as url:
        names = {"small": f"{url}/v1", "large": f"{url}/v1"}
        environment = Routing(urls=names, served=dict.fromkeys(names, "fake"), prices={"small": 1.0, "large": 5.0})

        def episode(*turns: str) -> Any:
            environment.reset(item("7+5", answers=["12"]), 0)
            return [asyncio.run(_stepped(environment, text)) for text in turns][-1]

        asked = "<search>large:7+5</search>"
        assert episode(asked).messages == "<information>12 tokens or so</information>"
        right = episode(asked, "<answer>12</answer>")
        assert right.rewards == {"format": 0.0, "outcome": 1.0, "cost": pytest.approx(5 * 12 / 1000)}
        assert episode("<answer>13</answer>").rewards == {"format": 0.0, "outcome": 0.0, "cost": 0.0}
        for wrong in ("<search>other:7+5</search>", "12", "<answer>12</answer> so"):
            assert episode(wrong).rewards["format"] == -1.0, wrong
    with running_app(create_chat_app(ScriptedChat(lambda _: "12", counts=False))) as url:
        names = {"priced": f"{url}/v1", "free": f"{url}/v1"}
        environment = Routing(urls=names, served=dict.fromkeys(names, "fake"), prices={"priced": 1.0, "free": 0.0})
        assert episode("<search>free:7+5</search>", "<answer>12</answer>").rewards["cost"] == 0.0
        with pytest.raises(BackendError, match="priced does not say how many tokens"):
            episode("<search>priced:7+5</search>")
    with pytest.raises(BadInputError, match="a url and a price"):
        Routing(urls=names)


def replayed(patches: int, *turns: str) -> tuple[list[str], list[float], Mapping[str, Any]]:
    """What the policy reads, what its turns earn, and what the episode does."""
    environment = TraceReplay(patches=patches)
    environment.reset(item("Fill in.", trace=expert_trace({"name": "Ana", "age": "20"})), 0)
    read, earned = list[str](), list[float]()
    for text in turns:
        answer = environment.step(Action(text))
        if isinstance(answer, Done):
            return read, [*earned, float(answer.turn_rewards["step"])], answer.rewards  # type: ignore[arg-type]
        read.append(str(answer.messages))
        earned.append(float(answer.rewards["step"]))  # type: ignore[arg-type]
    raise AssertionError("the replay did not end")


def test_a_replay_goes_on_where_the_policy_leaves_the_trace_as_often_as_it_is_patched() -> None:
    assert replayed(-1, "name=Ana", "age=20", "send") == (["empty: age", "empty: none"], [1, 1, 1], {"complete": 1.0})
    read, earned, parts = replayed(-1, "name=Ben", "age=20", "send")
    assert read == ["name=Ana was done instead\nempty: age", "empty: none"]
    assert (earned, parts) == ([0, 1, 1], {"complete": 0.0})
    assert replayed(0, "name=Ben")[1:] == ([0], {"complete": 0.0})
    assert replayed(1, "name=Ben", "age=1")[1] == [0, 0]
    with pytest.raises(BadInputError, match="trace"):
        TraceReplay().reset(item("Fill in."), 0)


def test_a_group_that_failed_is_tried_again_with_what_was_said_of_it_and_learnt_without() -> None:
    [form] = tasks("1", seed=0, split="train")
    record = {"feedback": "expected age=20", "turns": []}
    failed = PromptItem(form.prompt, (), {**form.meta, EPISODE: record, "hint": "Read twice."})
    solved = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    batch = rollouts([3] * 4, uid=["0.0", "0.0", "0.1", "0.1"], items=(failed,) * 4, r_parts={"complete": solved})
    (again,) = GuidedRetry(part="complete", keep=True).again(batch, 1)
    assert (again.uid, again.replace, again.item.source) == ("0.0", False, GUIDED)
    assert again.item.generation_context[-1].text.endswith("\n\nHint: Read twice.\nexpected age=20")
    assert again.item.training_context == form.prompt
    assert EPISODE not in again.item.meta
    assert GuidedRetry(part="complete", learn_guided=True).again(batch, 1)[0].item.training_context != form.prompt
    assert GuidedRetry(part="complete").again(batch, 2) == []
    assert GuidedRetry().again(batch, 1) == []  # nobody has verified anything
    silent = PromptItem(form.prompt, (), {EPISODE: {"feedback": "", "turns": []}})
    assert GuidedRetry(part="complete").again(
        rollouts([3], uid=["0.0"], items=(silent,), r_parts={"complete": solved[:1]}), 1
    ) == []  # fmt: skip


def test_feedback_is_recorded_and_not_observed() -> None:
    [form] = tasks("1", seed=0, split="train")
    episode = Episode(form, FormFilling(), EpisodeLimits())
    episode.begin(episode.environment.reset(form, 0))
    action = episode.act("send", 4)
    assert action is not None
    episode.observe(episode.environment.step(action), action)
    assert episode.to_dict()["feedback"].startswith("expected name=")
    assert "expected" not in episode.text


def test_an_exact_answer_is_any_of_its_spellings() -> None:
    row = {"answers": "Tin Tin\nTintin (TV series)\n\n"}
    (constraint,) = short_forms(row, ())
    assert constraint == ExactAnswer(("Tin Tin", "Tintin (TV series)"))
    for right in ("tin tin.", "The Tin  Tin", "I think <answer>Tintin TV series</answer>"):
        assert constraint.check(right).passed, right
    for wrong in ("Tin", "Tin Tin or so", "<answer>Haddock</answer> Tin Tin"):
        assert not constraint.check(wrong).passed, wrong
    letter = ExactAnswer(("A",))
    assert letter.check("<answer>a.</answer>").passed
    assert not letter.check("The.").passed
    with pytest.raises(BadInputError, match="list of texts"):
        short_forms({"answers": {"text": ["x"]}}, ())
