"""Checkpoints whose chat template runs without end: neither a command nor a server runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from processes import children

from assay.errors import BadInputError
from assay.models.chat import template_trial
from assay.models.chat.renderer import PLAIN_TEMPLATE
from assay.models.spec import RewardModelSpec, weights_digest
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.process import running_server
from assay_serving.server.core.settings import ServerSettings

ASSAY = str(Path(sys.executable).parent / "assay")
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
PATIENCE_S = 240


def spoilt(source: Path, folder: Path, template: str, *, spec: str = "stale") -> Path:
    """A copy of the model with another template. `spec`: stale (of the files before), fresh (of these), or none."""
    shutil.copytree(source, folder)
    (folder / "chat_template.jinja").write_text(template)
    if spec == "none":
        (folder / "assay.json").unlink()
    elif spec == "fresh":
        known = RewardModelSpec.read(folder)
        assert known is not None
        payload = json.loads((folder / "assay.json").read_text())
        (folder / "assay.json").write_text(json.dumps({**payload, "version": weights_digest(folder)}))
    return folder


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_trial, "TRIAL_S", 3.0)


def test_assay_score_refuses_changed_files_before_it_runs_their_template(
    tiny_reward_model: Path, tmp_path: Path
) -> None:
    folder = spoilt(tiny_reward_model, tmp_path / "rm", ENDLESS)
    (tmp_path / "in.jsonl").write_text(json.dumps({"prompt": "Name a metal.", "response": "Gold."}) + "\n")
    command = [ASSAY, "score", str(tmp_path / "in.jsonl"), "--model", str(folder), "--device", "cpu"]
    ended = subprocess.run(
        [*command, "--out", str(tmp_path / "out.jsonl")], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 2, ended.stderr
    assert f"{folder} is not the checkpoint that its assay.json describes" in ended.stderr.splitlines()[-1]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("spec", ["fresh", "none"])
@pytest.mark.parametrize(
    ("template", "reason"),
    [(ENDLESS, "within 3 s"), ("{{ 'x' * 99999999999 }}", "too much"), ("{{ 'x' * 9999999 }}", "too much")],
)
def test_a_template_without_end_is_refused_whoever_vouches_for_it(
    tiny_reward_model: Path, tmp_path: Path, spec: str, template: str, reason: str
) -> None:
    folder = spoilt(tiny_reward_model, tmp_path / "rm", f"{{# {tmp_path} #}}{template}", spec=spec)
    before = set(children(os.getpid()))
    with pytest.raises(BadInputError, match=f"chat_template.*{reason}"):
        load_scorer(ModelConfig(str(folder), device="cpu"))
    assert set(children(os.getpid())) <= before, "nothing is left running"


def test_an_administrators_load_has_a_deadline_of_its_own(
    tiny_reward_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_trial, "TRIAL_S", 4.0)
    folder = spoilt(tiny_reward_model, tmp_path / "endless", f"{{# {tmp_path} #}}{ENDLESS}", spec="none")
    good = load_scorer(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))
    settings = ServerSettings(model_folders=(str(tmp_path),), load_timeout_s=0.5)
    with running_server({"rm": good}, settings=settings) as server:
        plan = {"reference": str(folder), "device": "cpu"}
        reply = httpx.post(server.url + "/v1/admin/models", json={"plan": plan}, timeout=PATIENCE_S)
    assert reply.status_code == 500
    assert reply.json()["detail"].endswith("endless is not loaded within 0.5 s")


@pytest.mark.usefixtures("impatient")
def test_an_administrators_load_ends_and_the_others_are_served(tiny_reward_model: Path, tmp_path: Path) -> None:
    spoilt(tiny_reward_model, tmp_path / "endless", PLAIN_TEMPLATE + ENDLESS, spec="none")
    spoilt(tiny_reward_model, tmp_path / "changed", PLAIN_TEMPLATE + ENDLESS)
    good = load_scorer(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))
    settings = ServerSettings(model_folders=(str(tmp_path),))
    with running_server({"rm": good}, settings=settings) as server, httpx.Client(base_url=server.url) as client:
        for name, reason in (("endless", "within 3 s"), ("changed", "is not the checkpoint")):
            plan = {"reference": str(tmp_path / name), "device": "cpu"}
            reply = client.post("/v1/admin/models", json={"plan": plan}, timeout=PATIENCE_S)
            assert reply.status_code == 422, reply.text
            assert reason in reply.json()["detail"]
            body = {"prompt": "Name a metal.", "responses": ["Gold."]}
            assert client.post("/v1/score", json=body, timeout=PATIENCE_S).status_code == 200
