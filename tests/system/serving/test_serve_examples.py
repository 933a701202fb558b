"""The examples of running a server as a service: what they start must be what the command and its file understand."""

from __future__ import annotations

import configparser
import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.cli.main import build_app
from assay_serving.server.http.config_file import config_of, read_config

REPOSITORY = Path(__file__).resolve().parents[3]
EXAMPLES = REPOSITORY / "examples" / "serving"


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The options of `assay ARGUMENTS` as the command would get them; raises for one that there is not."""
    import typer.main

    group: Any = typer.main.get_command(build_app())
    assert arguments[0] == "serve"
    command = group.commands["serve"]
    parameters: dict[str, Any] = command.make_context("serve", arguments[1:]).params
    return parameters


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile, with continued lines joined."""
    text = (EXAMPLES / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def test_the_configuration_is_one() -> None:
    config = config_of(read_config(EXAMPLES / "serve.yaml"))
    assert config.settings.needs_key  # it listens to the network
    assert config.models[0].served_as == "rm"


def test_the_service_starts_what_there_is() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(EXAMPLES / "assay-serve.service")
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "assay"
    options = parsed(arguments)
    assert options["config"] == Path("/etc/assay/serve.yaml")
    assert options["log_format"] == "json"
    assert unit["Service"]["KillMode"] == "mixed"
    # Fronts, then the engine: systemd must wait for both.
    from assay_serving.engine_process.supervisor import ENGINE_DRAIN_S, WORKERS_DRAIN_S

    assert int(unit["Service"]["TimeoutStopSec"]) > WORKERS_DRAIN_S + ENGINE_DRAIN_S


def test_systemd_has_nothing_to_say(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed")
    program = tmp_path / "assay"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "assay-serve.service"
    unit.write_text((EXAMPLES / "assay-serve.service").read_text().replace("/opt/assay/bin/assay", str(program)))
    done = subprocess.run([verify, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=300)
    said = [line for line in done.stderr.splitlines() if "assay-serve.service" in line]
    assert said == []


def test_the_image_starts_what_there_is() -> None:
    found = dict(instructions())
    entry, command = json.loads(found["ENTRYPOINT"]), json.loads(found["CMD"])
    assert entry[0] == "assay"
    assert parsed([*entry[1:], *command])["config"] == Path("serve.yaml")
    commands = " ".join(rest for name, rest in instructions() if name == "RUN")
    assert (REPOSITORY / commands.split("-c ")[1].split()[0]).is_file()
    assert json.loads(found["ARG"].partition("=")[2]) in (REPOSITORY / "Makefile").read_text()
    port = config_of(read_config(EXAMPLES / "serve.yaml")).port
    assert found["EXPOSE"] == str(port)
    check = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
    assert f":{port}/readyz" in check[-1]
    compile(check[-1], "HEALTHCHECK", "exec")


def test_compose_starts_what_there_is() -> None:
    service = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())["services"]["rewards"]
    assert (
        EXAMPLES / service["build"]["context"] / service["build"]["dockerfile"]
    ).resolve() == EXAMPLES / "Dockerfile"
    assert parsed(["serve", *service["command"]])["workers"] == 2
