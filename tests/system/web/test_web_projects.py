"""Membership in projects: whose queues a person sees, over real HTTP, in the terminal and in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from annotating import cast, import_pairs, take
from typer.testing import CliRunner
from web_pages import opened, running_web, signed_in

from assay.cli.main import build_app
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.ledger import FILE as LEDGER
from assay_pipelines.annotation.queues import create_queue, get_queue
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.accounts import add_account
from assay_web.accounts.passwords import Passwords
from assay_web.accounts.projects import projects_of
from assay_web.settings import PasswordCost

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"


@pytest.fixture
def two_projects(workspace: Workspace) -> Iterator[tuple[Workspace, str]]:
    """The queues general (default) and clinical (medical); ada is an admin, cora a curator of the default project, nora
    an annotator of medical."""
    ids = import_pairs(workspace, 12)
    for name, project in (("general", None), ("clinical", "medical")):
        create_queue(workspace, name, [QueueItem(c) for c in ids], gold_checks=0.0, run_id=None, project=project)
    with AccessFile(workspace.root / FILE) as access:
        passwords = Passwords(CHEAP)
        add_account(access, passwords, "ada", "admin", PASSWORD, by="test")
        add_account(access, passwords, "cora", "curator", PASSWORD, by="test")
        add_account(access, passwords, "nora", "annotator", PASSWORD, by="test", project="medical")
    with running_web(workspace, open_access=False, password_cost=CHEAP) as url:
        yield workspace, url


def test_people_see_the_queues_of_their_projects_alone(two_projects: tuple[Workspace, str]) -> None:
    workspace, url = two_projects
    with (
        signed_in(url, "ada", PASSWORD) as ada,
        signed_in(url, "cora", PASSWORD) as cora,
        signed_in(url, "nora", PASSWORD) as nora,
    ):
        assert [queue["name"] for queue in nora.get("/api/queues").json()] == ["clinical"]
        assert [queue["name"] for queue in cora.get("/api/queues").json()] == ["general"]
        assert [queue["name"] for queue in cora.get("/api/rewards/queues").json()["queues"]] == ["general"]
        assert {queue["name"] for queue in ada.get("/api/queues").json()} == {"general", "clinical"}
        item = take(nora, "clinical")["item"]
        described = nora.get("/openapi.json").json()["paths"]
        hidden = [(method, path) for path, methods in described.items() if "{queue}" in path for method in methods]
        assert len(hidden) >= 15
        body = {
            "person": "nora",
            "ticket": item["ticket"],
            "seal": item["seal"],
            "choice": "first",
            "project": "medical",
        }
        for method, path in hidden:
            reply = nora.request(method, path.replace("{queue}", "general"), json=body)
            assert reply.status_code in (403, 404), (path, reply.text)
            assert "clinical" not in reply.text
            # The same for a queue that there is not: nobody learns which names are taken.
            other = nora.request(method, path.replace("{queue}", "nowhere"), json=body)
            details = [one.json()["detail"].replace(name, "") for one, name in ((reply, "general"), (other, "nowhere"))]
            assert (reply.status_code, details[0]) == (other.status_code, details[1]), path
        for method, path in hidden:
            assert cora.request(method, path.replace("{queue}", "clinical"), json=body).status_code in (404, 422), path
        assert cora.get("/api/queues/clinical/report").status_code == 404
        cast(nora, "clinical", item, "nora", choice="first").raise_for_status()

        new = {"name": "cardiology", "project": "medical"}
        assert cora.post("/api/queues", json=new).status_code == 403
        assert cora.put("/api/queues/general/project", json={"project": "medical"}).status_code == 403
        assert cora.put("/api/projects/medical/members/cora").status_code == 403, "admins alone"
        ada.put("/api/projects/medical/members/cora").raise_for_status()
        cora.post("/api/queues", json=new).raise_for_status()
        moved = cora.put("/api/queues/general/project", json={"project": "medical"})
        assert moved.json()["project"] == "medical"
        assert {queue["name"] for queue in nora.get("/api/queues").json()} == {"clinical", "cardiology", "general"}
        ada.delete("/api/projects/medical/members/nora").raise_for_status()
        assert nora.get("/api/queues").json() == [], "with the next request"
        assert nora.post("/api/annotate/queues/clinical/item").status_code == 404
        listed = {each["name"]: each for each in ada.get("/api/projects").json()}
        assert listed["medical"]["members"] == ["cora"]
        assert set(listed["medical"]["queues"]) == {"clinical", "cardiology", "general"}
        link = ada.post("/api/invitations", json={"role": "annotator", "project": "medical"}).json()["path"]
        token = link.partition("#")[2]
        ada.post("/api/invitation", json={"token": token, "name": "olga", "password": PASSWORD}).raise_for_status()
    with AccessFile(workspace.root / FILE) as access:
        assert projects_of(access, "olga") == ["medical"]


@pytest.mark.slow
def test_projects_in_the_terminal(workspace: Workspace) -> None:
    import_pairs(workspace, 3)
    with AccessFile(workspace.root / FILE) as access:
        add_account(access, Passwords(CHEAP), "grace", "annotator", PASSWORD, by="test")

    def assay(*arguments: str) -> str:
        result = CliRunner().invoke(build_app(), [*arguments, "--workspace", str(workspace.root)])
        assert result.exit_code == 0, result.output
        return result.stdout.strip()

    assay("queue", "create", "clinical", "--project", "medical")
    assert get_queue(workspace, "clinical").project == "medical"
    assert "project medical" in assay("queue", "list")
    assert assay("account", "join", "grace", "medical") == "grace: member of medical"
    assert assay("account", "leave", "grace", "default") == "grace: no member of default"
    assert "projects: medical" in assay("account", "list")
    assert assay("queue", "move", "clinical", "default") == "clinical: project default"
    (workspace.root / LEDGER).unlink()
    assert get_queue(workspace, "clinical").project == "default", "the store knows it"
    refused = CliRunner().invoke(
        build_app(), ["queue", "create", "clinical", "--project", "law", "--workspace", str(workspace.root)]
    )
    assert refused.exit_code != 0


@pytest.mark.slow
@pytest.mark.browser
def test_an_administrator_manages_members_in_the_page(two_projects: tuple[Workspace, str], browser: Browser) -> None:
    workspace, url = two_projects
    with opened(browser, url, name="ada", password=PASSWORD) as page:
        page.goto("/access/projects")
        medical = page.get_by_role("region", name="Project medical")
        medical.get_by_text("Queues: clinical").wait_for()
        page.get_by_role("combobox", name="Account").click()
        page.get_by_role("option", name="cora").click()
        page.get_by_role("textbox", name="Project").fill("medical")
        page.get_by_role("button", name="Add the member").click()
        medical.get_by_text("cora").wait_for()
        medical.get_by_role("button", name="Remove nora from medical").click()
        medical.get_by_text("nora").wait_for(state="detached")
    with AccessFile(workspace.root / FILE) as access:
        assert projects_of(access, "cora") == ["default", "medical"]
        assert projects_of(access, "nora") == []
