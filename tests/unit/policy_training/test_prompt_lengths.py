"""Prompts over the limit are left out or refused, counted and named; rewards that are not finite are failures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.cli.main import main
from assay.domain import Message
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.prompt_length import select_prompts
from assay_policy_training.training.loop import PolicyLoop

SHORT, LONG = (Message("user", "Name a colour."),), (Message("user", "Name a colour. " * 60),)
SMALL = ["sampling.prompts_per_step=2", "sampling.group_size=3", "sampling.max_new_tokens=4", "report_kl=false"]


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(load_tokenizer("tiny"), max_length=64)


class Lengths:
    """A reward source whose every third reward is infinite."""

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        numbers = [math.inf if row % 3 == 0 else float(len(text)) for row, text in enumerate(responses)]
        return Rewards({"length": torch.tensor(numbers, dtype=torch.float64)}, [()] * len(items), [{}] * len(items))


def trainer(folder: Path, items: Sequence[PromptItem], *overrides: str) -> PolicyLoop:
    recipe = load_recipe("dr_grpo", [*SMALL, *overrides])
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64)
    source = recipe.source.open(items, seed=0, policy=policy)
    folder.mkdir(parents=True, exist_ok=True)
    return PolicyLoop(recipe, policy, source, [Lengths()], folder)


def test_prompts_over_the_limit_are_left_out_and_named(renderer: Renderer) -> None:
    items = [PromptItem(SHORT), PromptItem(LONG), PromptItem(SHORT, train_on=LONG)]
    selection = select_prompts(items, renderer, Sampling(max_prompt_tokens=64))
    assert selection.items == items[:1]
    assert [long.row for long in selection.too_long] == [2, 3]
    tokens = renderer.count(LONG)
    assert tokens > 64
    assert str(selection).startswith(f"2 of 3 prompts have more than 64 tokens: 2 ({tokens}: 'Name a colour. Name")
    with pytest.raises(BadInputError, match="1 of 2 prompts has more than 64 tokens: 2"):
        select_prompts(items[:2], renderer, Sampling(max_prompt_tokens=64, long_prompts="refuse"))
    with pytest.raises(BadInputError, match="1 of 1 prompt"):
        select_prompts(items[1:2], renderer, Sampling(max_prompt_tokens=64))


def test_a_prompt_that_fits_exactly_stays(renderer: Renderer) -> None:
    tokens = renderer.count(LONG)
    assert select_prompts([PromptItem(LONG)], renderer, Sampling(max_prompt_tokens=tokens)).items
    with pytest.raises(BadInputError):
        select_prompts([PromptItem(LONG)], renderer, Sampling(max_prompt_tokens=tokens - 1))


def test_a_run_counts_and_names_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    constraints = [{"kind": "max_words", "limit": 3}]
    rows = [{"prompt": text, "constraints": constraints} for text in ("Name a colour.", "Long words. " * 400, "Why?")]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["rl", "--reward", "verifier", "--policy", "tiny", "--prompts", str(prompts), "--steps", "1"]
    command += [word for override in SMALL for word in ("--set", override)]
    for arguments in (["init", str(tmp_path / "w")], [*command, "--json", "-w", str(tmp_path / "w")]):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        out = capsys.readouterr().out
        assert end.value.code == 0
    payload = json.loads(out)
    assert payload["prompts_left_out"] == {"prompts": {"too_long": 1, "of": 3}}
    assert "1 of 3 prompts has more than 512 tokens: 2 (" in caplog.text
    drawn = [json.loads(line)["prompt"] for line in (Path(payload["folder"]) / "rollouts.jsonl").open()]
    assert {turns[0]["content"] for turns in drawn} <= {"Name a colour.", "Why?"}


def test_rows_whose_context_had_to_be_cut_get_no_reward(tmp_path: Path) -> None:
    """A hint, or a library caller's prompt, over the limit: the reward would read what the policy did not."""
    items = [PromptItem(SHORT), PromptItem(SHORT, generate_from=LONG)]
    session = trainer(tmp_path / "cut", items)
    (row,) = session.train(1)
    records = [json.loads(line) for line in (tmp_path / "cut/rollouts.jsonl").open()]
    cut = [record for record in records if any("more than 64" in f["message"] for f in record["failures"])]
    assert len(cut) == 3
    assert all(record["reward"] is None for record in cut)
    assert row["rewards_missing"] == 3 + 1  # and the infinite one of the other group


def test_an_infinite_reward_is_a_failure(tmp_path: Path) -> None:
    session = trainer(tmp_path / "inf", [PromptItem(SHORT), PromptItem((Message("user", "Why?"),))])
    (row,) = session.train(1)
    assert row["rewards_missing"] == 2
    assert math.isfinite(row["loss"])
    assert row["updates_skipped"] == 0
    records = [json.loads(line) for line in (tmp_path / "inf/rollouts.jsonl").open()]
    failures = [record["failures"] for record in records if record["reward"] is None]
    assert [[failure["code"] for failure in row] for row in failures] == [["not_finite"], ["not_finite"]]
    session.recipe = replace(session.recipe, steps=2)
    (row,) = session.train(2)
    assert math.isfinite(row["loss"])
