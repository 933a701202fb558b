"""The scoring server."""

from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.http.app import create_app

__all__ = ["ServerSettings", "create_app"]
