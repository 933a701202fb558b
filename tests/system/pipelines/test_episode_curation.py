"""Episodes to people and back: pairs are voted on, turns marked, and reward models trained that read episodes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from assay_command import captured
from recorded_episodes import failed, game, write_rollouts

from assay.annotation.vote_journal import fold
from assay.domain import Message
from assay.runs.record import locate_model
from assay.score import Score
from assay.workspace import Workspace
from assay_pipelines.annotation.items import ShownItem
from assay_pipelines.annotation.question_types.question_type import Submission
from assay_pipelines.annotation.service import AnnotationService
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.plugins.environments.conversation import recorded_conversation
from assay_policy_training.plugins.environments.shipped.twenty_questions import OBJECTS, QUESTIONS
from assay_policy_training.rollouts.episode_rewards import ConversationReward
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem

Run = Callable[..., Any]
PAIRS = 20


def episodes(number: int, rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """One task twice: with all questions asked before the guess, and with an early guess, which may be right."""
    secret = rng.choice(list(OBJECTS))
    asked = [f"{question}?" for question in QUESTIONS]
    rng.shuffle(asked)
    careful = game(secret, *asked, secret, number=number)
    rash = game(secret, asked[0], rng.choice(list(OBJECTS)), number=number)
    return careful, rash


def turns(item: ShownItem, place: int) -> list[str]:
    response = item.shown_responses[place]
    return [m.text for m in response if m.role == "assistant"] if not isinstance(response, str) else [response]


def vote(workspace: Workspace, queue: str, answer: Callable[[ShownItem], Submission]) -> int:
    count = 0
    with AnnotationService(workspace) as service:
        while (item := service.next(queue, "ann")) is not None:
            service.cast(item.ticket, "ann", answer(item.content))
            count += 1
    fold(workspace)
    return count


def careful_one(item: ShownItem) -> Submission:
    return Submission(choice="first" if len(turns(item, 0)) > len(turns(item, 1)) else "second")


def wrong_guess(item: ShownItem) -> Submission:
    """A turn is wrong where it guesses before all is asked."""
    marks = [-1 if text in OBJECTS and n < len(QUESTIONS) else 1 for n, text in enumerate(turns(item, 0))]
    return Submission(response={"steps": marks})


@pytest.fixture
def policy_run(workspace: Workspace) -> str:
    rng = random.Random(3)
    rows = [row for number in range(PAIRS) for row in episodes(number, rng)]
    write_rollouts(workspace.runs / "run-games", [*rows, failed(rows[0])])
    return "run-games"


@pytest.mark.slow
def test_votes_and_marks_on_episodes_train_models_that_read_them(
    workspace: Workspace, policy_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = captured(capsys)

    def assay(*words: object) -> Any:
        code, out, err = command(*words, "-w", workspace.root, "--json")
        assert code == 0, err
        return json.loads(out)

    queued = assay("queue", "from-rollouts", policy_run, "--name", "games", "--gold-checks", "0")
    assert queued["items"] == queued["new"] == PAIRS
    assert vote(workspace, "games", careful_one) == PAIRS
    assert assay("queue", "resolve", "games")["gold"] == PAIRS
    assay("data", "snapshot", "games", "--pool", "gold")
    learn = ("--base", "tiny", "--lr", "1e-2", "--dtype", "float32", "--batch-size", "8")
    assay("train", "bt", "--data", "games", "--name", "outcome", "--epochs", "4", *learn)

    assay(
        "queue",
        "create",
        "turns",
        "--question",
        "steps",
        "--by-turns",
        "--source",
        f"rollouts of {policy_run}",
        "--gold-checks",
        "0",
    )
    assert vote(workspace, "turns", wrong_guess) == 2 * PAIRS
    labels = tmp_path / "turns.jsonl"
    assay("data", "export", labels, "--format", "turns")
    rows = [json.loads(line) for line in labels.read_text(encoding="utf-8").splitlines()]
    assert sorted(map(len, (row["labels"] for row in rows))) == [2] * PAIRS + [4] * PAIRS
    assay("train", "steps", "--data", labels, "--name", "process", "--aggregation", "min", "--epochs", "10", *learn)

    rng, right, localised = random.Random(9), 0, 0
    outcome, process = (
        load_scorer(ModelConfig(locate_model(workspace, name)[0], device="cpu")) for name in ("outcome", "process")
    )
    for number in range(100, 110):
        careful, rash = (recorded_conversation(row) for row in episodes(number, rng))
        assert careful is not None
        assert rash is not None
        better, worse = outcome.score([ScoreItem(*careful), ScoreItem(*rash)])
        assert isinstance(better, Score)
        assert isinstance(worse, Score)
        right += better.reward > worse.reward
        asked, guessed = process.score([ScoreItem(*careful), ScoreItem(*rash)])
        assert isinstance(asked, Score)
        assert isinstance(guessed, Score)
        assert (len(asked.steps), len(guessed.steps)) == (4, 2)  # one for each turn
        localised += guessed.steps[1] < min(guessed.steps[0], asked.steps[1])
    assert right >= 9
    assert localised >= 8
    scored = assay("score", "--model", "process", labels, "--out", tmp_path / "scores.jsonl")
    assert scored["scored"] == 2 * PAIRS
    row = episodes(200, rng)[1]
    item = PromptItem((Message(**row["prompt"][0]),), meta={EPISODE: row["episode"]})
    silent = PromptItem(item.prompt, meta={EPISODE: {**row["episode"], "turns": []}})
    rewards = ConversationReward(process, name="process").score([item, silent], ["", ""])
    conversation = recorded_conversation(row)
    assert conversation is not None
    assert [rewards.scores[0]["process"]] == process.score([ScoreItem(*conversation)])
    assert [failure.code for failure in rewards.failures[1]] == ["no_turn"]
