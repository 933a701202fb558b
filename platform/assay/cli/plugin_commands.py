"""`assay plugins`: what can be extended, what is there, where it comes from, which settings it has.

Covers: the kinds, the members of one kind, one member with its settings. Leaves out: making anything (the commands
that use a member). Only the member that is asked about is imported.
"""

import inspect
import json
import textwrap
from typing import Any

import typer

from assay.errors import AssayError
from assay.registry import Kind, Member, all_kinds, kind_named, settings_of, unknown


def register(app: typer.Typer) -> None:
    app.command("plugins")(plugins)


def plugins(
    kind: str = typer.Argument("", help="A kind, such as importer or judge. Without it: all kinds."),
    name: str = typer.Argument("", help="A member of that kind, to see its settings; or your own module:Name."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object instead of text."),
) -> None:
    """List what can be extended, the members of one kind, or the settings of one member.

    Example: `assay plugins importer ultrafeedback-raw`
    """
    if not kind:
        kinds = all_kinds()
        if as_json:
            typer.echo(json.dumps({k.name: {"summary": k.summary, "members": k.names()} for k in kinds}))
            return
        width = max(len(one.name) for one in kinds)
        for one in kinds:
            typer.echo(f"{one.name:<{width}} {len(one.names()):>3}  {one.summary}")
        return
    chosen = kind_named(kind)
    members = chosen.entries()
    if name:
        members = [member for member in members if member.name == name]
        if not members and ":" not in name:
            raise unknown(chosen.name, name, chosen.names())
        members = members or [Member(chosen.name, name, name, "given")]
    described = [_describe(chosen, member) for member in members]
    if as_json:
        typer.echo(json.dumps({"kind": chosen.name, "summary": chosen.summary, "members": described}))
        return
    typer.echo(chosen.summary)
    if chosen.requires:
        typer.echo(f"A member has: {', '.join(chosen.requires)}.")
    if chosen.makes:
        typer.echo(f"What it makes has: {', '.join(chosen.makes)}.")
    if chosen.option:
        typer.echo(f"{chosen.option}: a name below, module:Name or file.py:Name.")
    for member in described:
        typer.echo(f"\n{member['name']}  ({member['origin']}: {member['target']})")
        if member["summary"]:
            typer.echo(textwrap.fill(member["summary"], 116, initial_indent="    ", subsequent_indent="    "))
        for setting in member["settings"]:
            default = "required" if setting["default"] is None else f"default {setting['default']}"
            typer.echo(f"    {setting['name']}: {setting['type'] or 'any'} ({default})")


def _describe(kind: Kind[Any], member: Member) -> dict[str, Any]:
    """A member as plain data; one that cannot be imported here says why in place of its settings."""
    described: dict[str, Any] = {"name": member.name, "origin": member.origin, "target": member.target}
    try:
        thing = kind.find(member.name)
    except AssayError as error:
        return described | {"summary": f"cannot be used here: {error}", "settings": []}
    title = getattr(thing, "title", "")  # a method of texts, a property of some classes
    summary_line = title if isinstance(title, str) else ""
    if isinstance(thing, str):  # a recipe is its text, whose first line says what it is
        summary_line = thing.partition("\n")[0].lstrip("# ")
    summary = " ".join((summary_line or inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    settings = [{"name": s.name, "type": s.annotation, "default": s.default} for s in settings_of(thing)]
    return described | {"summary": summary, "settings": settings}
