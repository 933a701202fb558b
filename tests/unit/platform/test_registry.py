"""The registry: names found by every route, settings checked and recorded, messages that say the nearest name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Gt

from assay.errors import BackendError, BadInputError, NotFoundError
from assay.registry import Kind, made_by, settings_of


@dataclass(frozen=True)
class Doubling:
    """Twice the reward."""

    factor: float = 2.0

    def apply(self, reward: float) -> float:
        return self.factor * reward


SHAPES: Kind[type[Doubling]] = Kind(
    "shape",
    "A function of a reward.",
    {"doubling": f"{__name__}:Doubling", "lost": "a_package_that_is_not_there.shapes:Lost"},
    requires=("apply",),
    option="--shape",
)


def test_a_built_in_name_is_found_and_made_with_its_settings_on_record() -> None:
    assert SHAPES.find("doubling") is Doubling
    made = SHAPES.create("doubling", {"factor": 3.0})
    assert made.apply(2.0) == 6.0
    record = made_by(made)
    assert record is not None
    assert (record.kind, record.name, dict(record.settings)) == ("shape", "doubling", {"factor": 3.0})
    assert made_by(Doubling()) is None


def test_a_module_s_class_is_found_and_its_name_leads_back() -> None:
    assert SHAPES.find(f"{__name__}:Doubling") is Doubling
    assert SHAPES.name_of(Doubling) == "doubling"
    assert SHAPES.name_of(Path).endswith(":Path")


def test_a_file_beside_the_configuration_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "class Halving:\n    '''Half.'''\n    def apply(self, reward): return reward / 2\n", encoding="utf-8"
    )
    halving = SHAPES.find("mine.py:Halving", folder=tmp_path)
    assert SHAPES.create("mine.py:Halving", folder=tmp_path).apply(4.0) == 2.0
    assert SHAPES.find("mine.py:Halving", folder=tmp_path) is halving


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("doublin", "field '--shape': no shape is named 'doublin'; did you mean doubling?"),
        ("zzz", "one of doubling, lost (or module:Name or file.py:Name)"),
        (f"{__name__}:Doublin", "did you mean Doubling?"),
        ("there_is_no_such:Thing", "there is no module 'there_is_no_such'"),
        ("pathlib:Path", "'pathlib:Path' is no shape: it has no apply"),
    ],
)
def test_what_is_not_there_is_said_with_the_nearest_names(name: str, message: str) -> None:
    with pytest.raises(BadInputError) as error:
        SHAPES.find(name)
    assert message in str(error.value)


def test_a_missing_file_and_a_broken_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no file"):
        SHAPES.find("none.py:X", folder=tmp_path)
    (tmp_path / "broken.py").write_text("1/0\n", encoding="utf-8")
    with pytest.raises(BadInputError, match="ZeroDivisionError"):
        SHAPES.find("broken.py:X", folder=tmp_path)


def test_a_built_in_whose_package_is_missing_is_no_fault_of_the_caller() -> None:
    with pytest.raises((BackendError, BadInputError), match="a_package_that_is_not_there"):
        SHAPES.find("lost")


def test_wrong_settings_are_named() -> None:
    with pytest.raises(BadInputError, match="did you mean factor"):
        SHAPES.create("doubling", {"factr": 1.0})
    assert [(s.name, s.annotation, s.default) for s in settings_of(Doubling)] == [("factor", "float", "2.0")]


def test_what_a_factory_makes_is_checked() -> None:
    kind: Kind[type[Doubling]] = Kind("shape", "", {"doubling": f"{__name__}:Doubling"}, makes=("factor", "colour"))
    with pytest.raises(BadInputError, match="what doubling makes is no shape: it has no colour"):
        kind.create("doubling")


def test_settings_read_the_same_whether_annotations_are_evaluated_or_text() -> None:
    def evaluated(share, path, form, names):  # type: ignore[no-untyped-def]
        pass

    evaluated.__annotations__ = {
        "share": Annotated[float | None, Gt(0)],
        "path": Path | None,
        "form": Literal["a.b", "c"],
        "names": Mapping[str, float],
    }
    assert [s.annotation for s in settings_of(evaluated)] == [
        "float | None",
        "Path | None",
        "Literal['a.b', 'c']",
        "Mapping[str, float]",
    ]

    def text(share: Annotated[float | None, Gt(0)], path: Path | None) -> None:
        pass

    assert [s.annotation for s in settings_of(text)] == ["float | None", "Path | None"]
