"""The key of the server that rewards is not told to the server that watches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import assay_serving.client
from assay.cli.main import main
from assay.errors import BackendError


@pytest.mark.parametrize(("option", "sent"), [([], ""), (["--watch-key", "theirs"], "theirs")])
def test_watching_server_gets_its_own_key_only(
    option: list[str], sent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str | None] = []

    class Asked(assay_serving.client.RewardClient):
        def __init__(self, *given: Any, **settings: Any) -> None:
            keys.append(settings["api_key"])
            raise BackendError("far enough")

    monkeypatch.setattr(assay_serving.client, "RewardClient", Asked)
    monkeypatch.setenv("ASSAY_API_KEY", "ours")
    place = str(tmp_path / "w")
    asked = ["rl", "--policy", "tiny", "--reward", "verifier", "--watch", "http://watch.test", "-w", place]
    for command in (["init", place], [*asked, *option]):
        with pytest.raises(SystemExit):
            main(command)
    assert keys == [sent]
