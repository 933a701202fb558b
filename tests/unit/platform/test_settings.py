"""Settings declared once: the command line, the API's schema and the checks that derive from a dataclass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
import typer
from annotated_types import Ge, Gt, Le
from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typer.testing import CliRunner

from assay.cli.settings_options import settings_options
from assay.errors import BadInputError
from assay.settings import Help, arguments_of, check_settings, fields_of


@dataclass(frozen=True)
class SearchSettings:
    threshold: Annotated[float, Gt(0), Le(1), Help("Least similarity.")] = 0.8
    words: Annotated[int, Ge(1), Le(50), Help("Words of a shingle.")] = 3
    unit: Annotated[Literal["pair", "prompt"], Help("What is compared.")] = "pair"
    exact: Annotated[bool, Help("Compare every pair.")] = False
    sources: Annotated[tuple[str, ...], Help("Source; repeatable.", option="--source")] = ()

    def __post_init__(self) -> None:
        check_settings(self)


@pydantic_dataclass(frozen=True)
class SearchBody(SearchSettings):
    stage: Literal["search"] = field(kw_only=True)


def command() -> tuple[typer.Typer, list[tuple[SearchSettings, str]]]:
    app, calls = typer.Typer(), []

    @app.command()
    @settings_options(SearchSettings)
    def search(settings: SearchSettings, action: str = "report") -> None:
        """Search."""
        calls.append((settings, action))

    return app, calls


def test_a_command_has_an_option_for_each_field() -> None:
    app, calls = command()
    many = ["--threshold", "0.5", "--words", "7", "--unit", "prompt", "--exact"]
    for arguments in ([], [*many, "--source", "a", "--source", "b", "--action", "drop"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert calls == [(SearchSettings(), "report"), (SearchSettings(0.5, 7, "prompt", True, ("a", "b")), "drop")]
    text = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())
    assert all(part in text for part in ("(above 0, at most 1)", "(1 to 50)", "pair|prompt"))


@dataclass(frozen=True, kw_only=True)
class ShareSettings:
    share: Annotated[float, Ge(0), Le(1), Help("Of the second.")] = 0.5

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class MergeSettings(ShareSettings):
    members: Annotated[tuple[str, ...], Help("What is merged.", "NAME NAME...")]
    method: Annotated[Literal["a", "b"] | None, Help("How.", metavar="METHOD", panel="Methods")] = None
    samples: Annotated[int | None, Ge(1), Help("How many.", "--samples, -k")] = None


def test_positional_arguments_short_forms_and_headings() -> None:
    app, calls = typer.Typer(), []

    @app.command()
    @settings_options(MergeSettings)
    def merge(settings: MergeSettings) -> None:
        """Merge."""
        calls.append(settings)

    chosen = MergeSettings(("x", "y"), samples=3, share=0.25)
    for arguments in (["x", "y", "-k", "3", "--share", "0.25"], arguments_of(chosen, MergeSettings)):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert calls == [chosen, chosen]
    assert [declared.name for declared in fields_of(MergeSettings)] == ["members", "method", "samples", "share"]
    text = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())
    assert all(part in text for part in ("NAME NAME...", "METHOD", "Methods", "-k"))
    with pytest.raises(BadInputError, match="unknown method 'c'; one of a, b"):
        MergeSettings(("x",), method="c")  # type: ignore[arg-type]


def test_arguments_give_the_same_settings_back() -> None:
    app, calls = command()
    for settings in (SearchSettings(), SearchSettings(0.05, 50, "prompt", True, ("a b", "c"))):
        assert CliRunner().invoke(app, arguments_of(settings, SearchSettings)).exit_code == 0
        assert calls[-1][0] == settings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"threshold": 0.0}, "field 'threshold': must be above 0, not 0"),
        ({"threshold": float("nan")}, "field 'threshold': must be above 0, not nan"),
        ({"words": 51}, "field 'words': must be at most 50, not 51"),
        ({"words": 0}, "field 'words': must be at least 1, not 0"),
        ({"words": "two"}, "field 'words': must be a whole number, not 'two'"),
        ({"threshold": "high"}, "field 'threshold': must be a number, not 'high'"),
        ({"unit": "word"}, "field 'unit': unknown unit 'word'; one of pair, prompt"),
    ],
)
def test_values_outside_the_declared_range_are_refused_everywhere(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(BadInputError) as error:
        SearchSettings(**wrong)  # type: ignore[arg-type]
    assert str(error.value) == message
    with pytest.raises(ValidationError):
        TypeAdapter(SearchBody).validate_python({"stage": "search", **wrong})


def test_the_schema_of_a_body_is_that_of_its_settings() -> None:
    properties = TypeAdapter(SearchBody).json_schema()["properties"]
    assert properties["words"] | {"title": ""} == {
        "type": "integer",
        "title": "",
        "description": "Words of a shingle.",
        "default": 3,
        "minimum": 1,
        "maximum": 50,
    }
    assert {f.name: f.default for f in fields_of(SearchSettings)} == {
        name: tuple(schema["default"]) if name == "sources" else schema["default"]
        for name, schema in properties.items()
        if name != "stage"
    }
    assert TypeAdapter(SearchBody).validate_python({"stage": "search"}).words == 3
