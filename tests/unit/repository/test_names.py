"""Names say what a value is, a public class name stands once, and modules stay small and named by a noun.

The everyday words are those of the field's word lists in reverse: TRL has 0.01 % of them among its names, httpx none.
"""

from __future__ import annotations

import ast
import collections
import re
import statistics
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = (
    "platform/assay",
    "serving/assay_serving",
    "policy_training/assay_policy_training",
    "rm_training/assay_rm_training",
    "pipelines/assay_pipelines",
    "web/assay_web",
)
EVERYDAY = frozenset(
    {"found", "given", "told", "said", "asked", "wanted", "kept", "taken", "known", "made", "left", "meant", "shown"}
    | {"whole", "there", "place", "own", "rest", "others", "named"}
)
GENERAL = frozenset({"data", "item", "value", "result", "obj", "tmp"})
SAYING_NOTHING = {"utils", "util", "helpers", "helper", "manager", "misc", "common", "stuff"}
GLOSSARY = ROOT / "docs" / "glossary.md"


@cache
def modules() -> dict[Path, ast.Module]:
    return {
        path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


@cache
def assigned_names() -> list[tuple[str, str]]:
    """Every name that code stores to, and every parameter: (name, file:line)."""
    names: list[tuple[str, str]] = []
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append((node.id, f"{path}:{node.lineno}"))
            elif isinstance(node, ast.arg):
                names.append((node.arg, f"{path}:{node.lineno}"))
    return names


def definitions(*kinds: type[ast.AST]) -> Iterator[tuple[str, str]]:
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, kinds):
                yield node.name, f"{path}:{node.lineno}"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("words", "limit"), [(EVERYDAY, 0.3), (GENERAL, 2.4)], ids=["everyday", "general"])
def test_share_of_words_that_do_not_say_what_a_value_is(words: frozenset[str], limit: float) -> None:
    names = assigned_names()
    hits = [f"{name} {place}" for name, place in names if name in words]
    share = 100 * len(hits) / len(names)
    assert len(names) > 30_000  # the walk sees the product
    assert share < limit, f"{share:.2f} % of {len(names)} names, for example {hits[:20]}"


def test_no_function_is_called_by_an_everyday_word() -> None:
    functions = definitions(ast.FunctionDef, ast.AsyncFunctionDef)
    assert [f"{name} {place}" for name, place in functions if name.strip("_") in EVERYDAY] == []


def test_a_public_class_name_exists_once() -> None:
    places = collections.defaultdict(list)
    for name, place in definitions(ast.ClassDef):
        if not name.startswith("_"):
            places[name].append(place)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_modules_are_small_and_named_by_what_they_hold() -> None:
    lengths = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert {path: lines for path, lines in lengths.items() if lines > 600} == {}
    assert statistics.median(lengths.values()) <= 150
    assert [path for path in lengths if path.stem in SAYING_NOTHING or path.parent.name in SAYING_NOTHING] == []


def test_modules_open_with_what_they_cover() -> None:
    assert [path for path, tree in modules().items() if tree.body and not ast.get_docstring(tree)] == []


def glossary() -> list[tuple[str, str, list[str]]]:
    """Rows of the table in docs/glossary.md: the word, `module:Name` where it stands in the code, words not used."""
    rows = []
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| **") and len(cells) == 4:
            word, _, code, avoided = cells
            rows.append((word.strip("*"), code.strip("`"), re.findall(r"`([^`]+)`", avoided)))
    return rows


@pytest.mark.parametrize(("word", "code"), [row[:2] for row in glossary()], ids=[row[0] for row in glossary()])
def test_a_word_of_the_glossary_stands_in_the_code_where_it_says(word: str, code: str) -> None:
    module, _, name = code.partition(":")
    assert not name or hasattr(import_module(module), name), f"{word}: {code}"


def test_words_that_the_glossary_rules_out_name_nothing() -> None:
    avoided = {word: term for term, _, words in glossary() for word in words}
    assert len(avoided) > 10
    names = [*assigned_names(), *definitions(ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)]
    names += [(path.stem, str(path)) for path in modules()]
    wrong = []
    for name, place in names:
        parts = "_".join(part.lower() for part in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name))
        wrong += [f"{place}: {name}; say {term}" for word, term in avoided.items() if f"_{word}_" in f"_{parts}_"]
    assert wrong == []
