"""docs/python-api.md and docs/migrating.md: their scripts and commands run, and the names that they state exist."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from console_page import VARIABLES, check_output, read_page, run_commands
from pyarrow import parquet

from assay.errors import BadInputError
from assay_policy_training.commands import register
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.trainer import RECIPE_OPTIONS
from assay_policy_training.training.config import PolicyRunConfig
from assay_rm_training.commands import register as register_training

DOCS = Path(__file__).resolve().parents[3] / "docs"
MIGRATING = (DOCS / "migrating.md").read_text(encoding="utf-8")
#: Names of the hub and of a home folder -> what is here in their place.
LOCAL = {
    "Qwen/Qwen2-0.5B-Instruct": "tiny",
    "Qwen/Qwen3-0.6B": "tiny",
    "Qwen/Qwen2-7B-Instruct": "tiny",
    "hf:trl-lib/DeepMath-103K": "deepmath.jsonl",
    "hf:trl-lib/ultrafeedback_binarized": "feedback.jsonl",
    '"trl-lib/ultrafeedback_binarized"': '"json", data_files="feedback.jsonl"',
    "~/data/gsm8k/": "",
    "--holdout 0.05": "--holdout 0.5",  # of eight pairs
}
#: Sizes, as options, arguments or keys of a recipe.
SMALL = {
    **dict.fromkeys(("steps", "evaluate", "eval-every", "eval_every", "epochs", "minibatches"), 2),
    **dict.fromkeys(("max-new-tokens", "max_new_tokens"), 8),
    **dict.fromkeys(("prompts_per_step", "group_size"), 2),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.mark.slow
def test_the_scripts_of_the_python_page_print_what_it_says(folder: Path) -> None:
    files, commands = read_page(DOCS / "python-api.md")
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    printed = run_commands(commands, "")
    assert len(printed) == len(files)
    for command, text in zip(commands, printed, strict=True):
        check_output(command, text)


def test_what_the_python_page_imports_exists() -> None:
    imports = re.findall(r"`from ([\w.]+) import (\w+)`", (DOCS / "python-api.md").read_text(encoding="utf-8"))
    assert len(imports) > 8
    for module, name in imports:
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


def test_what_the_python_page_calls_an_option_is_one() -> None:
    page = (DOCS / "python-api.md").read_text(encoding="utf-8")
    of_recipe, of_run = (
        set(re.findall(r"`(\w+)`", row.partition(" | ")[0].lstrip("| ")))
        for row in re.findall(r"^\| (?:`steps`|`columns`).*$", page, re.MULTILINE)
    )
    assert of_recipe == RECIPE_OPTIONS.keys()
    assert of_run < {field.name for field in fields(PolicyRunConfig)}


def small(text: str) -> str:
    for name, here in LOCAL.items():
        text = text.replace(name, here)
    for name, value in SMALL.items():
        text = re.sub(rf"((?:--{name} |\b{name}=|\b{name}: ))\d+", rf"\g<1>{value}", text)
    return text


def write_rows(folder: Path) -> None:
    """Rows with the columns of the published sets."""
    sums = [(f"What is {n} + {n}?", str(2 * n)) for n in range(1, 9)]
    turns = [[{"role": "user", "content": question}] for question, _ in sums]
    answer = [[{"role": "assistant", "content": f"It is {value}."}] for _, value in sums]
    wrong = {"role": "assistant", "content": "No idea."}
    deepmath = [{"prompt": turn, "solution": value} for turn, (_, value) in zip(turns, sums, strict=True)]
    pairs = [{"chosen": turn + right, "rejected": [*turn, wrong]} for turn, right in zip(turns, answer, strict=True)]
    for name, rows in (("deepmath", deepmath), ("feedback", pairs)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    gsm8k = [
        {
            "data_source": "openai/gsm8k",
            "prompt": turn,
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": value},
            "extra_info": {"split": "train", "index": index, "answer": f"#### {value}", "question": question},
        }
        for index, (turn, (question, value)) in enumerate(zip(turns, sums, strict=True))
    ]
    for split in ("train", "test"):
        parquet.write_table(pa.Table.from_pylist(gsm8k), folder / f"{split}.parquet")


@pytest.mark.slow(
    reason="minutes; the options of the page are checked below, and the trainings have tests of their own"
)
def test_the_ports_run(folder: Path) -> None:
    page = folder / "page.md"
    page.write_text(small(MIGRATING), encoding="utf-8")
    files, commands = read_page(page)
    assert [command.line.split()[1] for command in commands[:2]] == ["init", "my-project"]
    run_commands(commands[:2], "")
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    write_rows(Path.cwd())
    printed = run_commands(commands[2:], "")
    for command, text in zip(commands[2:], printed, strict=True):
        check_output(command, text)
    assert sum(command.line.startswith("assay rl") for command in commands) == 3


def options_of(command: str) -> set[str]:
    app = typer.Typer()
    register(app)
    register_training(app)
    click = typer.main.get_command(app)
    for word in command.split()[1:]:
        click = click.commands[word]  # type: ignore[attr-defined]
    return {option for parameter in click.params for option in parameter.opts}


def table_rows(title: str) -> list[list[str]]:
    section = MIGRATING.partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def names_of_trl(cells: Iterable[str]) -> set[str]:
    named = [cell for cell in cells if "(argument" not in cell and not cell.startswith(("column", "`accelerate"))]
    listed = {name for cell in named for name in re.findall(r"`(\w+)(?:=[^`]*)?`", cell.partition(" (")[0])}
    return listed - {"resume_from_checkpoint", "num_generations"} | {"num_generations"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "command"),
    [("Settings of reinforcement learning", "assay rl"), ("Settings of DPO", "assay train dpo")],
)
def test_the_options_of_the_tables_exist(title: str, command: str) -> None:
    rows = table_rows(title)
    assert len(rows) > 20
    ours = [entry for row in rows for entry in re.findall(r"`(--[^`]+)`", row[-1])]
    options = options_of(command)
    for entry in ours:
        option, _, setting = entry.partition(" ")
        assert option in options, entry
        if setting:
            check_override(setting)
    assert len(ours) > 20


def check_override(setting: str) -> None:
    """Some recipe takes it: those of a critic need one that has a critic."""
    sampler = ["sampler.kind=vllm"] if setting.startswith("corrections") else []
    refused = []
    for recipe in ("grpo", "ppo"):
        try:
            load_recipe(recipe, [*sampler, setting])
        except BadInputError as error:
            refused.append(str(error))
        else:
            return
    raise AssertionError(f"{setting}: {refused}")


def test_the_names_of_trl_are_its_own() -> None:
    trl = pytest.importorskip("trl", reason="TRL is not installed (the extra `bench`)")
    for title, config in (
        ("Settings of reinforcement learning", trl.GRPOConfig),
        ("Settings of DPO", trl.DPOConfig),
    ):
        theirs = {field.name for field in fields(config)} | {"num_generations"}
        assert names_of_trl(row[0] for row in table_rows(title)) - theirs == set(), title
