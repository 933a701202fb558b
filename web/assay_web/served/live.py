"""What running endpoints say of themselves, and swapping their models, through the administrator's client.

Covers: whether each answers, the model that it serves now, requests in progress; a swap, which loads the new model
beside the old one and then takes its place, so that no request is refused. The order runs in a thread: loading takes
minutes. Leaves out: shadow and canary swaps (`assay serve-admin swap`).
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from assay.errors import AssayError, ConflictError
from assay_serving.client.administration import AdminClient
from assay_web.processes.launch import read_json
from assay_web.served.endpoint import SWAP_FILE, Endpoint, EndpointState

LOOK_S = 5.0
AT_ONCE = 8

SwapState: TypeAlias = Literal["loading", "done", "failed", "unknown"]
Health: TypeAlias = Literal[EndpointState, "ready", "unreachable"]


@dataclass(frozen=True)
class ModelSwap:
    """The last swap of an endpoint's model. `unknown`: the web server ended while the new model was loading."""

    model: str
    by: str
    at: float
    state: SwapState
    why: str | None = None


@dataclass(frozen=True)
class LiveEndpoint:
    """An endpoint as it is now. `model`: that it serves, also after swaps; `version`, `kind`, `waiting`: None while it
    does not answer."""

    endpoint: Endpoint
    state: Health
    why: str | None
    ended: float | None
    url: str | None
    model: str
    version: str | None = None
    kind: str | None = None
    waiting: int | None = None
    swap: ModelSwap | None = None


def live_endpoints(endpoints: Sequence[Endpoint]) -> list[LiveEndpoint]:
    """In their order, asked side by side."""
    if not endpoints:
        return []
    with ThreadPoolExecutor(min(len(endpoints), AT_ONCE)) as pool:
        return list(pool.map(live_endpoint, endpoints))


def live_endpoint(endpoint: Endpoint) -> LiveEndpoint:
    state, why, ended = endpoint.state()
    url, swap = endpoint.url(), swap_of(endpoint)
    model = swap.model if swap is not None and swap.state == "done" else endpoint.settings.model
    if state != "running" or url is None:
        return LiveEndpoint(endpoint, state, why, ended, url, model, swap=swap)
    try:
        with AdminClient(url, api_key=endpoint.key(), timeout=LOOK_S) as client:
            reply = client.models()
    except AssayError as error:
        return LiveEndpoint(endpoint, "unreachable", str(error), None, url, model, swap=swap)
    if not reply["models"]:
        missing = "; ".join(str(each["reason"]) for each in reply["not_ready"])
        return LiveEndpoint(endpoint, "unreachable", missing or "it serves no model", None, url, model, swap=swap)
    served: dict[str, Any] = reply["models"][0]
    info, reference = served["info"], (served["plan"] or {}).get("reference")
    if swap is not None and swap.state == "unknown" and reference == swap.model:
        swap = replace(swap, state="done", why=None)
    return LiveEndpoint(
        endpoint,
        "ready",
        None,
        None,
        url,
        str(reference or model),
        info.get("version"),
        info.get("kind"),
        int(served["in_flight"]) + int(served["waiting_items"]),
        swap,
    )


def swap_of(endpoint: Endpoint) -> ModelSwap | None:
    noted = read_json(endpoint.folder / SWAP_FILE)
    if noted is None:
        return None
    swap = ModelSwap(**noted)
    if swap.state == "loading" and endpoint.id not in _LOADING:
        return ModelSwap(swap.model, swap.by, swap.at, "unknown", "the web server was started again meanwhile")
    return swap


def begin_swap(endpoint: Endpoint, model: str, by: str) -> None:
    """Load `model` and serve it under the endpoint's name in place of the present one. Returns at once; `swap_of` says
    what became of it. Raises ConflictError while it does not run or another swap loads."""
    url = endpoint.url()
    if endpoint.state()[0] != "running" or url is None:
        raise ConflictError(f"{endpoint.settings.name} is not running")
    with _LOCK:
        if endpoint.id in _LOADING:
            raise ConflictError(f"another model is being loaded for {endpoint.settings.name}")
        _LOADING.add(endpoint.id)
    began = time.time()
    endpoint.note(SWAP_FILE, model=model, by=by, at=began, state="loading")

    def swap() -> None:
        state, why = "done", None
        try:
            with AdminClient(url, api_key=endpoint.key()) as client:
                client.swap(endpoint.settings.name, _plan(endpoint, model), mode="now")
        except AssayError as error:
            state, why = "failed", str(error)
        finally:
            endpoint.note(SWAP_FILE, model=model, by=by, at=began, state=state, why=why)
            with _LOCK:
                _LOADING.discard(endpoint.id)

    threading.Thread(target=swap, name=f"assay-swap-{endpoint.id}", daemon=True).start()


def _plan(endpoint: Endpoint, model: str) -> dict[str, str]:
    """Fields of `ModelConfig`: the model on the device of the present one."""
    return {"reference": model, "device": endpoint.settings.device, "dtype": endpoint.settings.dtype}


_LOADING: set[str] = set()
_LOCK = threading.Lock()
