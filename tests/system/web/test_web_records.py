"""Records for programs: `assay.client` against a real server, as the documentation has it, and what roles may not."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from annotating import cast, take
from web_pages import running_web, signed_in

from assay.client import WorkspaceClient
from assay.errors import BackendError, BadInputError, ForbiddenError, NotFoundError
from assay.workspace import Workspace
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.accounts import Role, add_account
from assay_web.accounts.passwords import Passwords
from assay_web.accounts.tokens import make_token
from assay_web.settings import PasswordCost

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"
DOCS = Path(__file__).resolve().parents[3] / "docs" / "web" / "api.md"
ROLES: dict[str, Role] = {"cora": "curator", "nora": "annotator", "vera": "viewer"}


@pytest.fixture
def tokens(workspace: Workspace) -> dict[str, str]:
    with AccessFile(workspace.root / FILE) as access:
        for name, role in ROLES.items():
            add_account(access, Passwords(CHEAP), name, role, PASSWORD, by="test")
        return {name: make_token(access, name, "test", role, days=1)[0] for name, role in ROLES.items()}


@pytest.fixture
def url(workspace: Workspace, tokens: dict[str, str]) -> Iterator[str]:
    with running_web(workspace, open_access=False, password_cost=CHEAP) as found:
        yield found


def pair(n: int, **more: object) -> dict[str, object]:
    return {"prompt": f"Which metal is {n}?", "response_a": "Gold.", "response_b": f"Lead, {n}.", **more}


@pytest.mark.slow
def test_the_documentations_example_runs(
    url: str, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASSAY_URL", url)
    monkeypatch.setenv("ASSAY_TOKEN", tokens["cora"])
    [example] = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(DOCS), "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["3 new, 0 rejected, 3 queued", "0.0"]
    exec(compile(example, str(DOCS), "exec"), {})
    assert capsys.readouterr().out.splitlines()[0] == "0 new, 0 rejected, 0 queued", "the same again adds nothing"


@pytest.mark.slow
def test_votes_are_pulled_behind_a_cursor_withdrawals_too(url: str, tokens: dict[str, str]) -> None:
    with WorkspaceClient(url, token=tokens["cora"]) as client:
        report = client.push([pair(n, metadata={"n": n}) for n in range(5)], source="app", queue="metals", overlap=2)
        assert (report.new, report.queued, len(set(report.comparison_ids))) == (5, 5, 5)
        with signed_in(url, "nora", PASSWORD) as nora:
            votes = [vote_as(nora, choice="first") for _ in range(3)]
            undo = nora.post("/api/annotate/queues/metals/undo", json={"ticket": votes[-1]})
            undo.raise_for_status()
        time.sleep(1.2)
        pulled = list(client.votes("metals", page=2))
        assert [vote.withdrawn for vote in pulled] == [False, False, True]
        assert {vote.annotator for vote in pulled} == {"nora"}
        assert {vote.comparison_id for vote in pulled} <= set(report.comparison_ids)
        assert all(vote.answer in ("A", "B") for vote in pulled)
        assert list(client.votes("metals", after=pulled[-1].cursor)) == []
        again = list(client.votes("metals", after=pulled[0].cursor, page=2))
        assert {vote.vote for vote in again} >= {vote.vote for vote in pulled[1:]}, (
            "from a page's middle none is missed"
        )
        with signed_in(url, "cora", PASSWORD) as cora:
            cora.post("/api/queues/metals/resolution", json={"least_votes": 1}).raise_for_status()
            cora.patch("/api/queues/metals", json={"title": "Metals by tone"}).raise_for_status()
        assert list(client.votes("Metals by tone")) == list(client.votes("metals")), "as people call it"
        decided = list(client.decisions(page=1))
        assert {d.comparison_id for d in decided} == {vote.comparison_id for vote in pulled if not vote.withdrawn}
        assert list(client.decisions(after=decided[-1].cursor)) == []
        for made_up in ("9" * 30, "nan", "-1", "x"):
            for pulled_after in (client.decisions(after=made_up), client.votes("metals", after=made_up)):
                with pytest.raises(BadInputError, match="no cursor"):
                    next(pulled_after)
        assert client.queues()[0].counts is not None
        origin = client._send("GET", f"/api/comparisons/{report.comparison_ids[2]}")
        assert '"n": 2' in str(origin).replace("'", '"') or '\\"n\\":2' in str(origin), "metadata is kept"


def vote_as(client: httpx.Client, **choice: str) -> str:
    item = take(client, "metals")["item"]
    cast(client, "metals", item, "nora", **choice).raise_for_status()
    ticket: str = item["ticket"]
    return ticket


def test_bad_records_are_named_and_the_others_are_stored(url: str, tokens: dict[str, str]) -> None:
    bad: list[dict[str, object]] = [
        pair(0),
        {"prompt": "Which?", "response_a": "Gold.", "response_b": "Gold."},
        {"prompt": "Which?", "response_a": "Gold."},
        pair(1, label="A", id="mine"),
        {"prompt": "Which?", "response_a": "", "response_b": "Lead."},
    ]
    with WorkspaceClient(url, token=tokens["cora"]) as client:
        report = client.push(bad, source="app", queue="metals")
        assert [each.index for each in report.rejected] == [1, 2, 4]
        assert "identical" in report.rejected[0].reason
        assert (report.new, report.queued, report.comparison_ids[1]) == (2, 2, None)
        with pytest.raises(BadInputError):
            client.push([pair(2, price=3)], source="app")  # no column of ours, and not in metadata
        with pytest.raises(BadInputError):
            client.push([pair(2)], source="app", overlap=2)
        with pytest.raises(BadInputError):
            list(client.votes("metals", after="nonsense"))


def test_programs_see_what_their_people_see(url: str, tokens: dict[str, str]) -> None:
    with WorkspaceClient(url, token=tokens["cora"]) as client:
        client.push([pair(0)], source="app", queue="metals")
        with signed_in(url, "cora", PASSWORD) as cora:
            assert cora.post("/api/records", json={"source": "a/b", "records": [pair(1)]}).status_code == 422
    with WorkspaceClient(url, token=tokens["nora"]) as annotator:
        assert [queue.counts for queue in annotator.queues()] == [None]
        for refused in (annotator.votes("metals"), annotator.decisions()):
            with pytest.raises(ForbiddenError):
                next(refused)
        with pytest.raises(ForbiddenError):
            annotator.push([pair(1)], source="app")
    with WorkspaceClient(url, token=tokens["vera"]) as viewer:
        assert list(viewer.votes("metals")) == []
        with pytest.raises(ForbiddenError):
            viewer.push([pair(1)], source="app")
        with pytest.raises(NotFoundError):
            list(viewer.votes("another"))
    with WorkspaceClient(url, token=tokens["cora"] + "x") as stranger, pytest.raises(ForbiddenError):
        stranger.queues()
    with WorkspaceClient("http://127.0.0.1:9", token="x", patience_s=0.1) as nobody, pytest.raises(BackendError):
        nobody.queues()


@pytest.mark.slow
def test_a_server_without_accounts_takes_a_name(workspace: Workspace) -> None:
    with running_web(workspace) as url, WorkspaceClient(url, name="bot") as client:
        assert client.push([pair(0)], source="app", queue="metals").queued == 1
