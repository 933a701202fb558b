"""Which models an administrator may load: what the allow-list lets through, and that links do not lead out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInputError, NotFoundError
from assay_serving.model_config import ModelConfig
from assay_serving.server.models.model_access import check_plan, check_reference


@pytest.fixture(autouse=True)
def no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_WORKSPACE", raising=False)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name in ("models/one", "models/deep/two", "models-not/three", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "models"


def test_folders_below_an_entry_by_any_spelling(models: Path) -> None:
    one = str(models / "one")
    for spelling in (one, "one", "./one", "models/one", "deep/../one", f"{models}/../models/one"):
        assert check_reference(spelling, [str(models)]) == one
    assert check_reference("deep/two", [str(models)]) == str(models / "deep/two")
    with pytest.raises(NotFoundError):
        check_reference("none", [str(models)])


@pytest.mark.parametrize("reference", ["../elsewhere", "../models-not/three", "/etc", "one/../../elsewhere", "~/x"])
def test_nothing_beside_it(models: Path, reference: str) -> None:
    for spelling in (reference, str(models / reference)):
        with pytest.raises(BadInputError, match="may not be loaded here"):
            check_reference(spelling if reference[0] not in "/~" else reference, [str(models)])


def test_links_are_followed_first(models: Path) -> None:
    (models / "out").symlink_to(models.parent / "elsewhere")
    (models / "in").symlink_to(models / "one")
    with pytest.raises(BadInputError, match="may not be loaded here"):
        check_reference("out", [str(models)])
    assert check_reference("in", [str(models)]) == str(models / "one")


def test_nothing_without_a_list(models: Path) -> None:
    for reference in (str(models / "one"), "models/one", "owner/name", "tiny", "http://gpu:8000"):
        with pytest.raises(BadInputError, match="may not be loaded here"):
            check_reference(reference, [])


def test_models_of_the_hub_by_name_or_owner() -> None:
    assert check_reference("owner/name", ["hub:owner/name"]) == "owner/name"
    assert check_reference("owner/other", ["hub:owner/*"]) == "owner/other"
    for reference in ("owner/name2", "owner2/name", "owner/name/x"):
        with pytest.raises(BadInputError):
            check_reference(reference, ["hub:owner/name"])


def test_engines_behind_an_address() -> None:
    allowed = ["http://gpu:8000"]
    for url in ("http://gpu:8000", "http://gpu:8000/", "http://gpu:8000/v1"):
        plan = ModelConfig("owner/name", engine="vllm-http", engine_options={"url": url})
        assert check_plan(plan, [*allowed, "hub:owner/name"]).engine_options["url"] == url
        assert check_reference(url, allowed) == url
    for url in ("http://gpu:80001", "http://gpu:8000.evil.org", "http://gpu:8000@evil.org", "https://gpu:8000"):
        with pytest.raises(BadInputError):
            check_plan(ModelConfig("owner/name", engine_options={"url": url}), [*allowed, "hub:owner/name"])
        with pytest.raises(BadInputError):
            check_reference(url, allowed)


def test_names_of_the_workspace(tmp_path: Path) -> None:
    from assay.workspace import Workspace

    root = Workspace.create(tmp_path / "space").root
    with pytest.raises(BadInputError):
        check_reference("no-such-model", [], root)


def test_the_key_of_an_engines_server_is_in_no_reply() -> None:
    plan = ModelConfig("rm", engine="vllm-http", engine_options={"url": "http://gpu:8000", "api_key": "sesame"})
    assert plan.public_settings() == plan.to_dict() | {
        "engine_options": {"url": "http://gpu:8000", "api_key": "(hidden)"}
    }
    assert ModelConfig.from_dict(plan.to_dict()) == plan  # what an engine process is started with keeps it
    assert ModelConfig("rm").public_settings() == ModelConfig("rm").to_dict()


@pytest.mark.parametrize(
    "settings",
    [{"engine": "os:system"}, {"kind": "/tmp/own.py:Scorer"}, {"engine_options": {"ca": "/etc/passwd"}}],
)
def test_no_code_of_ones_own_comes_over_the_network(settings: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="may only be"):
        check_plan(ModelConfig("owner/name", **settings), ["hub:owner/name"])
