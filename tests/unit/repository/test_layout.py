"""A package root holds few modules, and `platform/` none: one there would replace Python's own `platform`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from file_order import LONG_FILES

from assay import __version__
from assay.runs.record import code_version

ROOT = Path(__file__).resolve().parents[3]


PACKAGES = (
    "platform/assay",
    "serving/assay_serving",
    "policy_training/assay_policy_training",
    "rm_training/assay_rm_training",
    "pipelines/assay_pipelines",
    "web/assay_web",
)
#: Beside `__init__.py`; what is more goes into a sub-package.
MODULES_IN_A_ROOT = 12


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_root_holds_few_modules(package: str) -> None:
    modules = sorted(path.stem for path in (ROOT / package).glob("*.py") if path.stem != "__init__")
    assert len(modules) <= MODULES_IN_A_ROOT, modules


@pytest.mark.parametrize("package", PACKAGES)
def test_tests_lie_in_folders_that_mirror_the_packages(package: str) -> None:
    part = package.partition("/")[0]
    assert list((ROOT / "tests" / "unit" / part).glob("test_*.py"))
    loose = [path.name for kind in ("unit", "system") for path in (ROOT / "tests" / kind).glob("test_*.py")]
    assert loose == []


def test_files_that_are_begun_first_exist_and_no_two_have_one_name() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))
    assert set(LONG_FILES) <= set(names)
    assert len(LONG_FILES) == len(set(LONG_FILES))


def test_no_module_lies_directly_in_platform() -> None:
    assert not list((ROOT / "platform").glob("*.py"))


def test_python_finds_its_own_platform_at_the_root() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import platform; print(platform.machine(), platform.__file__)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(ROOT) not in found.stdout.split()[-1] or "lib/python" in found.stdout


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_code_version_names_the_commit() -> None:
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    code_version.cache_clear()
    version = code_version()
    assert version.startswith(f"{__version__}+")
    assert version.split("+")[1].removesuffix("-dirty")[:7] == head[:7]
