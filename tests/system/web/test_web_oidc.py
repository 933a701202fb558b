"""Signing in by an OpenID provider: the whole way over HTTP, and each fault that must be noticed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from openid_provider import CLIENT, SECRET, Provider, openid_provider
from typer.testing import CliRunner
from web_pages import running_web, signed_in

from assay.cli.main import build_app
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.accounts import add_account, list_accounts
from assay_web.accounts.passwords import Passwords
from assay_web.settings import OidcSettings, PasswordCost

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"
START = "/api/session/oidc"


@contextmanager
def serving(workspace: Workspace, **settings: Any) -> Iterator[tuple[str, Provider]]:
    with openid_provider() as provider:
        oidc = OidcSettings(provider.issuer, CLIENT, SECRET, **{"default_role": "annotator", **settings})
        with running_web(workspace, open_access=False, password_cost=CHEAP, oidc=oidc) as url:
            yield url, provider


def visit(client: httpx.Client, start: str = START) -> tuple[str, str]:
    """From the button to the page: the callback's address, and where it led."""
    to_provider = client.get(start)
    assert to_provider.status_code == 303, to_provider.text
    callback = httpx.get(to_provider.headers["location"]).headers["location"]
    back = client.get(callback)
    assert back.status_code == 303, back.text
    return callback, back.headers["location"]


def name_in(client: httpx.Client) -> str | None:
    name: str | None = client.get("/api/session").json()["name"]
    return name


def test_somebody_signs_in_and_is_the_same_person_next_time(workspace: Workspace) -> None:
    with serving(workspace, label="the lab's login") as (url, provider):
        for _ in range(2):
            with httpx.Client(base_url=url) as client:
                assert client.get("/api/session").json()["provider"] == "the lab's login"
                callback, target = visit(client, f"{START}?to=/annotate/first%3Fa%3Db")
                assert target == "/annotate/first?a=b"
                session = client.get("/api/session").json()
                assert (session["name"], session["role"]) == ("grace", "annotator")
                assert client.get(callback).headers["location"] == "/?sign-in=expired", "an answer is good once"
            provider.claims = {"sub": "s-1", "preferred_username": "another-name"}
        with httpx.Client(base_url=url) as client:
            assert client.get(f"{START}?to=//evil.example/").status_code == 303
            assert visit(client, f"{START}?to=//evil.example/")[1] == "/"
            assert visit(client, f"{START}?to=/%5Cevil.example/")[1] == "/"
        with httpx.Client(base_url=url) as client:
            tried = client.post("/api/session", json={"name": "grace", "password": "!"})
            assert tried.status_code == 401, "no password opens an account that has none"
            tried = client.post("/api/session", json={"name": "grace", "password": "nobody's password"})
            assert tried.status_code == 401
    with AccessFile(workspace.root / FILE) as access:
        assert [account.name for account in list_accounts(access)] == ["grace"]


def test_faults_of_the_way_there_and_back_sign_nobody_in(workspace: Workspace) -> None:
    with serving(workspace) as (url, provider), httpx.Client(base_url=url) as client:
        to_provider = client.get(START).headers["location"]
        query = parse_qs(urlsplit(to_provider).query)
        assert query["code_challenge_method"] == ["S256"]
        assert query["redirect_uri"] == [f"{url}{START}/callback"]
        callback = httpx.get(to_provider).headers["location"]
        with httpx.Client(base_url=url) as victim:  # a link that would sign them in to the attacker's account
            assert victim.get(callback).headers["location"] == "/?sign-in=expired"
            assert name_in(victim) is None
        assert client.get(callback).headers["location"] == "/?sign-in=expired", "that used the state up"
        callback = httpx.get(client.get(START).headers["location"]).headers["location"]
        forged = callback.replace("state=", "state=x")
        assert client.get(forged).headers["location"] == "/?sign-in=expired"
        callback = httpx.get(client.get(START).headers["location"]).headers["location"]
        code = parse_qs(urlsplit(callback).query)["code"][0]
        assert client.get(callback.replace(code, "invented")).headers["location"] == "/?sign-in=refused"
        # A code that was stolen from another browser's sign-in has another verifier and nonce.
        with httpx.Client(base_url=url) as thief:
            own = httpx.get(thief.get(START).headers["location"]).headers["location"]
            own_code = parse_qs(urlsplit(own).query)["code"][0]
            assert thief.get(own.replace(own_code, code)).headers["location"] == "/?sign-in=refused"
        other = client.get(START).headers["location"]
        answered = httpx.get(other).headers["location"]
        elsewhere = answered.replace("iss=http", "iss=https")
        assert client.get(elsewhere).headers["location"] == "/?sign-in=refused"
        provider.refuses = "access_denied"
        assert visit(client)[1] == "/?sign-in=cancelled"
        assert name_in(client) is None


@pytest.mark.parametrize(
    "fault",
    [
        {"algorithm": "none"},
        {"algorithm": "HS256"},
        {"stranger": True},
        {"overrides": {"nonce": "another"}},
        {"overrides": {"nonce": None}},
        {"overrides": {"iss": "https://evil.example"}},
        {"overrides": {"aud": "another-client"}},
        {"overrides": {"aud": [CLIENT, "another-client"]}},
        {"overrides": {"azp": "another-client"}},
        {"overrides": {"exp": int(time.time()) - 3_600}},
        {"overrides": {"exp": None}},
        {"overrides": {"iat": int(time.time()) + 3_600}},
        {"overrides": {"sub": None}},
        {"overrides": {"sub": ""}},
    ],
    ids=lambda fault: " ".join(fault.get("overrides", fault)),  # times in it differ between processes
)
def test_a_token_that_the_provider_does_not_vouch_for_signs_nobody_in(provided: Any, fault: dict[str, Any]) -> None:
    url, provider = provided
    for name, value in fault.items():
        setattr(provider, name, value)
    with httpx.Client(base_url=url) as client:
        assert visit(client)[1] == "/?sign-in=refused"
        assert name_in(client) is None


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Provider]]:
    with serving(Workspace.create(tmp_path_factory.mktemp("oidc") / "workspace")) as found:
        yield found


@pytest.fixture
def provided(shared: tuple[str, Provider]) -> Iterator[tuple[str, Provider]]:
    yield shared
    provider = shared[1]
    provider.algorithm, provider.stranger, provider.overrides = "RS256", False, {}


def test_roles_follow_the_claims_and_nobody_takes_an_account_by_its_name(workspace: Workspace) -> None:
    with AccessFile(workspace.root / FILE) as access:
        add_account(access, Passwords(CHEAP), "ada", "admin", PASSWORD, by="test")
    roles = (("labellers", "annotator"), ("leads", "curator"), ("root", "admin"))
    with serving(workspace, role_claim="groups", roles=roles, default_role=None, project="medical") as (url, provider):
        with httpx.Client(base_url=url) as client:
            provider.claims = {"sub": "s-9", "preferred_username": "ada", "groups": ["root"]}
            assert visit(client)[1] == "/?sign-in=taken", "a name of the provider's is no proof"
            provider.claims = {"sub": "s-2", "preferred_username": "nobody", "groups": ["other"]}
            assert visit(client)[1] == "/?sign-in=refused"
            provider.claims = {"sub": "s-1", "preferred_username": "grace", "groups": ["labellers", "leads"]}
            assert visit(client)[1] == "/"
            assert client.get("/api/session").json()["role"] == "curator", "the higher one"
        with signed_in(url, "ada", PASSWORD) as ada:
            members = {project["name"]: project["members"] for project in ada.get("/api/projects").json()}
            assert members["medical"] == ["grace"]
            provider.claims = {"sub": "s-9", "preferred_username": "whatever", "groups": ["root"]}
            lesser = ada.post("/api/tokens", json={"label": "notebook", "role": "viewer"}).json()["secret"]
            with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {lesser}"}) as program:
                assert program.get(START).status_code == 403, "else an identity of whoever has it got the whole account"
            assert visit(ada)[1] == "/", "who is signed in links their identity"
        with httpx.Client(base_url=url) as client:
            visit(client)
            assert name_in(client) == "ada"
            provider.claims = {"sub": "s-1", "preferred_username": "grace", "groups": "labellers"}
        with httpx.Client(base_url=url) as client:
            visit(client)
            assert client.get("/api/session").json()["role"] == "annotator", "from the next sign-in on"
            with signed_in(url, "ada", PASSWORD) as ada:
                ada.patch("/api/accounts/grace", json={"disabled": True}).raise_for_status()
                assert name_in(client) is None, "at once"
                assert visit(client)[1] == "/?sign-in=refused"
                actions = ada.get("/api/audit").json()["actions"]
                assert {"sign_in_by_provider", "link_identity", "sign_in_refused"} <= set(actions)


def test_a_provider_that_is_away_or_is_another_is_said(workspace: Workspace) -> None:
    oidc = OidcSettings("http://127.0.0.1:9", CLIENT, default_role="annotator")
    with running_web(workspace, open_access=False, oidc=oidc) as url, httpx.Client(base_url=url) as client:
        assert client.get(START).headers["location"] == "/?sign-in=provider"
    with serving(workspace) as (url, provider), httpx.Client(base_url=url) as client:
        provider.issuer += "/other"
        assert client.get(START).headers["location"] == "/?sign-in=provider"
    with running_web(workspace, open_access=False) as url:
        assert httpx.get(f"{url}{START}").status_code == 404


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--oidc-issuer", "https://id.example"], "--oidc-client-id"),
        (["--oidc-issuer", "https://id.example", "--oidc-client-id", "a"], "--oidc-default-role"),
        (["--oidc-issuer", "http://id.example", "--oidc-client-id", "a", "--oidc-default-role", "viewer"], "https"),
        (["--oidc-issuer", "https://id.example", "--oidc-client-id", "a", "--oidc-role", "x=king"], "VALUE=ROLE"),
        (["--open", "--oidc-issuer", "https://id.example", "--oidc-client-id", "a"], "--open"),
    ],
)
def test_settings_that_do_not_go_together(workspace: Workspace, options: list[str], words: str) -> None:
    result = CliRunner().invoke(build_app(), ["web", *options, "--port", "0", "-w", str(workspace.root)])
    assert isinstance(result.exception, BadInputError)
    assert words in str(result.exception)
