"""A command loads the part that announces its first word and no other; every command is announced."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer

from assay.cli.main import GROUP, build_app, main
from assay.registry import announced

WORDS = sorted({point.name for point in announced(GROUP)})


def words_of(app: typer.Typer) -> set[str]:
    group: Any = typer.main.get_command(app)
    return set(group.commands)


def test_every_command_is_announced() -> None:
    assert words_of(build_app()) == set(WORDS)


@pytest.mark.parametrize("word", WORDS)
def test_what_announces_a_word_adds_it(word: str) -> None:
    assert word in words_of(build_app(word))


def test_a_word_that_nothing_announces_meets_every_command() -> None:
    assert words_of(build_app("no-such-command")) == set(WORDS)


def test_an_option_of_other_programs_is_named_as_it_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["rl", "--learning-rate", "3"])
    assert "No such option: --learning-rate; here it is --lr; see" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["init", "--learning-rate", "3"])
    assert "here it is" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        (["rl", "--help"], ["assay_pipelines"]),
        (["data", "--help"], ["assay_web"]),
        (["--help"], ["numpy", "httpx", "pydantic", "jinja2", "duckdb", "torch"]),
    ],
)
def test_what_a_help_text_does_not_need_is_not_loaded(arguments: list[str], unused: list[str]) -> None:
    program = f"""
import sys
from assay.cli.main import main
try:
    main({arguments!r})
except SystemExit:
    assert not set({unused!r}) & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
