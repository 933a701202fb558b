"""The administrator's client: load, unload and swap models of a running server, read their statistics.

Covers: one request at a time, errors of the hierarchy. Leaves out: retries, because a partly failed order needs a
person; the meaning of the figures (docs/serving/operations.md).
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from assay.errors import BackendError, BadInputError, ConflictError
from assay.system.closable import Closable
from assay_serving.client import protocol
from assay_serving.client.connection import CONNECT_S, ConnectionSettings

_MODELS = "/v1/admin/models"
_STATUS_S = 60.0


class AdminClient(Closable):
    """Orders for one server. `timeout`: seconds for an order that loads a model; None = no limit."""

    def __init__(
        self, url: str, *, api_key: str | None = None, ca: str | None = None, timeout: float | None = None
    ) -> None:
        self._settings = ConnectionSettings(url, api_key=api_key, ca=ca, max_concurrency=1)
        if len(self._settings.urls) > 1:
            raise BadInputError("an order is for one server: name one address", field="url")
        self._client = self._settings.pools(httpx.Client).clients[0]
        self._timeout = timeout

    def models(self) -> dict[str, Any]:
        """All models, and changes in progress."""
        return self._send("GET", "")

    def model(self, name: str) -> dict[str, Any]:
        [description] = self._send("GET", name)["models"]
        return dict(description)

    def load(self, plan: Mapping[str, Any], *, name: str | None = None) -> dict[str, Any]:
        """`plan`: fields of `ModelConfig`. Returns when the model is served."""
        return dict(self._send("POST", "", {"name": name, "plan": dict(plan)}, timeout=self._timeout)["model"])

    def unload(self, name: str) -> None:
        """Returns when queued requests are answered and the model is unloaded."""
        self._send("DELETE", name, timeout=self._timeout)

    def swap(self, name: str, plan: Mapping[str, Any], **terms: Any) -> dict[str, Any]:
        """`terms`: fields of `SwapPolicy`. Returns when the new model is loaded; with mode now it is then live."""
        body = {"plan": dict(plan), **terms}
        return dict(self._send("POST", f"{name}/swap", body, timeout=self._timeout)["swap"])

    def swap_status(self, name: str) -> dict[str, Any]:
        """Of the swap in progress, else of the last one. Raises NotFoundError where there was none."""
        return dict(self._send("GET", f"{name}/swap")["swap"])

    def promote(self, name: str) -> dict[str, Any]:
        return dict(self._send("POST", f"{name}/promote")["swap"])

    def abort(self, name: str) -> dict[str, Any]:
        return dict(self._send("POST", f"{name}/abort")["swap"])

    def set_reference(self, name: str) -> dict[str, Any]:
        """Measure drift against the present window from now on."""
        return dict(self._send("POST", f"{name}/reference")["model"])

    def reload(self) -> dict[str, Any]:
        """Have the server read its configuration again: changed, loaded, swapped, unloaded, needs_restart."""
        return self._send("POST", "", url="/v1/admin/reload", timeout=self._timeout)

    def close(self) -> None:
        self._client.close()

    def _send(
        self,
        method: str,
        name: str,
        body: dict[str, Any] | None = None,
        *,
        url: str = _MODELS,
        timeout: float | None = _STATUS_S,
    ) -> dict[str, Any]:
        """Raises NotFoundError, BadInputError (refused, or the key is not an administrator's), ConflictError (another
        change of the model is in progress), BusyError, BackendError (not loaded, or no server)."""
        url = f"{url}/{quote(name)}" if name else url
        try:
            response = self._client.request(method, url, json=body, timeout=httpx.Timeout(timeout, connect=CONNECT_S))
        except httpx.TransportError as error:
            raise protocol.error_of_fault(error, self._settings.url, 1) from error
        if response.status_code != 200:
            failure = protocol.error_of(response, 1)
            raise ConflictError(str(failure)) if response.status_code == 409 else failure
        try:
            payload: dict[str, Any] = response.json()
        except ValueError as error:
            raise BackendError(f"{self._settings.url} did not answer as a reward server") from error
        return payload
