"""Settings of a server: models, address, keys, limits, batching, cache. The defaults suit one machine.

The configuration file has every field; those with a `Help` are options of `assay serve` as well.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt, Le

from assay.errors import BadInputError
from assay.settings import Help, check_settings
from assay_serving.model_config import ModelConfig
from assay_serving.server.core.logs import Format

if TYPE_CHECKING:
    from assay.http.listening import Tls


LEAST_HANG_S = 5.0


@dataclass(frozen=True)
class ServerSettings:
    """Limits are per request unless named otherwise; characters stand for tokens, which are counted only later."""

    api_keys: Annotated[
        tuple[str, ...], Help("Accepted for every route; repeatable.", "--api-key", envvar="ASSAY_API_KEY")
    ] = ()
    #: Neither keys nor a file = open to all clients.
    keys_file: Annotated[
        str | None, Help("File of API keys. Default: keys.json of the workspace.", envvar="ASSAY_KEYS_FILE")
    ] = None
    open_health: Annotated[bool, Help("/healthz, /readyz, /health and /ping need no key.", "--open-health")] = False
    open_admin: bool = True  #: without keys administrators' routes are open as well; False = they are closed
    #: Besides localhost and addresses; None = all.
    allowed_hosts: Annotated[
        tuple[str, ...] | None,
        Help("Host name of this server; repeatable. Requests for others are refused.", "--allowed-host"),
    ] = None
    model_folders: Annotated[
        tuple[str, ...],
        Help("Folder that administrators may load models from, or hub:OWNER/NAME; repeatable.", "--model-folder"),
    ] = ()
    dialects: tuple[str, ...] | None = None  #: wire formats by name, module:Name or file.py:Name; None = all installed
    max_requests: Annotated[int, Ge(1)] = 1024  #: in progress at once, per HTTP worker; beyond it 503
    max_buffered_bytes: Annotated[int, Ge(1)] = 512 << 20  #: of their bodies
    max_item_characters: Annotated[int, Ge(1)] = 1 << 20
    header_timeout_s: Annotated[float, Gt(0)] = 15.0  #: to receive a request's headers
    max_items: Annotated[int, Ge(1)] = 1024
    max_body_bytes: Annotated[int, Ge(1)] = 16 << 20
    max_queue_items: Annotated[int, Ge(1), Help("Queued items per model; beyond it 503.", "--max-queue")] = 8192
    max_queue_characters: Annotated[int, Ge(1)] = 64 << 20
    body_timeout_s: float = 30.0  #: to receive the whole body
    #: From the body's end to the reply; below the 180 s of common trainers.
    request_timeout_s: Annotated[
        float, Gt(0), Help("Seconds until a request is answered 504.", "--request-timeout")
    ] = 120.0
    window_s: Annotated[float, Ge(0)] = 0.002  #: an idle engine waits for more requests, if the last call had several
    batch_items: Annotated[int, Ge(1)] = 512  #: most items of one engine call
    engine_call_s: Annotated[float, Gt(0)] = 1.0  #: aimed at; so short that a small request never waits long
    engine_timeout_s: Annotated[float, Gt(0)] = 120.0  #: a longer engine call fails with 504; not ready until it ends
    load_timeout_s: Annotated[float, Gt(0)] = 1800.0  #: for an administrator's load; then the order fails
    #: A process of the server that gives no sign of life for so long is killed, and another one started.
    hang_timeout_s: Annotated[float, Gt(0)] = 30.0
    cache_entries: Annotated[int, Ge(0)] = 100_000  #: scores in memory, of all models; 0 = none
    cache_bytes: Annotated[int, Ge(0)] = 128 << 20  #: of memory for them
    cache_path: Annotated[str | None, Help("Folder of scores that survive restarts.", "--cache")] = None
    cache_rows: Annotated[int, Ge(1)] = 1_000_000  #: scores on disk; the oldest are removed first

    @property
    def needs_key(self) -> bool:
        """Whether requests need a key."""
        return bool(self.api_keys) or self.keys_file is not None

    @property
    def shortest_hang_s(self) -> float:
        """After which a process counts as hung: so soon that requests outlive it, but no slow second is a hang."""
        return min(self.hang_timeout_s, max(LEAST_HANG_S, self.request_timeout_s / 2))

    def __post_init__(self) -> None:
        check_settings(self)
        if any(not key.strip() for key in self.api_keys):
            raise BadInputError("an API key is empty", field="api_key")
        if self.max_buffered_bytes < self.max_body_bytes:
            raise BadInputError(f"must hold one body of {self.max_body_bytes} bytes", field="max_buffered_bytes")
        if self.max_items > self.max_queue_items:
            raise BadInputError(f"must hold at least one request of {self.max_items} items", field="max_queue_items")


@dataclass(frozen=True)
class ServeConfig:
    """Everything a server is started with. In the file, the fields of `settings` stand beside the others."""

    models: tuple[ModelConfig, ...]
    host: Annotated[str, Help("Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Ge(0), Le(65535), Help("0 picks a free one.")] = 8000
    workers: Annotated[
        int,
        Ge(0),
        Le(64),
        Help("HTTP worker processes, beside the one with the models; 0: one process for everything."),
    ] = 1
    replicas: Annotated[
        int, Ge(1), Le(64), Help("Engine processes with the same models, one a GPU; on CPU they share the cores.")
    ] = 1
    tls_cert: Annotated[str | None, Help("Certificate (PEM): https.")] = None
    tls_key: Annotated[str | None, Help("Its key (PEM).")] = None
    log_requests: Annotated[bool, Help("One log line per request, without its text.", "--log-requests")] = False
    log_format: Annotated[Format, Help("Of the log.")] = "text"
    workspace: str | None = None  #: folder in which names of models are looked up
    settings: ServerSettings = field(default_factory=ServerSettings)

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.models:
            raise BadInputError("a server needs at least one model", field="models")
        if self.replicas > 1 and self.workers == 0:
            raise BadInputError("needs HTTP workers, and there are none (--in-process, workers: 0)", field="replicas")
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_cert" if self.tls_cert is None else "tls_key"
            raise BadInputError("is missing: TLS needs the certificate and its key", field=missing)

    @property
    def tls(self) -> "Tls | None":
        from assay.http.listening import Tls

        return Tls(self.tls_cert, self.tls_key) if self.tls_cert and self.tls_key else None


#: Fields of both classes that name a file or folder.
FILES = ("tls_cert", "tls_key", "workspace", "keys_file", "cache_path")
