"""docs/python-api.md and docs/migrating.md: their scripts and commands run, and the names that they state exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from console_page import EXIT, VARIABLES, check_output, read_page, run_commands

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


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
    from dataclasses import fields

    from assay_policy_training.trainer import RECIPE_OPTIONS
    from assay_policy_training.training.config import PolicyRunConfig

    page = (DOCS / "python-api.md").read_text(encoding="utf-8")
    of_recipe, of_run = (
        set(re.findall(r"`(\w+)`", row.partition(" | ")[0].lstrip("| ")))
        for row in re.findall(r"^\| (?:`steps`|`eval_every`).*$", page, re.MULTILINE)
    )
    assert of_recipe == RECIPE_OPTIONS.keys()
    assert of_run < {field.name for field in fields(PolicyRunConfig)}
