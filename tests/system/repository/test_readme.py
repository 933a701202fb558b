"""Snippets of the README and of the overview, run as they stand, but on the tiny model and a free port."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from reserved_ports import reserved_port

from assay.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
PAGES = (ROOT / "README.md", ROOT / "docs" / "overview.md")


def snippets(language: str) -> list[str]:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def transcript(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Everything the snippets printed, run in one shell; the server they start is stopped."""
    folder = tmp_path_factory.mktemp("readme")
    rows = [{"prompt": f"Question {n}?", "chosen": f"Answer {n}, a good one.", "rejected": f"{n}"} for n in range(40)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    port = str(reserved_port())
    own, served, curated = (part.replace("smollm2", "tiny").replace("8000", port) for part in snippets("bash"))
    (python,) = (part.replace("8000", port) for part in snippets("python"))
    (folder / "client.py").write_text(python)
    script = "\n".join(
        ["set -euo pipefail", "trap 'kill %1' EXIT", own, served, f"{sys.executable} ../client.py", curated]
    )
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_the_snippets_run_to_their_end(transcript: str) -> None:
    assert len(re.findall(r"^[+-]\d+\.\d{3} by helpful@[0-9a-f]{16}$", transcript, re.MULTILINE)) == 2, transcript


@pytest.mark.slow
def test_they_print_what_the_readme_promises(transcript: str) -> None:
    assert "40" in transcript
    for word in ("mine-holdout", "helpful", "improved", "came from", "unverified"):
        assert word in transcript, transcript
    assert "Traceback" not in transcript


@pytest.mark.slow
def test_every_command_of_the_table_exists(capsys: pytest.CaptureFixture[str]) -> None:
    table = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \|", table, re.MULTILINE)
    commands = []
    for cell in named:
        names = re.findall(r"`([^`]+)`", cell)
        group = names[0].rsplit(" ", 1)[0]
        commands += [name if name.startswith("assay ") else f"{group} {name}" for name in names]
    assert len(commands) > 15
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main([*command.split()[1:], "--help"])
        assert ended.value.code == 0, command
        assert "Example" in capsys.readouterr().out, command
