"""docs/extending.md: every kind of the registry has an example there; the files and commands run as they stand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from console_page import VARIABLES, Command, check_output, read_page, run_commands
from reserved_ports import reserved_port

from assay.errors import BackendError
from assay.registry import Kind, all_kinds
from assay_policy_training.recipe.slots import SLOTS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "extending.md"


@dataclass(frozen=True)
class PageRun:
    """`printed`: by each command. `calls`: (section, method) of the plug-ins of `every_slot.yaml` that ran."""

    folder: Path
    printed: dict[Command, str]
    calls: set[tuple[str, str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageRun]:
    """The page, run from its beginning to its end."""
    port, folder = str(reserved_port()), tmp_path_factory.mktemp("extending")
    work = folder / "work"
    files, commands = read_page(PAGE, port)
    work.mkdir()
    for name, text in files.items():
        (work / name).write_text(text, encoding="utf-8")
    (folder / "by_name.py").write_text(files["by_name.py"], encoding="utf-8")
    calls: set[tuple[str, str]] = set()
    for section, method in slot_methods(work):
        record_calls(plug_in(work, section), method, (section, method), calls)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for variable in VARIABLES:
            patch.delenv(variable, raising=False)
        yield PageRun(work, dict(zip(commands, run_commands(commands, port), strict=True)), calls)


def plug_in(folder: Path, section: str) -> Any:
    """The class in that section of `every_slot.yaml`."""
    sections = yaml.safe_load((folder / "every_slot.yaml").read_text(encoding="utf-8"))
    entry = sections[section][0] if isinstance(sections[section], list) else sections[section]
    return SLOTS[section].find(entry["kind"], folder=folder)


def slot_methods(folder: Path) -> list[tuple[str, str]]:
    """(section, method) of everything that the kinds of slots require."""
    required = [(section, name) for section, kind in SLOTS.items() for name in kind.requires]
    callables = [(section, name) for section, name in required if callable(getattr(plug_in(folder, section), name))]
    return [*callables, ("objective", "loss")]


def record_calls(cls: Any, method: str, key: tuple[str, str], calls: set[tuple[str, str]]) -> None:
    original = getattr(cls, method)

    def recorded(*arguments: Any, **options: Any) -> Any:
        calls.add(key)
        return original(*arguments, **options)

    setattr(cls, method, recorded)


def test_every_kind_has_an_example_that_is_run() -> None:
    """Also for kinds that are added later: a section with a command; or with a file, of a slot in the recipe."""
    files, commands = read_page(PAGE)
    sections = set(re.findall(r"^####? `(\w+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert sections == {kind.name for kind in all_kinds()}
    of_recipe = {kind.name for section, kind in SLOTS.items() if f"\n{section}: " in files["every_slot.yaml"]}
    assert sections <= {command.kind for command in commands} | of_recipe


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
def test_every_built_in_member_is_where_its_kind_says(kind: Kind[Any]) -> None:
    for name in kind.members:
        try:
            kind.find(name)
        except BackendError as error:
            assert "which is not installed" in str(error)  # noqa: PT017 - of the package of somebody else


def test_contributing_names_the_place_of_every_kind() -> None:
    table = (PAGE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## How to add")[2]
    slots = {kind.name for kind in SLOTS.values()}  # in one row
    assert [kind.name for kind in all_kinds() if kind.name not in slots and f"`{kind.name}`" not in table] == []
    files = re.findall(r"`((?:serving|policy_training|rm_training|pipelines)/[\w/]+\.py)`", table)
    assert len(files) > 5
    assert [file for file in files if not (PAGE.parents[1] / file).is_file()] == []


@pytest.mark.slow
def test_the_commands_print_what_the_page_says(run: PageRun) -> None:
    for command, text in run.printed.items():
        check_output(command, text)


@pytest.mark.slow
def test_the_plug_in_of_every_slot_ran(run: PageRun) -> None:
    assert run.calls == set(slot_methods(run.folder))
    (folder,) = [
        path.parent for path in (run.folder / "runs").glob("*/metrics.jsonl") if "vocabulary" in path.read_text("utf-8")
    ]
    first, second = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    assert {"vocabulary", "agreed_share", "critic_mean", "plain_ratio"} <= first.keys()
    assert second["lr"] == pytest.approx(2 * first["lr"])
