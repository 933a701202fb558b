"""docs/extending.md: every kind of the registry has an example there; the files and commands run as they stand."""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from assay.cli.main import main
from assay.registry import all_kinds
from assay_policy_training.recipe.slots import SLOTS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "extending.md"
PORT = "8700"
EXIT = "exit code"
_BLOCK = re.compile(
    r'^### `(?P<kind>\w+)`$|^```(?P<language>\w+)(?: title="(?P<file>[^"]+)")?\n(?P<text>.*?)^```', re.M | re.S
)


@dataclass(frozen=True)
class Command:
    """One line of a console block, and the lines that it should print."""

    kind: str
    line: str
    expected: tuple[str, ...]


def page(port: str = PORT) -> tuple[dict[str, str], list[Command]]:
    """The files of the page by name, and its commands, each with the kind in whose section it is ("": before all)."""
    files: dict[str, str] = {}
    commands: list[Command] = []
    kind = ""
    for block in _BLOCK.finditer(PAGE.read_text(encoding="utf-8").replace(PORT, port)):
        kind = block["kind"] or kind
        if block["file"]:
            files[block["file"]] = block["text"]
        elif block["language"] == "console":
            for step in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
                line, *expected = step.splitlines()
                commands.append(Command(kind, line, tuple(expected)))
    return files, commands


class Shell:
    """Runs the page's commands in this process, where torch is imported once; a server in one of its own."""

    def __init__(self, folder: Path, port: str) -> None:
        self.folder, self.port = folder, port
        self.server: subprocess.Popen[bytes] | None = None

    def run(self, line: str) -> str:
        """What the command printed on both streams."""
        name, *arguments = shlex.split(line)
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            if name == "cd":
                os.chdir(arguments[0])
            elif name == "python":
                runpy.run_path(arguments[0], run_name="__main__")
            elif name == "head":
                printed.write(Path(arguments[-1]).read_text(encoding="utf-8").splitlines()[0])
            elif name == "curl":
                printed.write(httpx.post(arguments[1], json=json.loads(arguments[3])).raise_for_status().text)
            elif arguments[-1] == "&":
                self.serve(arguments[:-1])
            else:
                try:
                    main(arguments)
                except SystemExit as end:
                    if end.code:
                        printed.write(f"\n{EXIT} {end.code}")
        return printed.getvalue()

    def serve(self, arguments: list[str]) -> None:
        self.server = subprocess.Popen(
            [sys.executable, "-m", "assay.cli", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 90
        while self.server.poll() is None and time.monotonic() < until:
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/readyz").is_success:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise AssertionError("the server did not start")

    def close(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait()


@dataclass(frozen=True)
class PageRun:
    """`printed`: by each command. `calls`: (section, method) of the plug-ins of `every_slot.yaml` that ran."""

    folder: Path
    printed: dict[Command, str]
    calls: set[tuple[str, str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageRun]:
    """The page, run from its beginning to its end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    folder = tmp_path_factory.mktemp("extending")
    work = folder / "work"
    files, commands = page(port)
    work.mkdir()
    for name, text in files.items():
        (work / name).write_text(text, encoding="utf-8")
    (folder / "by_name.py").write_text(files["by_name.py"], encoding="utf-8")
    calls: set[tuple[str, str]] = set()
    for section, method in slot_methods(work):
        record_calls(plug_in(work, section), method, (section, method), calls)
    shell, before = Shell(folder, port), Path.cwd()
    os.chdir(folder)
    try:
        yield PageRun(work, {command: shell.run(command.line) for command in commands}, calls)
    finally:
        shell.close()
        os.chdir(before)


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
    files, commands = page()
    sections = set(re.findall(r"^####? `(\w+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert sections == {kind.name for kind in all_kinds()}
    of_recipe = {kind.name for section, kind in SLOTS.items() if f"\n{section}: " in files["every_slot.yaml"]}
    assert sections <= {command.kind for command in commands} | of_recipe


def test_the_commands_print_what_the_page_says(run: PageRun) -> None:
    for command, text in run.printed.items():
        lines = iter([" ".join(line.split()) for line in text.splitlines()])
        for expected in command.expected:
            pattern = re.escape(" ".join(expected.split())).replace(re.escape("..."), ".*")
            assert any(re.fullmatch(pattern, line) for line in lines), (
                f"$ {command.line}\n{expected!r} is not in\n{text}"
            )
        refused = any(line.startswith("assay: ") for line in command.expected)
        assert refused == (EXIT in text), f"$ {command.line}\n{text}"


def test_the_plug_in_of_every_slot_ran(run: PageRun) -> None:
    assert run.calls == set(slot_methods(run.folder))
    (folder,) = [
        path.parent for path in (run.folder / "runs").glob("*/metrics.jsonl") if "vocabulary" in path.read_text("utf-8")
    ]
    first, second = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    assert {"vocabulary", "agreed_share", "critic_mean", "plain_ratio"} <= first.keys()
    assert second["lr"] == pytest.approx(2 * first["lr"])
