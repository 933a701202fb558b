"""A model as others get it: the folder is a stock model with a card that names no place of this machine, and a hub
gets the same files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from assay_command import Run
from hub_double import Hub, running_hub

from assay.workspace import Workspace

REWARD = "def letters(prompts, completions, **columns):\n    return [float(len(set(text))) for text in completions]\n"


@pytest.fixture
def policy(workspace: Workspace, assay: Run, tmp_path: Path) -> str:
    """A policy of one step, by a reward function and prompts that are named by absolute paths."""
    (tmp_path / "mine.py").write_text(REWARD, encoding="utf-8")
    prompts = tmp_path / "questions.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"Name {n}."}) + "\n" for n in range(4)), encoding="utf-8")
    plan = ("--recipe", "grpo", "--policy", "tiny", "--prompts", prompts, "--reward", f"{tmp_path}/mine.py:letters")
    small = ("--steps", "1", "--group-size", "2", "--prompts-per-step", "2", "--max-new-tokens", "4", "--evaluate", "2")
    code, _, err = assay("rl", *plan, *small, "--device", "cpu", "--name", "pol", "--workspace", workspace.root)
    assert code == 0, err
    return "pol"


def pushed(workspace: Workspace, hub: Hub, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the hub's library reads its address as it is imported."""
    variables = {"HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_secret", "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-m", "assay", "publish", *arguments, "--workspace", str(workspace.root)]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_policy_is_written_with_its_card_and_pushed(
    workspace: Workspace, assay: Run, policy: str, tmp_path: Path
) -> None:
    at = ("--workspace", workspace.root)
    target = tmp_path / "shelf" / "pol"
    code, out, err = assay("publish", policy, "--to", target, "--json", *at)
    assert (code, json.loads(out)) == (0, {"model": "pol", "folder": str(target)}), err
    card = (target / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: text-generation\n")
    assert "| rewards | mine.py:letters |" in card
    assert (
        "\nHeld-out prompts: 2 prompts, 4 responses each\n\n| measure | before | after | change, 95 % by prompt |\n"
        in card
    )
    assert "\n| reward | " in card
    assert "| steps | 1 of 1 |" in card
    assert str(tmp_path) not in card
    assert str(workspace.root) not in card
    saved = {path.name: path.read_bytes() for path in (workspace.models / policy).iterdir()}
    assert saved == {path.name: path.read_bytes() for path in target.iterdir() if path.name != "README.md"}

    with running_hub() as hub:
        finished = pushed(workspace, hub, policy, "--hub", "acme/pol", "--revision", "trial")
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout == f"pushed pol: {hub.url}/acme/pol/commit/{'0' * 40}\n"
        assert hub.private == {"acme/pol": True}
        assert hub.tokens == {"Bearer hf_secret"}
        expected = {path.name: path.read_bytes() for path in target.iterdir()}
        assert hub.files["acme/pol", "trial"] == expected
        hub.files["acme/open", "main"] = {"model-00001-of-00002.safetensors": b"old", "LICENSE": b"mine"}
        hub.private["acme/open"] = False
        assert "acme/open is there already and public" in pushed(workspace, hub, policy, "--hub", "acme/open").stderr
        assert pushed(workspace, hub, policy, "--hub", "acme/open", "--public").returncode == 0
        assert hub.files["acme/open", "main"] == {**expected, "LICENSE": b"mine"}, "old weights are replaced"
        hub.refuse = 507
        refused = pushed(workspace, hub, policy, "--hub", "acme/pol", "--public")
        assert refused.returncode != 0
        message = refused.stderr.splitlines()[-1]  # after the progress of the upload
        assert message.startswith(f"assay: acme/pol was not pushed to {hub.url}: ")
        assert message.endswith("no room")


def test_a_reward_model_goes_without_paths_of_this_machine(workspace: Workspace, assay: Run, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"Question {n}?", "chosen": "Yes, it is.", "rejected": "No."} for n in range(4)]
    pairs.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    at = ("--workspace", workspace.root)
    plan = ("--base", "tiny", "--data", pairs, "--eval-data", pairs, "--device", "cpu", "--name", "rm")
    assert assay("train", "bt", *plan, *at)[0] == 0
    assert assay("publish", "rm", "--to", tmp_path / "rm", *at)[0] == 0
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in (tmp_path / "rm").iterdir()
        if path.suffix != ".safetensors"
    }
    assert "pairs.jsonl" in texts["README.md"]
    assert [name for name, text in texts.items() if str(tmp_path) in text] == []


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("rm",), "say where: --to FOLDER or --hub OWNER/NAME"),
        (("rm", "--to", "x", "--hub", "a/b"), "say where: --to FOLDER or --hub OWNER/NAME"),
        (("rm", "--to", "x"), "no model 'rm' in "),
        (("rm", "--hub", "bad name"), "'bad name' is not OWNER/NAME of a model hub"),
    ],
)
def test_what_cannot_be_published_is_one_line(
    workspace: Workspace, assay: Run, arguments: tuple[str, ...], line: str
) -> None:
    code, _, err = assay("publish", *arguments, "--workspace", workspace.root)
    assert code != 0
    assert line in err
    assert err.count("\n") == 1
