"""Help in groups: what is used daily first, every command and option once."""

from __future__ import annotations

import re

import pytest
import typer

from assay.cli.help_panels import OTHER, PANELS
from assay.cli.main import build_app, main


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[str]]:
    """Heading -> first words of its lines."""
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    panels: dict[str, list[str]] = {}
    heading = ""
    for line in capsys.readouterr().out.splitlines():
        if title := re.match(r"╭─ (.+?) ─", line):
            panels[heading := title[1]] = []
        elif entry := re.match(r"│ (--[\w-]+|[a-z][\w-]*)", line):
            panels[heading].append(entry[1])
    return panels


def test_commands_stand_under_their_headings_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    panels = help_of(capsys)
    headings = [heading for heading in panels if heading not in ("Options", OTHER)]
    assert headings == list(PANELS)
    assert panels["Every day"] == list(PANELS["Every day"])
    for heading in headings:
        assert set(panels[heading]) <= set(PANELS[heading])
    words = [word for heading, entries in panels.items() if heading != "Options" for word in entries]
    assert sorted(words) == sorted(typer.main.get_command(build_app()).commands)  # type: ignore[attr-defined]


def test_the_options_that_matter_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    panels = help_of(capsys, "rl")
    main_options = "recipe policy reward prompts steps lr group-size max-new-tokens evaluate name"
    assert panels["Options"] == [f"--{name}" for name in [*main_options.split(), "help"]]
    options = [option for entries in panels.values() for option in entries]
    assert len(options) == len(set(options))
    assert {"--workspace", "--json"} == set(panels["Output"])
    assert "Output" not in help_of(capsys, "recipes"), "a shared option keeps its place in other commands"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("trian",), "Did you mean 'train'?"),
        (("data", "improt"), "Did you mean 'import'?"),
        (("rl", "--recpie", "grpo"), "--recipe"),
        (("recipes", "dapoo"), "did you mean dapo"),
        (("recipes", "maths-on-one-gpu"), "the nearest of "),
    ],
)
def test_a_slip_is_answered_with_what_is_near(
    words: tuple[str, ...], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([*words])
    assert end.value.code == 2
    err = capsys.readouterr().err
    assert hint in err
    assert len(err.splitlines()) == 1
