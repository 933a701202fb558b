"""Building the page: when there is something to do, what is said where it cannot be done, what a wheel carries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
#: What the build is made of and what a wheel needs, without the other packages.
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "web/build_frontend.py", "web/frontend_build_hook.py")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that holds the page's sources and one module, with a page that was built from them."""
    for name in (*NEEDED, "web/frontend/package.json", "web/frontend/package-lock.json", "web/frontend/index.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, tmp_path / name)
    (tmp_path / "web/frontend/src").mkdir()
    (tmp_path / "web/frontend/src/main.tsx").write_text("// the page\n", encoding="utf-8")
    for package in ("platform/assay", "serving/assay_serving", "policy_training/assay_policy_training"):
        (tmp_path / package).mkdir(parents=True)
    for package in ("rm_training/assay_rm_training", "pipelines/assay_pipelines", "web/assay_web"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / ".gitignore").write_text("web/assay_web/static/\nnode_modules\n", encoding="utf-8")
    static = tmp_path / "web/assay_web/static"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text("<!doctype html>", encoding="utf-8")
    (static / "assets" / "index-1.js").write_text("//", encoding="utf-8")
    (static / ".built-from").write_text(loaded(tmp_path).sources_digest(), encoding="utf-8")
    return tmp_path


def loaded(checkout: Path) -> ModuleType:
    import importlib.util

    spec = importlib.util.spec_from_file_location("build_frontend", checkout / "web" / "build_frontend.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script, on a machine without Node: not on the PATH, and not in the environment (-I -S: no packages)."""
    empty = checkout / "nothing-on-it"
    empty.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-I", "-S", str(checkout / "web" / "build_frontend.py"), *arguments],
        env={"PATH": str(empty), "HOME": str(checkout), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_is_done_and_no_node_needed_when_nothing_has_changed(checkout: Path) -> None:
    done = build(checkout, "--install-node")
    assert (done.returncode, done.stdout) == (0, "the page of assay web is up to date\n")


def test_a_change_of_a_source_or_a_missing_page_is_seen(checkout: Path) -> None:
    building = loaded(checkout)
    source = checkout / "web/frontend/src/main.tsx"
    assert building.up_to_date()
    source.write_text("// the pace\n", encoding="utf-8")
    assert not building.up_to_date()
    source.write_text("// the page\n", encoding="utf-8")
    source.rename(source.with_name("other.tsx"))
    assert not building.up_to_date()
    source.with_name("other.tsx").rename(source)
    assert building.up_to_date()
    (checkout / "web/assay_web/static/index.html").unlink()
    assert not building.up_to_date()


def test_without_node_it_says_what_to_do(checkout: Path) -> None:
    (checkout / "web/frontend/src/main.tsx").write_text("// new\n", encoding="utf-8")
    done = build(checkout)
    assert done.returncode == 1
    assert "no Node of 20.19 or newer here: install one, or `pip install" in done.stderr
    assert "ASSAY_WITHOUT_PAGE=1" in done.stderr
    assert build(checkout, ASSAY_WITHOUT_PAGE="1").returncode == 0


def test_packages_are_installed_when_the_lock_file_changes_alone(checkout: Path) -> None:
    """npm of this test writes down what it was asked: what is looked at is when it is asked."""
    modules = checkout / "web/frontend/node_modules"
    modules.mkdir()
    lock = checkout / "web/frontend/package-lock.json"
    (modules / ".installed-from").write_text(sha256(lock.read_bytes()).hexdigest(), encoding="utf-8")
    tools = checkout / "tools"
    tools.mkdir()
    for name, said in (("node", "echo v22.12.0"), ("npm", f'echo "$@" >> {checkout}/asked')):
        (tools / name).write_text(f"#!/bin/sh\n{said}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    (checkout / "web/frontend/src/main.tsx").write_text("// new\n", encoding="utf-8")
    assert build(checkout, PATH=path).stdout == "built the page of assay web\n"
    assert (checkout / "asked").read_text(encoding="utf-8") == "run --silent build\n"
    lock.write_text(lock.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    build(checkout, PATH=path)
    asked = (checkout / "asked").read_text(encoding="utf-8").splitlines()
    assert asked[1:] == ["ci --no-audit --no-fund --ignore-scripts", "run --silent build"]


def test_a_wheel_carries_the_page(checkout: Path) -> None:
    """By the build backend itself, as pip calls it; the page is up to date, so that it needs no Node."""
    pytest.importorskip("hatchling")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(checkout / "dist")],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (checkout / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert "assay_web/static/index.html" in names
    assert "assay_web/static/assets/index-1.js" in names
    assert not [name for name in names if "node_modules" in name or name.endswith(".tsx")]
