"""The configuration of `assay serve`: the file, options before it, the example, errors that name file and field."""

from __future__ import annotations

import re
import socket
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.cli.main import main
from assay.errors import BadInputError, NotFoundError
from assay.http.listening import Tls
from assay_serving.model_config import ModelConfig
from assay_serving.server.core.settings import ServeConfig, ServerSettings
from assay_serving.server.http.config_file import config_of, example, read_config


def written(folder: Path, text: str) -> Path:
    path = folder / "serve.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_is_a_configuration_and_explains_fields_that_exist(tmp_path: Path) -> None:
    config = config_of(read_config(written(tmp_path, example())))
    assert config == ServeConfig((ModelConfig("smollm2", "judge", kind="principle"),))
    known = {f.name for cls in (ServeConfig, ServerSettings, ModelConfig) for f in fields(cls)}
    mentioned = set(re.findall(r"^ *#? ?(?:- )?([a-z][a-z_]+): ", example(), flags=re.MULTILINE))
    assert mentioned <= known
    assert {"reference", "tls_cert", "max_items", "workspace"} <= mentioned
    # With every comment opened it is still one, and the defaults it shows are those.
    opened = re.sub(r"^( *)# ((?:- )?[a-z][a-z_]+: )", r"\1\2", example(), flags=re.MULTILINE)
    payload = yaml.safe_load(opened)
    shown = config_of(read_config(written(tmp_path, opened))).settings
    assert {name: getattr(shown, name) for name in payload if name.startswith("max_")} == {
        name: getattr(ServerSettings(), name) for name in payload if name.startswith("max_")
    }


def test_what_the_file_says_is_what_is_served(tmp_path: Path) -> None:
    (tmp_path / "rm").mkdir()
    config = config_of(
        read_config(
            written(
                tmp_path,
                "models:\n- rm\n- reference: owner/name\n  served_as: other\n  max_length: 5\n"
                "  engine_options: {a: [1]}\nport: 0\nworkers: 3\nrequest_timeout_s: 7\napi_keys: [a, b]\n"
                "tls_cert: cert.pem\ntls_key: /key.pem\n",
            )
        )
    )
    rm, other = config.models
    assert rm.reference == str(tmp_path / "rm")  # beside the file
    assert other == ModelConfig("owner/name", "other", max_length=5, engine_options={"a": [1]})
    assert (config.port, config.workers) == (0, 3)
    assert config.settings == ServerSettings(request_timeout_s=7.0, api_keys=("a", "b"))
    assert config.tls == Tls(str(tmp_path / "cert.pem"), "/key.pem")


@pytest.mark.parametrize(
    ("text", "field", "why"),
    [
        ("modles: [rm]", "modles", "did you mean models?"),
        ("models: [{reference: rm, serve_as: x}]", "models[0].serve_as", "did you mean served_as?"),
        ("models: [rm, {served_as: x}]", "models[1]", "reference"),
        ("models: [3]", "models[0]", "mapping with a reference"),
        ("models: [{reference: rm, max_length: many}]", "models[0].max_length", "expected int"),
        ("models: rm", "models", "list"),
        ("port: high", "port", "expected int, got str"),
        ("api_keys: [1]", "api_keys[0]", "expected str, got int"),
        ("max_items: 2.5", "max_items", "expected int"),
        ("17: x", "17", "no field is named"),
    ],
)
def test_a_wrong_field_is_named_with_the_file(tmp_path: Path, text: str, field: str, why: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadInputError, match=re.escape(why)) as error:
        read_config(path)
    assert str(error.value).startswith(f"{path}, field {field!r}: ") or f"{path}: field {field!r}: " in str(error.value)


@pytest.mark.parametrize("text", ["- a list", "a: [", "\x00", "just text", ""])
def test_what_is_no_mapping_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInputError, match=r"serve\.yaml: ") as error:
        read_config(written(tmp_path, text))
    assert "\n" not in str(error.value)
    with pytest.raises(NotFoundError, match=r"no such file: .*missing\.yaml"):
        read_config(tmp_path / "missing.yaml")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({}, "models"),
        ({"port": 70000}, "port"),
        ({"workers": 65}, "workers"),
        ({"tls_cert": "a"}, "tls_key"),
        ({"tls_key": "a"}, "tls_cert"),
        ({"max_items": 0}, "max_items"),
    ],
)
def test_a_configuration_that_cannot_be(values: dict[str, Any], field: str) -> None:
    models = {} if field == "models" else {"models": (ModelConfig("rm"),)}
    with pytest.raises(BadInputError, match=f"field '{field}'"):
        config_of({**models, **values})


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["serve", *arguments])
    out, err = capsys.readouterr()
    return int(str(stopped.value.code)), out, err


def test_the_command_prints_the_example_and_names_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_API_KEY", raising=False)
    assert run(capsys, "--example") == (0, example(), "")
    code, _, err = run(capsys)
    assert code == 2
    assert "name at least one model" in err
    path = written(tmp_path, "models: [a, b]\nwokers: 3\n")
    code, _, err = run(capsys, "--config", str(path))
    assert (code, err) == (2, f"assay: {path}: field 'wokers': no field is named 'wokers'; did you mean workers?\n")
    path = written(tmp_path, "models: [a, b]\ntls_cert: a.pem\ntls_key: b.pem\n")
    code, _, err = run(capsys, "--config", str(path), "--name", "only-one")
    assert (code, err) == (2, "assay: field '--name': 1 names for 2 models\n")
    code, _, err = run(capsys, "--config", str(path))
    assert (code, err) == (3, f"assay: field 'tls_cert': no such file: {tmp_path / 'a.pem'}\n")
    code, _, err = run(capsys, "--config", str(tmp_path / "missing.yaml"))
    assert (code, err) == (3, f"assay: no such file: {tmp_path / 'missing.yaml'}\n")
    (tmp_path / "a.pem").write_text("no certificate")
    (tmp_path / "b.pem").write_text("no key")
    code, _, err = run(capsys, "--config", str(path))
    assert code == 2
    assert "are no certificate and its key" in err
    assert err.count("\n") == 1


def test_one_process_looks_models_up_in_the_workspace_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.http import running
    from assay_serving.commands import serve
    from assay_serving.engine_process import engine
    from assay_serving.server import in_process as local_host

    asked: list[Path | None] = []

    def load(plans: tuple[ModelConfig, ...], workspace: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
        asked.append(workspace)
        return {}, {}

    class Host(local_host.InProcessBackend):
        def __init__(self, *arguments: Any, workspace: Path | None = None, **options: Any) -> None:
            asked.append(workspace)
            super().__init__(*arguments, workspace=workspace, **options)

    monkeypatch.setattr(engine, "load", load)
    monkeypatch.setattr(local_host, "InProcessBackend", Host)
    monkeypatch.setattr(running, "serve_until_stopped", lambda *_, **__: None)
    config = ServeConfig((ModelConfig("rm"),), workers=0, workspace=str(tmp_path))
    with socket.socket() as listening:
        serve._serve_here(config, listening, lambda infos: None, lambda: config)
    assert asked == [tmp_path, tmp_path]


DIALECT = """
from fastapi import APIRouter

def routes(service):
    router = APIRouter()

    @router.get("/v1/mine")
    async def mine():
        return [info.name for info in await service.backend.models()]

    return router
"""


def test_dialects_are_those_of_the_file(tmp_path: Path, tiny_reward_model: Path) -> None:
    from fastapi.testclient import TestClient

    from assay_serving.engines.transformers import TransformersScorer
    from assay_serving.server.app import create_app

    (tmp_path / "mine.py").write_text(DIALECT)
    file = tmp_path / "serve.yaml"
    file.write_text(f"models: [{tiny_reward_model}]\ndialects: [slime, mine.py:routes]\n")
    settings = config_of(read_config(file)).settings
    assert settings.dialects == ("slime", f"{tmp_path / 'mine.py'}:routes")
    scorer = TransformersScorer.load(ModelConfig(str(tiny_reward_model), "rm", device="cpu"))
    with TestClient(create_app({"rm": scorer}, settings=settings)) as client:
        assert client.get("/v1/mine").json() == ["rm"]
        assert client.post("/slime", json={"prompt": "a", "response": "b"}).status_code == 200
        assert client.post("/get_reward", json={"query": ["a"]}).status_code == 404
    with pytest.raises(BadInputError, match="did you mean slime"):
        create_app({"rm": scorer}, settings=ServerSettings(dialects=("slim",)))
