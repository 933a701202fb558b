"""The scoring server."""

from assay_serving.server.app import create_app
from assay_serving.server.core.settings import ServerSettings

__all__ = ["ServerSettings", "create_app"]
