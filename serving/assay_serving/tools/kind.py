"""The registry of tools, and a tool by its reference, such as `calculator` or `search?file=documents.jsonl&top=3`.

Covers: which of the tools that a checkpoint or a profile names are opened: registered ones that read no file, and those
that the caller names.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import yaml

from assay.errors import BadInputError
from assay.registry import Kind
from assay_serving.tools.tool import Tool

MCP = "mcp"  #: the member whose reference says what runs, and that gives several tools
TOOLS: Kind[Any] = Kind(
    "tool",
    "What a model may call before it answers, such as a calculator.",
    {
        "calculator": "assay_serving.tools.calculator:Calculator",
        MCP: "assay_serving.tools.mcp:McpServer",
        "python": "assay_serving.tools.program:PythonProgram",
        "search": "assay_serving.tools.search:Search",
    },
    option="tools",
)
_MADE: Kind[Any] = Kind("tool", TOOLS.summary, makes=("name", "description", "parameters", "run"), option="tools")
FILE = "file"  #: a setting of this name is a path


def tools_of(reference: str) -> tuple[Tool, ...]:
    """The tool, or what a server of tools has (its `tools`), of NAME or NAME?SETTING=VALUE&..., the values as in YAML.
    Raises BadInputError for a tool or setting there is not, and what the tool itself raises."""
    name, _, query = reference.partition("?")
    try:
        settings = {key: yaml.safe_load(text) for key, text in parse_qsl(query, True, bool(query))}
    except (ValueError, yaml.YAMLError) as error:
        raise BadInputError(f"settings of a tool are NAME=VALUE, joined by &: {query!r}", field="tools") from error
    created = TOOLS.create(name, settings)
    tools = tuple(getattr(created, "tools", (created,)))
    return tuple(_MADE.accept(tool, name) for tool in tools)


def granted(references: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]:
    """The tools of a checkpoint or profile, which may come from anywhere, with the caller's own of the same name in
    their place. Raises BadInputError for one that loads code or reads a file and that the caller has not `allowed`."""
    by_name = {_short(reference): absolute_reference(reference) for reference in allowed}
    tools = tuple(by_name.get(_short(reference), reference) for reference in references)
    for reference in tools:
        name, _, query = reference.partition("?")
        runs_code = name not in TOOLS.names() or name == MCP
        if reference not in by_name.values() and (runs_code or FILE in dict(parse_qsl(query, True))):
            raise BadInputError(
                f"the model asks for the tool {reference}, which runs code or reads a file of this machine: allow it "
                f"by naming it, --tool {_short(reference)}",
                field="tools",
            )
    return tools


def check_called(allowed: Iterable[str], tools: Iterable[str]) -> None:
    """Raises BadInputError for a tool that the caller allows and a judge with these `tools` never calls."""
    names = [_short(tool) for tool in tools]
    if idle := [reference for reference in allowed if _short(reference) not in names]:
        has = f"its tools are {', '.join(names)}" if names else "it has none; a judge profile gives it some"
        raise BadInputError(f"the judge calls no tool {', '.join(idle)}: {has}", field="--tool")


def _short(reference: str) -> str:
    """The tool's name without folders and settings; of an MCP server all of it, for it says what runs."""
    name, _, query = reference.partition("?")
    return f"{MCP}?{urlencode(parse_qsl(query, True))}" if name == MCP else Path(name).name


def absolute_reference(reference: str) -> str:
    """The reference with its paths made absolute, as a model keeps it."""
    name, mark, query = reference.partition("?")
    settings = [
        f"{key}={quote(str(Path(text).expanduser().resolve()) if key == FILE else text, safe='/')}"
        for key, text in parse_qsl(query, True)
    ]
    return TOOLS.absolute(name) + mark + "&".join(settings)
