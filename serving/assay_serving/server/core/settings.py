"""Settings of a server: keys, limits, batching, cache. The defaults suit one machine."""

from __future__ import annotations

from dataclasses import dataclass

from assay.errors import BadInputError


@dataclass(frozen=True)
class ServerSettings:
    """Limits are per request unless named otherwise; characters stand for tokens, which are counted only later."""

    api_keys: tuple[str, ...] = ()  #: any of these opens every route
    keys_file: str | None = None  #: of `assay keys`; neither keys nor a file = open to all clients
    open_health: bool = False  #: /healthz, /readyz and /health answer without a key
    open_admin: bool = True  #: without keys administrators' routes are open as well; False = they are closed
    allowed_hosts: tuple[str, ...] | None = None  #: names in the Host header besides localhost, addresses; None = all
    model_folders: tuple[str, ...] = ()  #: what an administrator may load: folders, `hub:OWNER/NAME`; see model_access
    dialects: tuple[str, ...] | None = None  #: wire formats by name, module:Name or file.py:Name; None = all installed
    max_requests: int = 1024  #: in progress at once, per HTTP worker; beyond it 503
    max_buffered_bytes: int = 512 << 20  #: of their bodies
    max_item_characters: int = 1 << 20
    header_timeout_s: float = 15.0  #: to receive a request's headers
    max_items: int = 1024
    max_body_bytes: int = 16 << 20
    max_queue_items: int = 8192  #: waiting for the engine, per model; beyond it 503 with Retry-After
    max_queue_characters: int = 64 << 20
    body_timeout_s: float = 30.0  #: to receive the whole body
    request_timeout_s: float = 120.0  #: from the body's end to the reply; below the 180 s of common trainers
    window_s: float = 0.002  #: how long an idle engine waits for more requests after the first
    batch_items: int = 512  #: most items of one engine call
    engine_call_s: float = 1.0  #: aimed-at length of one engine call, so that a small request never waits long
    engine_timeout_s: float = 120.0  #: a longer engine call fails with 504, and the server is not ready until it ends
    cache_entries: int = 100_000  #: scores in memory, of all models; 0 = none
    cache_bytes: int = 128 << 20  #: of memory for them
    cache_path: str | None = None  #: folder for all scores, across restarts
    cache_rows: int = 1_000_000  #: scores on disk; the oldest are removed first

    @property
    def needs_key(self) -> bool:
        """Whether requests need a key."""
        return bool(self.api_keys) or self.keys_file is not None

    def __post_init__(self) -> None:
        if any(not key.strip() for key in self.api_keys):
            raise BadInputError("an API key is empty", field="api_key")
        for name in ("max_requests", "max_buffered_bytes", "max_item_characters", "header_timeout_s"):
            if not getattr(self, name) > 0:
                raise BadInputError(f"must be positive, not {getattr(self, name)}", field=name)
        if self.max_buffered_bytes < self.max_body_bytes:
            raise BadInputError(f"must hold one body of {self.max_body_bytes} bytes", field="max_buffered_bytes")
        for name in ("max_items", "max_body_bytes", "max_queue_items", "max_queue_characters", "batch_items"):
            if getattr(self, name) < 1:
                raise BadInputError(f"must be positive, not {getattr(self, name)}", field=name)
        for name in ("engine_call_s", "engine_timeout_s", "request_timeout_s", "cache_rows"):
            if not getattr(self, name) > 0:
                raise BadInputError(f"must be positive, not {getattr(self, name)}", field=name)
        for name in ("cache_entries", "cache_bytes", "window_s"):
            if not getattr(self, name) >= 0:
                raise BadInputError(f"must be 0 or more, not {getattr(self, name)}", field=name)
        if self.max_items > self.max_queue_items:
            raise BadInputError(f"must hold at least one request of {self.max_items} items", field="max_queue_items")
