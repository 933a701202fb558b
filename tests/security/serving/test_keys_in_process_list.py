"""What others on the machine or in a browser reach: keys in the list of processes, foreign host names, health checks
that need a key, and the deployment examples as they stand."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from processes import command_line, tree

from assay.cli.hidden_arguments import SECRETS, masked
from assay.cli.main import build_app

ASSAY = str(Path(sys.executable).with_name("assay"))
EXAMPLES = Path(__file__).parents[3] / "examples" / "serving"
KEY = "a-key-that-nobody-else-may-read"


@contextmanager
def started(*command: str) -> Iterator[tuple[str, int]]:
    """URL and process id of a server that prints its URL as JSON."""
    environment = {name: value for name, value in os.environ.items() if name != "ASSAY_API_KEY"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], 240)
        line = process.stdout.readline() if readable else ""
        assert line, "the server did not start"
        yield json.loads(line)["url"], process.pid
    finally:
        process.terminate()
        process.wait(240)


def command_lines(pid: int) -> list[str]:
    """Of a process and all below it."""
    return [command_line(each).decode().replace("\0", " ") for each in tree(pid)]


def docker_command(instruction: str) -> list[str]:
    """The list behind ENTRYPOINT, or behind HEALTHCHECK's CMD."""
    text = (EXAMPLES / "Dockerfile").read_text(encoding="utf-8")
    match = re.search(rf"^{instruction}.*?(\[.*\])$", text, re.MULTILINE)
    assert match is not None
    command: list[str] = json.loads(match[1])
    return command


@pytest.mark.skipif(not Path("/proc/self/cmdline").is_file(), reason="needs /proc")
def test_a_server_hides_its_key_and_dockers_health_check_passes_with_keys(rule_reward: Path) -> None:
    entrypoint = [ASSAY, *docker_command("ENTRYPOINT")[1:]]
    options = ("--port", "0", "--device", "cpu", "--json", "--api-key", KEY)
    with started(*entrypoint, str(rule_reward), *options) as (url, pid):
        assert httpx.get(f"{url}/v1/models").status_code == 401
        assert httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {KEY}"}).status_code == 200
        lines = command_lines(pid)
        assert len(lines) > 2, "supervisor, engine, worker"
        assert not [line for line in lines if KEY in line]
        check = [part.replace("http://127.0.0.1:8000", url) for part in docker_command("HEALTHCHECK")]
        check[0] = sys.executable
        deadline = time.monotonic() + 240
        while subprocess.run(check, capture_output=True).returncode != 0:
            assert time.monotonic() < deadline, "the health check fails"
            time.sleep(0.5)


@pytest.mark.skipif(not Path("/proc/self/cmdline").is_file(), reason="needs /proc")
@pytest.mark.parametrize("given", [["--api-key", KEY], [f"--api-key={KEY}"]])
def test_a_client_hides_its_key(tmp_path: Path, given: list[str]) -> None:
    """Read while it waits for a server that accepts connections and never answers."""
    row = {"prompt": "p", "response": "r"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(240)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = subprocess.Popen(
            [ASSAY, "score", str(tmp_path / "rows.jsonl"), "--reward", url, *given],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            connection, _ = silent.accept()
            with connection:
                connection.settimeout(240)
                assert KEY.encode() in connection.recv(65536), "the server gets the key"
                (line,) = command_lines(client.pid)
        finally:
            client.kill()
            client.wait()
    assert "score" in line
    assert KEY not in line
    assert "***" in line


def test_only_secrets_are_masked() -> None:
    assert masked(["serve", "m", "--api-key", "k", "--port", "1"]) == ["serve", "m", "--api-key", "***", "--port", "1"]
    assert masked(["score", "--api-key=k=l", "--api-key"]) == ["score", "--api-key=***", "--api-key"]


def test_every_option_that_takes_a_key_is_hidden() -> None:
    """An option is one that takes a key where a variable of that name gives it, too."""
    words = [command.name for command in entry_points(group="assay.commands")]
    waiting: list[Any] = [typer.main.get_command(build_app(word)) for word in words]
    keys = set()
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        keys |= {max(p.opts, key=len) for p in command.params if str(p.envvar or "").endswith("_KEY")}
    assert keys == set(SECRETS)


def test_a_keyless_server_on_every_address_refuses_foreign_names(rule_reward: Path) -> None:
    """DNS rebinding: a page whose name was pointed at this server is of another host."""
    options = ("--host", "0.0.0.0", "--port", "0", "--device", "cpu", "--json", "--allowed-host", "rewards.example")
    plain = options[:-2]
    for chosen, expected in ((plain, 421), (options, 200)):
        with started(ASSAY, "serve", str(rule_reward), *chosen) as (url, _):
            port = httpx.URL(url).port
            for host, status in (
                ("attacker.example", 421),
                ("rewards.example", expected),
                (f"127.0.0.1:{port}", 200),
                (f"localhost:{port}", 200),
                (f"{socket.gethostname()}:{port}", 200),
            ):
                reply = httpx.get(f"http://127.0.0.1:{port}/v1/models", headers={"Host": host})
                assert reply.status_code == status, host
