"""`assay account`: who may sign in on `assay web`. Works on the workspace's file, whether a server runs or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.workspace_command import CommandResult, add_commands
from assay.workspace import Workspace

if TYPE_CHECKING:
    from assay_web.accounts.access_file import AccessFile
    from assay_web.accounts.invitations import Invitation

RoleOption = Annotated[str, typer.Option("--role", help="viewer, annotator, curator or admin; each may do more.")]
StdinOption = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, not from the terminal.")
]
ProjectOption = Annotated[str, typer.Option("--project", help="Of whose queues the account is asked.")]
UrlOption = Annotated[
    str, typer.Option("--url", help="Address by which people reach `assay web`, for the link's beginning.")
]
LOCAL = "http://127.0.0.1:8080"


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Accounts of the web pages: add, invite, list, change.")
    add_commands(group, add, invite, role, disable, enable, password, password_link, join, leave, list_)
    app.add_typer(group, name="account")


def add(
    workspace: Workspace,
    name: Annotated[str, typer.Argument(help="Also the annotator's name of their votes.")],
    role: RoleOption = "annotator",
    password_stdin: StdinOption = False,
    project: ProjectOption = "default",
) -> CommandResult:
    """Add an account; asks for its password. Most people are better invited: `assay account invite`.

    Example: `assay account add ada --role admin`
    """
    from assay_web.accounts.accounts import add_account, check_role

    check_role(role)
    with _opened(workspace) as (access, say):
        password = _read_password(password_stdin)
        account = add_account(access, _passwords(), name, role, password, by=_actor(), project=project)  # type: ignore[arg-type]
        say("add_account", account, role=role, project=project)
    return CommandResult({"name": account, "role": role}, f"{account} may sign in as {role}")


def invite(
    role: RoleOption = "annotator",
    days: Annotated[float, typer.Option(help="For which the link is good.")] = 7.0,
    project: ProjectOption = "default",
    url: UrlOption = LOCAL,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a link that makes one account, once. It is shown this once; the file keeps its digest.

    Example: `assay account invite --role annotator --url https://annotate.example.org`
    """
    from assay_web.accounts import invitations

    with _opened(Workspace.find(workspace)) as (access, say):
        token, invitation = invitations.invite(access, role, by=_actor(), days=days, project=project)  # type: ignore[arg-type]
        say("make_invitation", invitation.id, role=role, days=days, project=project)
    _show_link(invitations.link_of(url, token), invitation, as_json=as_json)


def password_link(
    name: str,
    days: Annotated[float, typer.Option(help="For which the link is good.")] = 1.0,
    url: UrlOption = LOCAL,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a link by which somebody who has forgotten their password sets a new one, once.

    Example: `assay account password-link grace`
    """
    from assay_web.accounts import invitations

    with _opened(Workspace.find(workspace)) as (access, say):
        token, invitation = invitations.invite_to_new_password(access, name, by=_actor(), days=days)
        say("make_password_link", name, days=days)
    _show_link(invitations.link_of(url, token), invitation, as_json=as_json)


def list_(workspace: Workspace) -> CommandResult:
    """List the accounts and the invitations that are open.

    Example: `assay account list`
    """
    import time

    from assay_web.accounts.accounts import list_accounts
    from assay_web.accounts.invitations import list_invitations
    from assay_web.accounts.projects import projects_of

    with _opened(workspace) as (access, _):
        accounts = list_accounts(access)
        memberships = {account.name: projects_of(access, account.name) for account in accounts}
        waiting = [i for i in list_invitations(access) if i.used_at is None and i.expires_at > time.time()]
    lines = [f"{a.name}: {a.role}{', disabled' if a.disabled else ''}{_in(memberships[a.name])}" for a in accounts]
    lines += [
        f"invitation {i.id}: {f'new password of {i.name}' if i.name else i.role}, until {_date(i.expires_at)}"
        for i in waiting
    ]
    payload = {
        "accounts": [vars(a) | {"projects": memberships[a.name]} for a in accounts],
        "invitations": [vars(i) for i in waiting],
    }
    return CommandResult(payload, "\n".join(lines) or "no accounts: `assay web` prints a link for the first one")


def role(
    workspace: Workspace,
    name: str,
    to: Annotated[str, typer.Argument(metavar="ROLE", help="viewer, annotator, curator or admin.")],
) -> CommandResult:
    """Give an account another role, at once.

    Example: `assay account role grace curator`
    """
    return _change(workspace, name, role=to)


def join(workspace: Workspace, name: str, project: str) -> CommandResult:
    """Make an account a member of a project: it sees the project's queues at once.

    Example: `assay account join grace medical`
    """
    from assay_web.accounts import projects

    with _opened(workspace) as (access, say):
        projects.join(access, name, project)
        say("add_member", f"{project}/{name}")
    return CommandResult({"name": name, "project": project}, f"{name}: member of {project}")


def leave(workspace: Workspace, name: str, project: str) -> CommandResult:
    """End a membership: the account sees the project's queues no more.

    Example: `assay account leave grace default`
    """
    from assay_web.accounts import projects

    with _opened(workspace) as (access, say):
        projects.leave(access, name, project)
        say("remove_member", f"{project}/{name}")
    return CommandResult({"name": name, "project": project}, f"{name}: no member of {project}")


def disable(workspace: Workspace, name: str) -> CommandResult:
    """Let an account sign in no more, and end its sessions. Its votes stay.

    Example: `assay account disable grace`
    """
    return _change(workspace, name, disabled=True)


def enable(workspace: Workspace, name: str) -> CommandResult:
    """Let a disabled account sign in again.

    Example: `assay account enable grace`
    """
    return _change(workspace, name, disabled=False)


def password(workspace: Workspace, name: str, password_stdin: StdinOption = False) -> CommandResult:
    """Set an account's password, and end its sessions.

    Example: `assay account password ada`
    """
    from assay_web.accounts.accounts import account_row, set_password

    with _opened(workspace) as (access, say):
        with access.reading() as db:
            account_row(db, name)  # before anybody types
        set_password(access, _passwords(), name, _read_password(password_stdin))
        say("set_password", name)
    return CommandResult({"name": name}, f"{name} has a new password; their sessions have ended")


def _change(workspace: Workspace, name: str, **change: Any) -> CommandResult:
    from assay_web.accounts.accounts import change_account

    with _opened(workspace) as (access, say):
        change_account(access, name, **change)
        say("change_account", name, **change)
    state = change["role"] if "role" in change else "disabled" if change["disabled"] else "enabled"
    return CommandResult({"name": name, **change}, f"{name}: {state}")


def _in(memberships: list[str]) -> str:
    """ "" for a member of the default project alone."""
    return "" if memberships == ["default"] else f", projects: {', '.join(memberships) or 'none'}"


def _show_link(link: str, invitation: Invitation, *, as_json: bool) -> None:
    if not as_json:
        what = (
            f"a new password of {invitation.name}"
            if invitation.name
            else f"one account with the role {invitation.role}"
        )
        typer.echo(f"{what}, once, until {_date(invitation.expires_at)}; shown this once:", err=True)
    emit({"link": link, **vars(invitation)}, link, as_json=as_json)


@contextmanager
def _opened(workspace: Workspace) -> Iterator[tuple[AccessFile, Callable[..., None]]]:
    """The workspace's access file, and what writes a line into its audit log."""
    from assay_web.accounts.access_file import FILE, AccessFile
    from assay_web.accounts.audit_log import record

    with AccessFile(workspace.root / FILE) as access:
        yield access, lambda action, subject, **detail: record(access, _actor(), action, subject, detail=detail)


def _actor() -> str:
    """No account has such a name."""
    import getpass

    try:
        return f"{getpass.getuser()} / command line"
    except (KeyError, OSError):  # a process number without a name
        return "command line /"


def _read_password(stdin: bool) -> str:
    import sys

    if stdin:
        return sys.stdin.readline().rstrip("\r\n")
    password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password


def _passwords() -> Any:
    from assay_web.accounts.passwords import Passwords
    from assay_web.settings import PasswordCost

    return Passwords(PasswordCost())


def _date(at: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")
