"""Pages of the documentation whose console blocks are run: `$ command`, below it lines that it prints, with `...`.

Covers: the files and commands of a page, running them, comparing what they print. As a script: run a page in the
working folder and print the outputs as JSON.
"""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import httpx

from assay.cli.main import main

PORT = "8700"  #: in pages; a free one is used
EXIT = "exit code"
#: Variables of the environment that would change what commands do; the caller removes them.
VARIABLES = ("ASSAY_WORKSPACE", "ASSAY_API_KEY")
_BLOCK = re.compile(
    r'^##.*?(?:`(?P<kind>\w+)`)?$|^```(?P<language>\w+)(?: title="(?P<file>[^"]+)")?\n(?P<text>.*?)^```', re.M | re.S
)


@dataclass(frozen=True)
class Command:
    """One line of a console block, and the lines that it should print. `kind`: in whose section it is."""

    kind: str
    line: str
    expected: tuple[str, ...]


def read_page(page: Path, port: str = PORT) -> tuple[dict[str, str], list[Command]]:
    """The files of a page by name, and its commands."""
    files: dict[str, str] = {}
    commands: list[Command] = []
    kind = ""
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8").replace(PORT, port)):
        if block["language"] is None:
            kind = block["kind"] or ""
        elif block["file"]:
            files[block["file"]] = block["text"]
        elif block["language"] == "console":
            for step in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
                line, *expected = step.splitlines()
                commands.append(Command(kind, line, tuple(expected)))
    return files, commands


class PageShell:
    """Runs commands in this process, where torch is imported once; a server in one of its own."""

    def __init__(self, port: str) -> None:
        self.port = port
        self.server: subprocess.Popen[bytes] | None = None

    def run(self, line: str) -> str:
        """What the command printed on both streams. `pip` is left to the caller."""
        name, *arguments = shlex.split(line)
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            if name == "cd":
                os.chdir(arguments[0])
            elif name == "python":
                sys.path.insert(0, os.getcwd())
                runpy.run_path(arguments[0], run_name="__main__")
                sys.path.pop(0)
            elif name == "head":
                printed.write(Path(arguments[-1]).read_text(encoding="utf-8").splitlines()[0])
            elif name == "curl":
                printed.write(
                    httpx.post(arguments[1], json=json.loads(arguments[3]), timeout=120).raise_for_status().text
                )
            elif arguments[-1] == "&":
                self.serve(arguments[:-1])
            elif name == "assay":
                try:
                    main(arguments)
                except SystemExit as end:
                    if end.code:
                        printed.write(f"\n{EXIT} {end.code}")
            else:
                assert name == "pip", line
        return printed.getvalue()

    def serve(self, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "assay.cli", *arguments]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 300
        while self.server.poll() is None and time.monotonic() < until:
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/readyz").is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError("the server did not start")

    def close(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait()


def run_commands(commands: Iterable[Command], port: str) -> list[str]:
    """What each command printed, all run in the working folder."""
    shell = PageShell(port)
    try:
        return [shell.run(command.line) for command in commands]
    finally:
        shell.close()


def check_output(command: Command, text: str) -> None:
    """The expected lines are in `text`, in order; the command failed only where they show an error."""
    lines = iter([" ".join(line.split()) for line in text.splitlines()])
    for expected in command.expected:
        pattern = re.escape(" ".join(expected.split())).replace(re.escape("..."), ".*")
        assert any(re.fullmatch(pattern, line) for line in lines), f"$ {command.line}\n{expected!r} is not in\n{text}"
    refused = any(line.startswith("assay: ") for line in command.expected)
    assert refused == (EXIT in text), f"$ {command.line}\n{text}"


if __name__ == "__main__":
    _, page_commands = read_page(Path(sys.argv[1]), sys.argv[2])
    print(json.dumps(run_commands(page_commands, sys.argv[2])))
