"""Opening engines elsewhere: servers that are not the right ones, options, versions. What they answer once they are
opened: `test_remote_rewards.py`, `test_remote_language_models.py`, `test_remote_sglang.py`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded_engines import (
    Answer,
    elsewhere,
    opened,
    vllm_routes,
)

from assay.errors import BackendError, BadInputError
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.vllm.connection import RemoteSettings
from assay_serving.vllm.engine_loader import InProcessLoader
from assay_serving.vllm.in_process import checked_options
from assay_serving.vllm.versions import flags_for, parse_version, require_raw


@pytest.mark.parametrize(
    ("routes", "error", "message"),
    [
        ({"version": lambda _: (404, b"")}, BackendError, "no vLLM server"),
        ({"version": lambda _: (200, b'{"version":"0.8.5"}')}, BackendError, "0.8.5 is not supported: known are"),
        ({"version": lambda _: (200, b'{"version":"dev"}')}, BackendError, "not supported"),
        ({"version": lambda _: (503, b"starting")}, BackendError, "status 503: starting"),
        ({"version": lambda _: (200, b"<html>")}, BackendError, "does not answer JSON"),
        ({"v1__models": lambda _: (404, b"")}, BackendError, "does not say which models"),
        ({"v1__models": lambda _: (200, b'{"data":[]}')}, BadInputError, "serves no model"),
        ({"v1__models": lambda _: (200, b'{"data":[{"id":"a"},{"id":"b"}]}')}, BadInputError, "serves a, b; name one"),
        ({"classify": lambda _: (404, b'{"detail":"Not Found"}')}, BackendError, "start it with --runner pooling"),
    ],
)
def test_a_server_that_is_not_the_right_one_is_refused_at_once(
    tiny_reward_model: Path, routes: dict[str, Answer], error: type[Exception], message: str
) -> None:
    with elsewhere(vllm_routes(**routes)) as server, pytest.raises(error, match=message):
        opened(tiny_reward_model, server)


@pytest.mark.parametrize(("wanted", "length"), [(None, 512), (64, 64), (1000, 1000)])
@pytest.mark.parametrize("served", [9000, 800])
def test_a_length_can_be_more_than_the_trained_one(
    tiny_reward_model: Path, wanted: int | None, length: int, served: int
) -> None:
    """As in the transformers engine: up to what the model reads, and what the server was started with."""
    models = json.dumps({"data": [{"id": "rm", "max_model_len": served}]}).encode()
    with elsewhere(vllm_routes(v1__models=lambda _: (200, models))) as server:
        config = ModelConfig(
            str(tiny_reward_model), engine="vllm-http", engine_options={"url": server.url}, max_length=wanted
        )
        assert load_scorer(config).info.max_length == min(length, served)
        config = replace(config, max_length=6000)
        assert load_scorer(config).info.max_length == min(4096, served)  # the model reads 4096


def test_a_server_that_is_not_there(tiny_reward_model: Path) -> None:
    with elsewhere({}) as gone:
        pass
    with pytest.raises(BackendError, match="cannot be reached"):
        opened(tiny_reward_model, gone)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs the server's address"),
        ({"url": "gpu:8000"}, "not an http"),
        ({"url": "http://gpu", "temperature": 1}, "no option 'temperature'"),
        ({"url": "http://gpu", "concurrency": 0}, "above 0"),
        ({"url": "http://gpu", "rows_per_request": 1.5}, "Expected `int`.*rows_per_request"),
        ({"url": "http://gpu", "retries": -1}, "at least 0"),
        ({"url": "http://gpu", "timeout": True}, "Expected `float`.*timeout"),
    ],
)
def test_options_of_a_remote_engine_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        RemoteSettings.from_options(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trust_remote_code": True}, "no option 'trust_remote_code'"),
        ({"max_num_seqs": "64"}, "max_num_seqs is int"),
        ({"max_num_seqs": True}, "max_num_seqs is int"),
        ({"enforce_eager": 1}, "enforce_eager is bool"),
    ],
)
def test_options_of_vllm_in_process_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        checked_options(options)
    assert checked_options({"gpu_memory_utilization": 1}) == {"gpu_memory_utilization": 1}


def test_engines_and_what_they_cannot_run(tiny_reward_model: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no engine is named 'tensorrt'"):
        load_scorer(ModelConfig(str(tiny_reward_model), engine="tensorrt"))
    with pytest.raises(BadInputError, match="has no options"):
        load_scorer(ModelConfig(str(tiny_reward_model), engine_options={"url": "http://gpu"}))
    with pytest.raises(BadInputError, match="plans its own passes"):
        load_scorer(ModelConfig(str(tiny_reward_model), engine="vllm", token_budget=64))
    ensemble = tmp_path / "ensemble.yaml"
    ensemble.write_text("members: []\n")
    with pytest.raises(BadInputError, match="serve its models with that engine"):
        load_scorer(ModelConfig(str(ensemble), engine="vllm"))
    with pytest.raises(BadInputError, match="without a reward head"):
        load_scorer(ModelConfig("tiny", engine="vllm-http", engine_options={"url": "http://gpu"}))


def test_without_vllm_the_engine_says_where_it_lives(tiny_reward_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "vllm", None)  # as where it is not installed
    with pytest.raises(BackendError, match=r"vLLM is not in this environment .* pip install vllm"):
        load_scorer(ModelConfig(str(tiny_reward_model), engine="vllm"))


def test_versions_and_their_words(caplog: pytest.LogCaptureFixture) -> None:
    assert parse_version("0.32.0+cpu") == (0, 32, 0)
    assert parse_version("v0.11.1rc2.dev3") == (0, 11, 1)
    assert parse_version("dev") is None
    assert [flags_for(v).activation for v in ("0.10.1.1", "0.11.0", "0.11.1", "0.32.0")] == [
        "activation",
        "activation",
        "use_activation",
        "use_activation",
    ]
    assert not caplog.records
    assert flags_for("0.99.0").raw() == {"use_activation": False}
    assert "newer than those known" in caplog.text
    with pytest.raises(BackendError, match=r"0\.9\.2 is not supported: known are 0\.10\.1 to"):
        flags_for("0.9.2")


def test_answers_are_taken_for_rewards_only_where_activation_changes_them() -> None:
    require_raw([23.0, 3.6], [1.0, 0.973], regression=False, where="x")
    require_raw([23.0, 3.6], [23.0, 3.6], regression=True, where="x")
    with pytest.raises(BackendError, match="may be probabilities"):
        require_raw([23.0, 3.6], [23.0, 3.6], regression=False, where="x")


def test_row_engines_name_the_kinds_that_they_load() -> None:
    with pytest.raises(BadInputError, match="not one of scalar, principle, generative"):
        InProcessLoader.load(ModelConfig("tiny", kind="ranked"))
