"""The interactive pages of the API: complete without any other server, and behind the keys like the rest."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from assay.http.docs_pages import PATHS
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.server.core.settings import ServerSettings

PAGES = ("/docs", "/redoc")
KEY = "a-key-of-these-tests"


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


@pytest.fixture(scope="module")
def server(scorer: TransformersScorer) -> Iterator[RunningServer]:
    with running_server({"rm": scorer}) as running:
        yield running


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_nobody_else_and_what_it_loads_is_here(server: RunningServer, page: str) -> None:
    with httpx.Client(base_url=server.url) as client:
        shown = client.get(page)
        assert shown.status_code == 200
        assert "//" not in re.sub(r"<!--.*?-->", "", shown.text, flags=re.DOTALL).replace(server.url, "")
        assert "default-src 'self';" in shown.headers["content-security-policy"]  # nor may what it loads ask others
        named = set(re.findall(r"""["'](/[^"' ]+)["']""", shown.text))
        assert "/openapi.json" in named
        assert len(named) >= 3
        assert named <= PATHS
        for path in named:
            assert client.get(path).status_code == 200
            assert client.head(path).status_code == 200
    assert "swagger" in shown.text if page == "/docs" else "redoc" in shown.text


def test_assets_are_scripts_styles_and_pictures(server: RunningServer) -> None:
    kinds = {".js": "text/javascript", ".css": "text/css", ".png": "image/png"}
    assets = [path for path in PATHS if path.startswith("/docs/")]
    assert len(assets) == 4
    for path in assets:
        reply = httpx.get(server.url + path)
        assert reply.headers["content-type"].partition(";")[0] == kinds[Path(path).suffix]
        assert len(reply.content) > 1000
    assert httpx.get(server.url + "/docs/assets/../../app.py").status_code == 404
    assert httpx.get(server.url + "/docs/assets/core.py").status_code == 404


def test_they_need_a_key_where_all_else_does(scorer: TransformersScorer) -> None:
    with running_server({"rm": scorer}, settings=ServerSettings(api_keys=(KEY,))) as running:
        for path in PATHS:
            assert httpx.get(running.url + path).status_code == 401
            assert httpx.get(running.url + path, headers={"X-API-Key": KEY}).status_code == 200


def test_without_the_package_the_rest_answers(scorer: TransformersScorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi_offline", None)  # as where it is not installed
    with running_server({"rm": scorer}) as running:
        for page in PAGES:
            reply = httpx.get(running.url + page)
            assert (reply.status_code, reply.json()["code"]) == (404, "not_found")
            assert "fastapi-offline" in reply.json()["detail"]
        body = {"prompt": "a", "responses": ["b"]}
        assert httpx.post(running.url + "/v1/score", json=body).status_code == 200
        assert httpx.get(running.url + "/openapi.json").status_code == 200


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("page", PAGES)
def test_a_browser_that_reaches_no_other_server_shows_the_routes(
    server: RunningServer, page: str, tmp_path: Path
) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium binary (apt-get install chromium)")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    alone = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [browser, *flags, alone, profile, "--virtual-time-budget=10000", "--dump-dom", server.url + page],
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    text = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
    assert "Assay reward server" in text
    for path in ("/v1/score", "/v1/compare", "/get_reward"):
        assert path in text.replace("<wbr>", "").replace("\u200b", "")  # Swagger lets long paths break after a slash
