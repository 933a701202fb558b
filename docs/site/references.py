"""Writes the references that are made of the code: run after a command, a kind or a route of the page has changed.

    python docs/site/references.py        docs/reference/commands-*.md, kinds.md and routes.md

The test suite fails where they are not what the code says.
"""

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "docs" / "reference"
MADE = "<!-- Made by docs/site/references.py of the code: changes belong there. -->\n"

#: Page -> title, and the packages whose commands it has.
PAGES = {
    "commands-workspace": ("Commands: workspace, runs, models", "assay"),
    "commands-curation": ("Commands: data, judgments, curation", "assay_pipelines"),
    "commands-reward-models": ("Commands: reward models", "assay_rm_training"),
    "commands-serving": ("Commands: serving", "assay_serving"),
    "commands-policies": ("Commands: policies", "assay_policy_training"),
    "commands-pages": ("Commands: pages, reports, the demo", "assay_web"),
}


def cell(text: str) -> str:
    """A text as one cell of a table: one line; HTML as code, bars and what looks like a link escaped."""
    line = " ".join(text.split()).replace("|", "\\|").replace("][", "]\\[")
    return re.sub(r"(?<!`)<(\w[^<>`]*)>(?!`)", r"&lt;\1&gt;", line)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with its words after `assay`, in the order of the help."""
    inner: dict[str, Any] = getattr(command, "commands", {})
    if not inner or command.invoke_without_command:
        yield path, command
    for name in command.list_commands(None) if inner else ():
        yield from commands(inner[name], (*path, name))


def parameters(command: Any) -> list[tuple[str, str]]:
    """Its arguments, then its options, as its help has them: names, what they mean with their default."""
    import typer

    context = typer.Context(command)
    given = [p for p in command.params if not getattr(p, "hidden", False) and "--help" not in p.opts]
    records = [(p, p.get_help_record(context)) for p in given]
    return [
        (f"`{record[0].replace('|', '/').replace(' range>', '>')}`", cell(_brackets(record[1] or "")))
        for parameter, record in sorted(records, key=lambda pair: pair[0].param_type_name != "argument")
        if record is not None
    ]


def _brackets(text: str) -> str:
    """What the help has in brackets, as people write it."""
    text = re.sub(r"\[x>=([\d.]+)\]", r"(at least \1)", text)
    return re.sub(r"\s*\[(default: [^\[\]]*|required)\]$", r" (\1)", text)


def command_pages() -> dict[str, str]:
    """A page for each package: its commands with their help, arguments and options."""
    import typer

    from assay.cli.main import build_app

    root = typer.main.get_command(build_app())
    found = [(path, command) for path, command in commands(root) if path]
    pages = {}
    for page, (title, package) in PAGES.items():
        own = sorted((path, command) for path, command in found if _package(command) == package)
        text = [f"{MADE}# {title}\n", _INTRODUCTION]
        for word in dict.fromkeys(path[0] for path, _ in own):
            group = [(path, command) for path, command in own if path[0] == word]
            shared = _shared([parameters(command) for _, command in group])
            if shared:
                text.append(
                    f"## Options of most `assay {word}` commands\n\n"
                    + table(["option", "what it does"], [list(one) for one in shared])
                )
            for path, command in group:
                text.append(_command_section(path, command, shared))
        pages[page] = "\n".join(text)
    return pages


_INTRODUCTION = (
    "[All commands in a table](commands.md). Each also takes `--help`; `--json` prints one object for machines.\n"
    "What a command says when something is wrong: [troubleshooting](../troubleshooting.md).\n"
)


def _package(command: Any) -> str:
    return str(inspect.unwrap(command.callback).__module__.partition(".")[0])


def _shared(lists: list[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """What at least half of many commands have in common, word for word: it is said once."""
    if len(lists) < 6:
        return []
    counts = Counter(one for rows in lists for one in rows)
    return [one for one, times in counts.items() if 2 * times >= len(lists)]


def _command_section(path: tuple[str, ...], command: Any, shared: list[tuple[str, str]]) -> str:
    own = parameters(command)
    rows = [list(one) for one in own if one not in shared]
    lacking = [names for names, _ in (one for one in shared if one not in own) if names not in {n for n, _ in own}]
    text = [f"## assay {' '.join(path)}\n", inspect.cleandoc(command.help or "") + "\n"]
    if rows:
        text.append(table(["argument or option", "what it does"], rows))
    if shared:
        text.append(f"And the shared options{', but for ' + ', '.join(lacking) if lacking else ''}.\n")
    return "\n".join(text)


def kinds_page() -> dict[str, str]:
    """Every kind that people extend, with the names of its members and where it is said."""
    from assay.registry import all_kinds

    rows = [
        [
            f"`{kind.name}`",
            cell(kind.summary),
            f"`{kind.option}`" if kind.option else "",
            ", ".join(f"`{name}`" for name in built_in(kind)),
        ]
        for kind in all_kinds()
    ]
    text = (
        f"{MADE}# Kinds and their members\n\n"
        "What the registry has; `assay plugins KIND NAME` prints a member's settings, with their types and defaults.\n"
        "A member of your own stands in its place as `file.py:Name` or `module:Name`: [extending](../extending.md).\n\n"
    )
    return {"kinds": text + table(["kind", "what it is", "option", "members"], rows)}


def built_in(kind: Any) -> list[str]:
    """Names of the members that ship, not of what is installed beside them."""
    return [member.name for member in kind.entries() if member.origin == "built in"]


def routes_page() -> dict[str, str]:
    """The routes of the page's server by tag, with who may use them, what they take and what they give."""
    described = json.loads((REPOSITORY / "web" / "frontend" / "openapi.json").read_text(encoding="utf-8"))
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            by_tag.setdefault((route.get("tags") or ["other"])[0], []).append((path, method.upper(), route))
    text = [
        f"{MADE}# Routes of `assay web`\n",
        "What the page itself uses. `/openapi.json` of a running server describes them with every type. Sign in with\n"
        "`POST /api/session`: it sets a cookie, and its reply has `csrf`, which every change sends as the header\n"
        "`X-CSRF-Token`; a program uses [a token](../web/access.md) instead. Errors are\n"
        "[RFC 9457](https://www.rfc-editor.org/rfc/rfc9457) problems with a stable `code`. Times are seconds since\n"
        "1970, shares are from 0 to 1.\n",
    ]
    for tag in sorted(by_tag):
        text.append(f"## {tag[0].upper()}{tag[1:]}\n")
        for path, method, route in sorted(by_tag[tag], key=lambda one: (one[0], one[1])):
            text.append(_route_section(path, method, route))
    text.append("## Types\n")
    for name, schema in sorted(described["components"]["schemas"].items()):
        if schema.get("properties") and not name.startswith("HTTPValidation"):
            text.append(f"### {name}\n\n{_paragraph(schema)}" + _fields(schema))
    return {"routes": "\n".join(text)}


def _paragraph(schema: dict[str, Any]) -> str:
    line = " ".join(inspect.cleandoc(schema.get("description", "")).split())
    return f"{line}\n\n" if line else ""


def _route_section(path: str, method: str, route: dict[str, Any]) -> str:
    lines = [f"### {method} {path}\n"]
    said = " ".join(inspect.cleandoc(route.get("description") or route.get("summary") or "").split())
    if said:
        lines.append(said + "\n")
    rows = [
        [
            f"`{one['name']}`",
            f"{one['in']}, {_type(one['schema'])}{', required' if one.get('required') and one['in'] != 'path' else ''}",
            cell(one.get("description") or one["schema"].get("description", "")),
        ]
        for one in route.get("parameters", ())
        if one["in"] in ("path", "query")
    ]
    if rows:
        lines.append(table(["parameter", "type", "what it is"], rows))
    body = route.get("requestBody", {}).get("content", {})
    for kind, content in body.items():
        lines.append(
            f"Body: {_type(content.get('schema', {}))}{'' if kind == 'application/json' else f' as `{kind}`'}.\n"
        )
    for code, reply in sorted(route.get("responses", {}).items()):
        if code.startswith("2"):
            types = [_type(content.get("schema", {})) for content in reply.get("content", {}).values()]
            lines.append(f"Reply {code}: {', '.join(types) if types else 'empty'}.\n")
    return "\n".join(lines)


def _fields(schema: dict[str, Any]) -> str:
    needed = schema.get("required", ())
    rows = [
        [f"`{name}`", _type(field) + ("" if name in needed else ", optional"), cell(field.get("description", ""))]
        for name, field in schema["properties"].items()
    ]
    return table(["field", "type", "what it is"], rows)


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words, references as links to their types."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[key]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(kind)


PARTS: tuple[Callable[[], dict[str, str]], ...] = (command_pages, kinds_page, routes_page)


def main() -> None:
    for make in PARTS:
        for name, text in make().items():
            (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
