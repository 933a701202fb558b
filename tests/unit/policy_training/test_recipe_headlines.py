"""What `assay recipes` lists: a whole sentence a recipe, the papers in a column."""

from __future__ import annotations

import pytest

from assay.cli.main import main
from assay_policy_training.recipe.shipped import first_sentence, headlines


def test_a_sentence_over_two_lines_is_whole() -> None:
    text = "# Dr. Method: rows that\n# go on. arXiv 1.\n#   assay rl --recipe x\nname: x\n"
    assert first_sentence(text) == "Dr. Method: rows that go on."
    assert first_sentence("# Only this\nname: x\n") == "Only this"
    assert first_sentence("name: x\n") == ""


def test_every_recipe_says_what_it_is() -> None:
    for name, (_, title) in headlines().items():
        assert title.endswith("."), (name, title)
        assert 10 < len(title) < 200, (name, title)


def test_the_list_has_three_columns(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["recipes"])
    lines = capsys.readouterr().out.splitlines()
    start = lines[0].index("arXiv")
    assert len(lines) == len(headlines())
    for line in lines:
        assert line[start - 2 : start] == "  ", line
        assert line[start + 16 : start + 18] == "  ", line
