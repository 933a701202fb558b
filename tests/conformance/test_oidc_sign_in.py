"""Signing in to the pages by a provider of another project, a process of its own (`make peers-env`)."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import httpx
from peer_programs import serving_peer
from web_pages import running_web

from assay.workspace import Workspace
from assay_web.settings import OidcSettings


def test_a_browser_signs_in_by_oidc_provider_mock(workspace: Workspace) -> None:
    with serving_peer("oidc", "oidc_provider.py") as (said, _):
        oidc = OidcSettings(
            f"http://localhost:{said['port']}", "assay", "secret", role_claim="groups", roles=(("leads", "curator"),)
        )
        with running_web(workspace, open_access=False, oidc=oidc) as url, httpx.Client(base_url=url) as client:
            form = client.get("/api/session/oidc?to=/runs").headers["location"]
            callback = httpx.post(form, data={"sub": "s-7"}).headers["location"]
            assert client.get(callback).headers["location"] == "/runs"
            session = client.get("/api/session").json()
            assert (session["name"], session["role"]) == ("grace", "curator")

            # The provider itself gives nothing for a code that was used.
            again = httpx.post(client.get("/api/session/oidc").headers["location"], data={"sub": "s-7"})
            fresh, used = again.headers["location"], parse_qs(urlsplit(callback).query)["code"][0]
            replayed = fresh.replace(parse_qs(urlsplit(fresh).query)["code"][0], used)
            assert client.get(replayed).headers["location"] == "/?sign-in=refused"
