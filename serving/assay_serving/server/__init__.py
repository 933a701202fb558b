"""The scoring server."""

from assay_serving.server.app import create_app
from assay_serving.server.settings import ServerSettings

__all__ = ["ServerSettings", "create_app"]
