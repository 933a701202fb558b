"""The documentation's site: it builds without a warning, loads nothing from elsewhere, and lists every page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[3]
TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="no MkDocs: pip install 'assay[docs]'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]+src=\"(https?:[^\"]+)\"", text)
        loaded += re.findall(r"<link[^>]+rel=\"(?:stylesheet|preconnect|icon)\"[^>]+href=\"(https?:[^\"]+)\"", text)
        assert not loaded, (page, loaded)


def test_every_page_is_in_the_navigation() -> None:
    # The file has no tags of its own; a loader without them reads it.
    named = re.findall(r": ([\w/-]+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    there = {page.relative_to(REPOSITORY / "docs").as_posix() for page in (REPOSITORY / "docs").rglob("*.md")}
    assert set(named) == there


def test_the_pictures_are_those_that_the_tests_take_and_small() -> None:
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    shown = set()
    for page in pages:
        for alt, target in re.findall(r"!\[([^\]]*)\]\(([^)]*screenshots/[^)]*)\)", page.read_text(encoding="utf-8")):
            assert len(alt) > 20, (page, target)
            shown.add((page.parent / target).resolve())
    there = set((REPOSITORY / "docs" / "screenshots").iterdir())
    taken = [
        name
        for test in (TESTS / "test_docs_pictures.py", TESTS.parent / "web" / "test_first_hour.py")
        for name in re.findall(r'picture\(page, "([\w-]+)"', test.read_text(encoding="utf-8"))
    ]
    assert shown == there == {REPOSITORY / "docs" / "screenshots" / f"{name}.png" for name in taken}
    assert len(taken) == len(there)
    sizes = [path.stat().st_size for path in there]
    assert max(sizes) < 95_000
    assert sum(sizes) < 1_000_000


@pytest.mark.slow
def test_the_site_shows_them(site: Path) -> None:
    for name in ("index.html", "tutorial.html", "web/annotate.html"):
        page = site / name
        sources = re.findall(r'<img[^>]+src="([^"]*screenshots/[^"]+)"', page.read_text(encoding="utf-8"))
        assert sources, name
        assert all((page.parent / source).is_file() for source in sources)
    assert (site / "site" / "pictures.css").is_file()
    assert not list(site.rglob("*.py"))


@pytest.mark.slow
def test_the_reference_has_the_docstrings(site: Path) -> None:
    assert yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"))["theme"]["font"] is False
    page = (site / "reference" / "platform.html").read_text(encoding="utf-8")
    assert "unordered in identity" in page
