"""The text of recipes: those that ship with the package, those of installed packages, and files.

Leaves out: what a recipe means (`loading`). Imports nothing heavy.
"""

import re
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from assay.errors import BadInputError, NotFoundError
from assay.registry import Kind


class RecipeText(str):
    """The YAML text of a recipe. Its `__doc__` is the first sentence of its header."""

    def __init__(self, text: str) -> None:
        self.__doc__ = first_sentence(text)


def shipped_recipes() -> list[str]:
    """Names of the recipes in the package."""
    folder = resources.files("assay_policy_training") / "recipes"
    return sorted(e.name.removesuffix(".yaml") for e in folder.iterdir() if e.name.endswith(".yaml"))


RECIPES: Kind[str] = Kind(
    "recipe",
    "How a policy is trained, as YAML text (`assay rl --recipe`, which also takes a YAML file).",
    members={name: f"{__name__}:{name}" for name in shipped_recipes()},
    option="--recipe",
)


def __getattr__(name: str) -> RecipeText:
    """A shipped recipe as an attribute of this module: what the members of `RECIPES` name."""
    path = resources.files("assay_policy_training") / "recipes" / f"{name}.yaml"
    if not path.is_file():
        raise AttributeError(name)
    return RecipeText(path.read_text(encoding="utf-8"))


def recipe_text(name: str) -> str:
    """Of a recipe by name, or of a YAML file by path.

    Raises NotFoundError for a missing file, BadInputError with the nearest names for an unknown name.
    """
    path = Path(name).expanduser()
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise NotFoundError(f"no recipe file {path}")
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BadInputError("not UTF-8 text", file=path) from error
    text = RECIPES.find(name)
    if not isinstance(text, str):
        raise BadInputError(f"{name!r} is not the YAML text of a recipe", field=RECIPES.option)
    return text


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
    """Recipe -> (the paper it follows, the first sentence of its header)."""
    texts = {name: recipe_text(name) for name in RECIPES.names()}
    return {name: (str(yaml.safe_load(text).get("paper", "")), first_sentence(text)) for name, text in texts.items()}


def first_sentence(text: str) -> str:
    """Of a recipe's comment, which may span several lines, without what names the paper (`paper` does)."""
    comment: list[str] = []
    for line in text.splitlines():
        words = line.lstrip("#").strip()
        if not line.startswith("#") or not words or line.startswith("#  "):  # what is indented is a command or a table
            break
        comment.append(words)
    return re.split(r"(?<=[.!?])(?<!Dr\.)\s", " ".join(comment), maxsplit=1)[0]
