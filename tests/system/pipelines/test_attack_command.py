"""`assay attack` as a user gets it: table, run, card, what was found as a file, a snapshot and a queue; judges, a
policy's samples; bad input in one line."""

import json
import shutil
from pathlib import Path

import pytest
from assay_command import Run, captured, exit_code
from pair_files import write_pairs

from assay.data.snapshots import load_pairs
from assay.domain import Message, PreferencePair
from assay.workspace import Workspace
from assay_pipelines.annotation.queues import get_queue

WORDS = ("red", "blue", "green", "tree", "stone", "river", "cloud", "apple")
#: Hackable: the share of what a format can buy. It says nothing of the content.
LIKES_LISTS = """kind: composed
parts:
  - name: layout
    constraints: [{kind: markdown_bullets, count: 2}, {kind: min_words, limit: 6}]
    measure: fraction
combine: {kind: weighted_sum, weights: {layout: 1.0}}
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return captured(capsys)


def planted(path: Path, count: int, start: int) -> Path:
    """The good response ends in `!`, the worse one in `?`; they are about the same length."""
    pairs = []
    for number in range(start, start + count):
        words = [WORDS[(number * step) % 8] for step in (1, 3, 5)]
        good, worse = " ".join(words), " ".join(reversed(words))
        pairs.append(PreferencePair((Message("user", f"Say {number}."),), f"{good}! {good}!", f"{worse}? {worse}?"))
    write_pairs(path, pairs)
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Workspace.create(tmp_path / "w")
    monkeypatch.setenv("ASSAY_WORKSPACE", str(tmp_path / "w"))
    planted(tmp_path / "held.jsonl", 24, 32)
    (tmp_path / "lists.yaml").write_text(LIKES_LISTS, encoding="utf-8")
    return tmp_path


def rates(text: str) -> dict[str, float]:
    return {row["attack"]: row["rate"] for row in json.loads(text)["attacks"]}


def test_a_composed_reward_is_attacked_and_what_fools_it_is_kept(place: Path, run: Run) -> None:
    code, out, err = run("attack", "lists.yaml", "--data", "held.jsonl", "--attack", "format", "--attack", "truncation",
                         "--queue", "odd", "--negatives", "fooled", "--json")  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    assert rates(out)["format"] == pytest.approx(1 / 3)
    assert rates(out)["truncation"] == 0.0
    assert {row["attack"]: row["rate"] for row in found["variants"]}["format: list"] == 1.0
    assert found["worst"] == {"attack": "format", "value": pytest.approx(1 / 3)}
    assert found["false_positives"] == 24
    workspace = Workspace(place / "w")
    pairs = load_pairs(workspace, "fooled")
    assert len(pairs) == 24
    assert all(str(p.rejected).startswith("- ") and "!" in str(p.chosen) for p in pairs)
    assert {pair.category for pair in pairs} == {"format"}
    assert get_queue(workspace, "odd").items == 24
    with workspace.store.unit() as db:
        payloads = [json.loads(row[0]) for row in db.execute("SELECT payload FROM queue_items").fetchall()]
    assert [payload["opinions"] for payload in payloads] == [[]] * 24, "the model's preference tells the attack"
    assert (workspace.runs / found["run_id"] / "items.jsonl").read_text(encoding="utf-8").count("\n") == found[
        "coverage"
    ]["total"]
    code, out, _ = run(
        "attack", "lists.yaml", "--data", "held.jsonl", "--limit", "12", "--negatives", "n.jsonl", "--queue", "more"
    )
    assert code == 0
    assert "worse response" in out
    assert "written to n.jsonl" in out
    assert get_queue(workspace, "more").items == 12
    code, _, err = run("attack", "no-such-model", "--data", "held.jsonl", "--negatives", "fooled")
    assert code == 2
    assert "snapshot 'fooled' exists" in err  # before anything is loaded


@pytest.mark.slow
def test_the_rates_are_in_the_card_of_a_model(place: Path, run: Run, tiny_reward_model: Path) -> None:
    folder = shutil.copytree(tiny_reward_model, place / "rm")
    arguments = ("attack", "rm", "--data", "held.jsonl", "--limit", "3", "--attack", "truncation", "--device", "cpu")
    for _ in range(2):  # the section is replaced
        code, out, err = run(*arguments)
        assert code == 0, err
        assert "the rates are in the model's card" in out
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.count("## Attacks") == 1
    assert "| truncation |" in card


@pytest.mark.slow
def test_pairwise_judges_are_attacked_too(place: Path, run: Run, tiny_judges: dict[str, Path]) -> None:
    arguments = ("--data", "held.jsonl", "--limit", "3", "--attack", "constant", "--device", "cpu", "--json")
    code, out, err = run("attack", tiny_judges["pairwise"], *arguments)
    assert code == 0, err
    result = json.loads(out)
    row = {row["attack"]: row for row in result["attacks"]}["constant"]
    assert row["responses"] == 9
    assert 0 <= row["rate"] <= 1
    assert row["accepted"] is None
    assert row["low"] is None


@pytest.mark.slow
def test_models_that_take_a_principle_and_pointwise_judges_are_attacked_too(
    place: Path, run: Run, tiny_principle_model: Path, tiny_judges: dict[str, Path]
) -> None:
    arguments = ("--data", "held.jsonl", "--limit", "2", "--attack", "truncation", "--device", "cpu", "--json")
    for model, principle in ((tiny_principle_model, ("--principle", "Be kind.")), (tiny_judges["pointwise"], ())):
        code, out, err = run("attack", model, *principle, *arguments)
        assert code == 0, err
        assert json.loads(out)["coverage"]["used"] == 6


def test_the_best_of_a_policy_is_judged_by_a_second_reward(place: Path, run: Run) -> None:
    policy = ("--policy", "tiny", "--set", "policy.samples=2", "--set", "policy.max_new_tokens=8", "--device", "cpu")
    code, out, err = run("attack", "lists.yaml", "--data", "held.jsonl", "--limit", "2", "--attack", "policy", *policy,
                         "--reference", "lists.yaml", "--json")  # fmt: skip
    assert code == 0, err
    assert rates(out)["policy"] == 0.0  # the same reward cannot contradict itself


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--attack", "paddin"), "no attack is named 'paddin'; did you mean padding?"),
        (("--attack", "padding", "--set", "padding.time=2"), "no setting of attack 'padding' is named 'time'; did you"),
        (("--set", "search.length=0"), "length"),
        (("--policy", "tiny"), "which second reward says so?"),
        (("--data", "blank.jsonl"), "pair 2 of blank.jsonl has no good response"),
        (("--data", "none.jsonl"), "pair"),
    ],
)
def test_bad_input_is_one_line(place: Path, run: Run, arguments: tuple[str, ...], message: str) -> None:
    row = {"prompt": "p", "chosen": "a", "rejected": "b"}
    blank = [row, {**row, "prompt": "q", "chosen": " "}]
    Path("blank.jsonl").write_text("".join(json.dumps(r) + "\n" for r in blank), encoding="utf-8")
    Path("none.jsonl").write_text(json.dumps({"prompt": "p", "chosen": None, "rejected": None}) + "\n", "utf-8")
    code, _, err = run("attack", "lists.yaml", *(() if "--data" in arguments else ("--data", "held.jsonl")), *arguments)
    assert code == 2
    assert message in err
    assert len([line for line in err.splitlines() if line.startswith("assay: ")]) == 1


def test_keeping_in_a_workspace_needs_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_WORKSPACE", raising=False)
    planted(tmp_path / "held.jsonl", 2, 0)
    assert exit_code("attack", "x", "--data", "held.jsonl", "--queue", "q") == 2
