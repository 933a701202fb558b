"""Puts the built page into wheels, and builds it for editable installs too. Run by hatchling, not imported by Assay.

A wheel without its page would fail only in somebody's browser, so a failing build fails the wheel; whoever cannot run
Node or reach npm's registry says so with ASSAY_WITHOUT_PAGE=1. An editable install goes on and tells how to build it.
"""

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))
import build_frontend
from build_frontend import WITHOUT


class FrontendBuildHook(BuildHookInterface[BuilderConfig]):
    """Runs before the wheel is put together."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Node from PyPI where the machine has none and there is something to build."""
        if os.environ.get(WITHOUT) or build_frontend.up_to_date() or build_frontend.system_node():
            return []
        return [build_frontend.PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.environ.get(WITHOUT):
            return
        try:
            build_frontend.build()
        except build_frontend.BuildError as error:
            if version != "editable":
                raise RuntimeError(f"the page of assay web: {error}\n(without it: {WITHOUT}=1)") from error
            self.app.display_warning(f"the page of assay web is not built: {error}")
