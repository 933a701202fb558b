"""Environments of other projects without their packages: one line that says what to install."""

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from assay.errors import BackendError
from assay_policy_training.recipe.loading import recipe_from_dict


@pytest.mark.parametrize(
    ("package", "settings"),
    [
        ("gymnasium", {"kind": "gymnasium", "id": "FrozenLake-v1"}),
    ],
    ids=["gymnasium"],
)
def test_a_package_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, settings: Mapping[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BackendError, match=f"pip install {package}"):
        recipe_from_dict({"name": "r", "environment": settings})
