"""`assay serve-admin` against `assay serve` with its engine process: what people see; changes outlive a crash."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from processes import children

from assay.cli.main import main

ASSAY = str(Path(sys.executable).parent / "assay")
KEY = "system-test-key"
PATIENCE_S = 240.0
PROMPTS = [f"Question {n}?" for n in range(12)]


@pytest.fixture(scope="module")
def second(tiny_reward_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same body with the opposite head: it orders every pair the other way round."""
    import shutil
    from dataclasses import replace

    from safetensors.torch import load_file, save_file

    from assay.models.spec import RewardModelSpec, weights_digest

    folder = tmp_path_factory.mktemp("second") / "rm-2"
    shutil.copytree(tiny_reward_model, folder)
    weights = load_file(folder / "model.safetensors")
    weights["score.weight"] = -weights["score.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    spec = RewardModelSpec.read(tiny_reward_model)
    assert spec is not None
    replace(spec, version=weights_digest(folder)).write(folder)
    return folder


@pytest.fixture(scope="module")
def server(tiny_reward_model: Path, second: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    folders = [part for folder in (tiny_reward_model, second) for part in ("--model-folder", str(folder.parent))]
    command = [
        ASSAY,
        "serve",
        str(tiny_reward_model),
        "--name",
        "rm",
        "--port",
        "0",
        "--device",
        "cpu",
        "--json",
        *folders,
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "ASSAY_API_KEY": KEY},
    )
    try:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        line = process.stdout.readline() if readable else ""
        assert "url" in line, f"the server did not start: {line}"
        yield str(json.loads(line)["url"]), process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def engine_of(process: subprocess.Popen[str]) -> int | None:
    return next(iter(children(process.pid, b"engine_process.engine")), None)


@pytest.mark.slow
def test_a_swap_by_commands_under_load_and_a_crash_after_it(
    server: tuple[str, subprocess.Popen[str]],
    tiny_reward_model: Path,
    second: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, process = server
    monkeypatch.setenv("ASSAY_SERVER", url)
    monkeypatch.setenv("ASSAY_API_KEY", KEY)

    def command(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["serve-admin", *arguments])
        assert ended.value.code == code
        shown = capsys.readouterr()
        return shown.out if code == 0 else shown.err

    def version() -> str:
        [model] = json.loads(command("status", "--json"))["models"]
        return str(model["info"]["version"])

    old = version()
    over = threading.Event()
    replies: list[tuple[int, str, float]] = []

    def ask(place: int) -> None:
        with httpx.Client(base_url=url, headers={"X-API-Key": KEY}, timeout=PATIENCE_S) as client:
            while not over.is_set():
                for prompt in PROMPTS[place::4]:
                    body = {"prompt": prompt, "responses": ["Yes.", f"No, {prompt}", "It depends on what you mean."]}
                    reply = client.post("/v1/score", json=body)
                    results = reply.json().get("results", [])
                    [asked] = {entry["version"] for entry in results} or {""}
                    replies.append((reply.status_code, asked, results[0]["reward"] if results else 0.0))
                time.sleep(0.02)

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(ask, place) for place in range(4)]
        try:
            begun = command("swap", "rm", str(second), "--mode", "shadow", "--share", "1")
            assert "swap of rm: shadow, going on" in begun
            until(lambda: json.loads(command("status", "rm", "--json"))["swap"]["compared"] == 3 * len(PROMPTS))
            shown = command("status", "rm")
            assert "same order in 0.0%" in shown  # the opposite head
            assert "within prompts: Kendall -1.000, Spearman -1.000" in shown
            assert {asked for _, asked, _ in replies} == {old}
            assert "promoted (by hand)" in command("promote", "rm")
            new = version()
            until(lambda: replies[-1][1] == new)
        finally:
            over.set()
            for client in clients:
                client.result()
    assert {status for status, _, _ in replies} == {200}
    assert {asked for _, asked, _ in replies} == {old, new}
    assert all((reward > 0) != (other > 0) for _, a, reward in replies for _, b, other in replies[-1:] if a != b)

    assert "409 no swap of rm" in command("promote", "rm", code=4)
    assert "model_folders" in command("load", "/etc", code=2)
    assert "NAME=BOUND" in command("swap", "rm", str(second), "--promote-when", "luck", code=2)
    assert "404" in command("unload", "nobody", code=3)
    monkeypatch.setenv("ASSAY_API_KEY", "wrong")
    assert "401" in command("status", code=2)
    monkeypatch.setenv("ASSAY_API_KEY", KEY)

    killed = engine_of(process)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    until(lambda: engine_of(process) not in (killed, None))
    until(lambda: httpx.get(url + "/readyz", headers={"X-API-Key": KEY}).status_code == 200)
    assert version() == new
    assert "loaded other" in command("load", str(tiny_reward_model), "--name", "other", "--device", "cpu")
    assert "unloaded other" in command("unload", "other")
