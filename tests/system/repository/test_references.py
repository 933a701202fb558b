"""Pages that are made of the code are what the code says; messages and extras that pages name are the product's own."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import typer

from assay.cli.main import build_app, main

REPOSITORY = Path(__file__).resolve().parents[3]
DOCS = REPOSITORY / "docs"
PACKAGES = ("platform", "pipelines", "rm_training", "serving", "policy_training", "web")


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("references", DOCS / "site" / "references.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_references_are_what_the_code_says() -> None:
    made = {name: text for part in generator().PARTS for name, text in part().items()}
    for name, text in made.items():
        kept = (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
        assert kept == text, f"docs/reference/{name}.md: run python docs/site/references.py"


def test_every_command_is_on_a_page_and_in_the_table() -> None:
    module = generator()
    told = "".join(module.command_pages().values())
    table = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    found = [path for path, _ in module.commands(typer.main.get_command(build_app())) if path]
    assert len(found) > 100
    for path in found:
        assert f"\n## assay {' '.join(path)}\n" in told, path
        assert re.search(rf"`(assay )?{path[0]}[ `]", table), path


@pytest.mark.parametrize("kind", ["recipe", "tool"])  # members whose `title` is a method, or a property
def test_members_of_a_kind_are_described(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plugins", kind, "--json"])
    members = json.loads(capsys.readouterr().out)["members"]
    assert members
    assert any(member["summary"] for member in members)


def test_messages_of_troubleshooting_are_the_products() -> None:
    sources = "\n".join(
        path.read_text(encoding="utf-8") for part in PACKAGES for path in (REPOSITORY / part).rglob("*.py")
    )
    sources += "\n".join(
        path.read_text(encoding="utf-8") for path in (REPOSITORY / "web" / "frontend" / "src").rglob("*.tsx")
    )
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)
    assert len(messages) > 25
    for message in messages:
        for part in message.split("…"):
            words = part.strip(" :;,.()")
            assert words in sources, (message, words)


def test_messages_that_the_page_translates_are_the_servers() -> None:
    listed = (REPOSITORY / "web" / "frontend" / "src" / "api" / "serverMessages.ts").read_text(encoding="utf-8")
    messages = re.findall(r'textKey\("([^"]+)"\)', listed)
    sources = "\n".join(
        path.read_text(encoding="utf-8") for part in PACKAGES for path in (REPOSITORY / part).rglob("*.py")
    )
    assert len(messages) > 30
    assert [message for message in messages if f'"{message}"' not in sources] == []


def test_titles_of_charts_that_the_page_translates_are_all_of_them() -> None:
    listed = (REPOSITORY / "web" / "frontend" / "src" / "pages" / "runs" / "chartTexts.ts").read_text(encoding="utf-8")
    charts = tomllib.loads(
        (REPOSITORY / "web" / "assay_web" / "run_charts" / "charts.toml").read_text(encoding="utf-8")
    )
    texts = {
        chart[key] for part in charts.values() for chart in part for key in ("section", "title", "note") if key in chart
    }
    assert [text for text in sorted(texts) if f'"{text}"' not in listed] == []


def test_the_installation_page_names_every_extra() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set(
        re.findall(
            r"`([\w-]+)`", "".join(re.findall(r"^\| (`.*?) \|", (DOCS / "install.md").read_text(), re.MULTILINE))
        )
    )
    assert named == set(project["optional-dependencies"])
