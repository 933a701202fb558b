"""Writes the API's description, and the page's types made of it: run after every change of a route.

    python web/describe_api.py            web/frontend/openapi.json and src/api/schema.d.ts

The test suite fails where they are not what the routes say.
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from build_frontend import FRONTEND, BuildError, install_packages, run_npm


def description() -> str:
    """The OpenAPI description as the file holds it."""
    from assay.workspace import Workspace
    from assay_web.app import create_app

    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Workspace.create(Path(folder) / "workspace"))
        schema = app.openapi()
    schema["info"]["version"] = "0"  # the types do not depend on it
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    (FRONTEND / "openapi.json").write_text(description(), encoding="utf-8")
    try:
        install_packages()
        run_npm("run", "--silent", "types")
    except BuildError as error:
        sys.exit(f"the page's types could not be written: {error}")
