"""The text of recipes: those that ship with the package, and files. Imports nothing heavy.

Leaves out: what a recipe means (`recipe_file`).
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from assay.errors import BadInputError, NotFoundError


def shipped_recipes() -> list[str]:
    """Names of the recipes in the package."""
    folder = resources.files("assay_policy_training") / "recipes"
    return sorted(e.name.removesuffix(".yaml") for e in folder.iterdir() if e.name.endswith(".yaml"))


def recipe_text(name: str) -> str:
    """Of a shipped recipe by name, or of a YAML file by path. Raises NotFoundError for neither."""
    path = Path(name).expanduser()
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise NotFoundError(f"no recipe file {path}")
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BadInputError("not UTF-8 text", file=path) from error
    if name not in shipped_recipes():
        raise NotFoundError(f"no recipe {name!r}: not a .yaml file, not one of {', '.join(shipped_recipes())}")
    return (resources.files("assay_policy_training") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")


def recipe_sections(name: str) -> dict[str, Any]:
    """The text as its sections, still unread. Raises as `recipe_text`, and BadInputError for what is not a mapping."""
    text, path = recipe_text(name), Path(name).expanduser()
    try:
        sections = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInputError(f"not YAML: {' '.join(str(error).split())}", file=path) from error
    if not isinstance(sections, dict):
        raise BadInputError("a recipe is a mapping of sections", file=path)
    return sections


def headlines() -> dict[str, tuple[str, str]]:
    """Shipped recipe -> (the paper it follows, the first sentence of its header)."""
    found = {}
    for name in shipped_recipes():
        text = recipe_text(name)
        found[name] = (str(yaml.safe_load(text).get("paper", "")), first_sentence(text))
    return found


def first_sentence(text: str) -> str:
    """Of a recipe's comment, which may go on over several lines, without what names the paper (`paper` does)."""
    comment: list[str] = []
    for line in text.splitlines():
        words = line.lstrip("#").strip()
        if not line.startswith("#") or not words or line.startswith("#  "):  # what is indented is a command or a table
            break
        comment.append(words)
    return re.split(r"(?<=[.!?])(?<!Dr\.)\s", " ".join(comment), maxsplit=1)[0]
