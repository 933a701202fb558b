"""A short training of the tiny policy in an environment of another project, by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from assay_command import captured

from assay.workspace import Workspace

SMALL = ("--recipe", "grpo", "--policy", "tiny", "--group-size", "4", "--lr", "1e-3")


def trained(
    workspace: Workspace,
    capsys: pytest.CaptureFixture[str],
    rows: list[dict[str, Any]],
    *arguments: str | Path,
    steps: int = 2,
    prompts: int = 1,
    tokens: int = 200,
    **settings: object,
) -> list[dict[str, Any]]:
    """The rollouts of a run in `environment.NAME=VALUE` of `settings`."""
    table = workspace.root.parent / "rows.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    chosen = [option for name, value in settings.items() for option in ("--set", f"environment.{name}={value}")]
    budgets = ("--steps", str(steps), "--prompts-per-step", str(prompts), "--max-new-tokens", str(tokens))
    name = f"policy-{len(list((workspace.root / 'runs').glob('*')))}"
    limits = ("--set", "episodes.turn_tokens=8", "--set", "sampling.max_prompt_tokens=1500")
    code, out, err = captured(capsys)(
        *("rl", "-w", workspace.root, "--name", name, *SMALL, *budgets, *limits, "--prompts", table, "--json"),
        *("--reward", "environment", *chosen, *arguments),
    )
    assert code == 0, err
    lines = (Path(json.loads(out)["folder"]) / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
