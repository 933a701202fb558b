"""The key of the server that rewards is not told to the server that watches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import assay_serving.client
from assay.cli.main import main
from assay.errors import BackendError
from assay_policy_training.commands import keys_of


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


def test_another_host_is_not_told_the_first_ones_key() -> None:
    asked = ["verifier", "a=http://one.test:80/x", "b=http://one.test:80/y#m", "c=http://two.test", "row:quality"]
    assert keys_of(asked, "secret") == ["", "secret", "secret", "", ""]
    assert keys_of(["http://one.test"], None) == [None], "the client may look for the environment's"
