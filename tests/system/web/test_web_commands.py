"""`assay web`, `assay up` and `assay account` as processes: what they say, who may come in, and how they end."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import httpx
import pytest
from processes import children
from web_pages import running_web, signed_in

from assay.cli.main import main
from assay.workspace import Workspace
from assay_web.accounts.access_file import FILE
from assay_web.commands.up import KEY

PASSWORD = "correct horse battery"
PATIENCE_S = 300.0  #: a busy machine takes minutes to load what a model needs


class Command:
    """A running command, in a process group of its own, and what it has said on standard error."""

    def __init__(self, *arguments: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != KEY}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "assay", *arguments],
            env=environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.said = ""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def wait_for(self, pattern: str) -> str:
        """The pattern's group, once it has been said."""
        until(lambda: re.search(pattern, self.said) is not None or self.process.poll() is not None)
        found = re.search(pattern, self.said)
        assert found is not None, f"not said: {pattern!r}; said: {self.said}"
        return found[1]

    def ended(self) -> int:
        status = self.process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        return status


@contextmanager
def running(*arguments: str) -> Iterator[Command]:
    command = Command(*arguments)
    try:
        yield command
    finally:
        with suppress(ProcessLookupError):
            os.killpg(command.process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            command.process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(command.process.pid, signal.SIGKILL)
        command.process.wait()


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)


def assay(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """A command that ends, in this process: starting a program takes longer than what it does."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "stdin", io.StringIO(typed))
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), out.getvalue(), err.getvalue())


def program(*arguments: str, typed: str) -> subprocess.CompletedProcess[str]:
    """As `assay`, by a program of its own."""
    command = [sys.executable, "-m", "assay", *arguments]
    return subprocess.run(command, input=typed, capture_output=True, text=True, check=False)


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=5).status_code in (200, 401)
    except httpx.HTTPError:
        return False


@pytest.mark.slow
def test_the_first_link_and_accounts_from_the_command_line(workspace: Workspace) -> None:
    where = ("--workspace", str(workspace.root))
    with running("web", "--port", "0", "--proxy", "127.0.0.1", "--allowed-host", "assay.example", *where) as web:
        token = web.wait_for(r"/invitation#(\S+)")
        url = web.wait_for(r" at (http://\S+)")
        # A proxy on this machine says that it was reached by https, under another name, by somebody else.
        proxied = {"Host": "assay.example", "X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}
        first = httpx.post(
            f"{url}/api/invitation", json={"token": token, "name": "ada", "password": PASSWORD}, headers=proxied
        )
        assert first.status_code == 200
        assert "secure" in first.headers["set-cookie"].lower()
        refused = httpx.get(f"{url}/api/session", headers={"Host": "elsewhere.example"})
        assert refused.status_code == 403

        # The running server takes what the command line says at once.
        added = program(
            "account", "add", "grace", "--role", "curator", "--password-stdin", *where, typed=f"{PASSWORD}\n"
        )
        assert added.returncode == 0, added.stderr
        assert assay("account", "add", "grace", "--password-stdin", *where, typed=f"{PASSWORD}\n").returncode == 4
        short = assay("account", "add", "short", "--password-stdin", *where, typed="short\n")
        assert (short.returncode, "10 characters" in short.stderr) == (2, True)
        with signed_in(url, "grace", PASSWORD) as grace:
            assert assay("account", "disable", "grace", *where).returncode == 0
            assert grace.get("/api/session").json()["name"] is None
        link = assay("account", "invite", "--url", url, "--role", "viewer", *where).stdout.strip()
        assert link.startswith(f"{url}/invitation#")
        invited = httpx.get(f"{url}/api/invitation", headers={"X-Invitation": link.partition("#")[2]})
        assert invited.json()["role"] == "viewer"
        told = json.loads(assay("account", "list", "--json", *where).stdout)
        assert [(each["name"], each["role"], each["disabled"]) for each in told["accounts"]] == [
            ("ada", "admin", False),
            ("grace", "curator", True),
        ]
        assert link.partition("#")[2] not in json.dumps(told)
        with signed_in(url, "ada", PASSWORD) as ada:
            lines = ada.get("/api/audit").json()["lines"]
        assert [line["action"] for line in lines] == [
            "sign_in",
            "make_invitation",
            "change_account",
            "sign_in",
            "add_account",
            "accept_invitation",
        ]
        assert lines[-1]["address"] == "192.0.2.7"
        assert lines[4]["person"].endswith("/ command line")
        os.killpg(web.process.pid, signal.SIGINT)
        assert web.ended() == 0
    assert oct((workspace.root / FILE).stat().st_mode)[-3:] == "600"
    with running("web", "--port", "0", *where) as again:  # there are accounts: no link
        url = again.wait_for(r" at (http://\S+)")
        # Without --proxy nobody is believed, on this machine neither.
        said = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}
        entered = httpx.post(f"{url}/api/session", json={"name": "ada", "password": PASSWORD}, headers=said)
        assert "secure" not in entered.headers["set-cookie"].lower()
        lines = httpx.get(f"{url}/api/audit", cookies=entered.cookies).json()["lines"]
        assert lines[0]["address"] == "127.0.0.1"
        assert "/invitation#" not in again.said


def test_an_account_is_changed_from_the_command_line(workspace: Workspace) -> None:
    def account(*arguments: str, typed: str = "") -> str:
        done = assay("account", *arguments, "--workspace", str(workspace.root), typed=typed)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    account("add", "grace", "--password-stdin", typed=f"{PASSWORD}\n")
    assert account("role", "grace", "curator") == "grace: curator"
    assert account("disable", "grace") == "grace: disabled"
    assert account("list") == "grace: curator, disabled"
    assert account("enable", "grace") == "grace: enabled"
    account("password", "grace", "--password-stdin", typed="another horse\n")
    link = account("password-link", "grace", "--url", "https://annotate.example.org/")
    assert link.startswith("https://annotate.example.org/invitation#")
    assert "new password of grace" in account("list")
    nobody = assay("account", "role", "nobody", "viewer", "--workspace", str(workspace.root))
    assert (nobody.returncode, nobody.stderr) == (3, "assay: there is no account 'nobody'\n")
    with running_web(workspace, open_access=False) as url, signed_in(url, "grace", "another horse") as grace:
        assert grace.get("/api/session").json()["role"] == "curator"


def test_open_access_stays_on_this_machine(workspace: Workspace) -> None:
    refused = assay("web", "--open", "--host", "0.0.0.0", "--workspace", str(workspace.root))
    assert (refused.returncode, "--open is for this machine alone" in refused.stderr) == (2, True)
    proxied = assay("web", "--open", "--port", "0", "--proxy", "10.0.0.1", "--workspace", str(workspace.root))
    assert (proxied.returncode, "a proxy brings others" in proxied.stderr) == (2, True)


def test_up_starts_both_and_ends_both(workspace: Workspace, rule_reward: Path) -> None:
    with running(*up(workspace, rule_reward)) as command:
        rewards = command.wait_for(r"reward server at (http://\S+): brief\n")
        web = command.wait_for(rf"{re.escape(str(workspace.root))} at (http://\S+)")
        command.wait_for("(open access)")
        assert httpx.get(f"{rewards}/v1/models").status_code == 401  # its key is generated
        made = assay("keys", "create", "trainer", "--workspace", str(workspace.root))  # the workspace's first
        bearer = {"Authorization": f"Bearer {made.stdout.strip()}"}
        deadline = time.monotonic() + PATIENCE_S
        while (status := httpx.get(f"{rewards}/v1/models", headers=bearer).status_code) == 401:
            assert time.monotonic() < deadline, "a key made while the server runs is not taken"
            time.sleep(0.1)
        assert status == 200
        with signed_in(web) as client:
            served = client.get("/api/rewards/served").json()["servers"]
            assert served[0]["address"] == rewards
            assert "brief" in json.dumps(served)  # asked with the key
        os.kill(command.process.pid, signal.SIGTERM)
        assert command.ended() == 0, command.said
        assert not answers(rewards)


@pytest.mark.slow
def test_up_ends_the_pages_when_the_reward_server_ends(workspace: Workspace, rule_reward: Path) -> None:
    with running(*up(workspace, rule_reward)) as command:
        web = command.wait_for(rf"{re.escape(str(workspace.root))} at (http://\S+)")
        (guard,) = children(command.process.pid)
        (server,) = children(guard)
        os.kill(server, signal.SIGKILL)
        assert command.ended() == 5
        assert "the reward server ended with status 137, and the web pages with it" in command.said
        assert not answers(web)


@pytest.mark.slow
def test_up_leaves_no_reward_server_behind_when_it_is_killed(workspace: Workspace, rule_reward: Path) -> None:
    with running(*up(workspace, rule_reward)) as command:
        rewards = command.wait_for(r"reward server at (http://\S+): ")
        until(lambda: answers(rewards))
        os.kill(command.process.pid, signal.SIGKILL)
        until(lambda: not answers(rewards))


@pytest.mark.slow
def test_up_says_why_a_model_cannot_be_served(workspace: Workspace, tmp_path: Path) -> None:
    with running(*up(workspace, tmp_path / "no-such-model")) as command:
        assert command.ended() == 3
        assert "no-such-model" in command.said
        assert command.said.splitlines()[-1] == "assay: the reward server did not start: see above"


def up(workspace: Workspace, model: Path) -> tuple[str, ...]:
    ports = ("--port", "0", "--rewards-port", "0", "--device", "cpu")
    return ("up", str(model), "--open", *ports, "--workspace", str(workspace.root))
