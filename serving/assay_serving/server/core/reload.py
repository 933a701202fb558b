"""Reading a running server's configuration again: what takes effect at once, what needs a restart, who asked for it.

Covers: SIGHUP, comparing the running configuration with the one that is read, one reload at a time, its log line.
Leaves out: reading it (`commands.serve`), applying it to the models (`rollout.lifecycle`) and to the processes
(`engine_process.supervisor`).
"""

import asyncio
import logging
import os
import signal
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from assay.errors import AssayError, ConflictError, ForbiddenError
from assay_serving.model_config import ModelConfig
from assay_serving.server.core.logs import FIELDS
from assay_serving.server.core.settings import ServeConfig, ServerSettings

logger = logging.getLogger("assay.serving")

#: Settings that are built into sockets, caches, routes and message sizes. Processes read the others at each use.
FIXED = frozenset(
    ("dialects", "header_timeout_s", "max_body_bytes", "cache_entries", "cache_bytes", "cache_path", "cache_rows")
)
SIGNAL = "SIGHUP"  #: who gave the order, in the log


def on_hangup(loop: asyncio.AbstractEventLoop, reload: Callable[[], object], stop: Callable[[], object]) -> None:
    """SIGHUP reloads from now on; it stops a server whose terminal was closed."""
    from_terminal = os.isatty(2)
    loop.add_signal_handler(signal.SIGHUP, lambda: stop() if from_terminal and not os.isatty(2) else reload())


@dataclass(frozen=True)
class ConfigChange:
    """`config`: the running configuration with all that can take effect now. `changed`, `needs_restart`: names of
    fields. `before`: the models of the running configuration."""

    config: ServeConfig
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]
    before: tuple[ModelConfig, ...]


def change_of(running: ServeConfig, read: ServeConfig) -> ConfigChange:
    """Raises BadInputError where the new settings contradict those that stay until a restart."""
    differing = [
        field.name
        for field in fields(ServerSettings)
        if getattr(running.settings, field.name) != getattr(read.settings, field.name)
    ]
    changed = tuple(name for name in differing if name not in FIXED)
    settings = replace(running.settings, **{name: getattr(read.settings, name) for name in changed})
    fixed = [field.name for field in fields(ServeConfig) if field.name not in ("models", "settings")]
    restart = [name for name in fixed if getattr(running, name) != getattr(read, name)]
    restart += [name for name in differing if name in FIXED]
    config = replace(running, models=read.models, settings=settings)
    return ConfigChange(config, changed, tuple(restart), running.models)


@dataclass(frozen=True)
class ModelChanges:
    """Served names."""

    loaded: tuple[str, ...] = ()
    swapped: tuple[str, ...] = ()
    unloaded: tuple[str, ...] = ()


class Reloader:
    """`read`: the configuration as the server would start with it now; raises for one that cannot be used. `apply`:
    makes it the running one, or raises and leaves everything as it was."""

    def __init__(
        self,
        config: ServeConfig,
        read: Callable[[], ServeConfig] | None,
        apply: Callable[[ConfigChange], Awaitable[ModelChanges]],
    ) -> None:
        self.config = config
        self._read = read
        self._apply = apply
        self._reloading = False
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, by: str) -> None:
        """Reload in the background: its log line is all that says how it ended."""

        async def logged() -> None:
            with suppress(Exception):
                await self.reload(by)

        task = asyncio.get_running_loop().create_task(logged(), name="reload")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def reload(self, by: str, request_id: str | None = None) -> dict[str, Any]:
        """What changed, as a JSON object; logged with `by`, the name of the key or `SIGNAL`.

        Raises ConflictError while another reload is in progress, ForbiddenError for a server without a configuration
        to read, and what `read` and `apply` raise; then everything is as before.
        """
        order = {"event": "order", "action": "reload", "client": by, "request_id": request_id}
        try:
            outcome = await self._reload()
        except Exception as error:
            reason = " ".join(str(error).split()) if isinstance(error, AssayError) else type(error).__name__
            refused = {"outcome": "refused", "reason": f"the previous configuration stays: {reason}"}
            logger.error("order", extra={FIELDS: order | refused})
            if not isinstance(error, AssayError):
                logger.error("%s", "".join(traceback.format_tb(error.__traceback__)))
            raise
        names = {name: ",".join(values) or None for name, values in outcome.items()}
        logger.warning("order", extra={FIELDS: order | {"outcome": "done"} | names})
        return outcome

    async def _reload(self) -> dict[str, Any]:
        if self._read is None:
            raise ForbiddenError("this server was not started with a configuration that it could read again")
        if self._reloading:
            raise ConflictError("the configuration is being reloaded")
        self._reloading = True
        try:
            change = change_of(self.config, await asyncio.to_thread(self._read))
            models = await self._apply(change)
            self.config = change.config
        finally:
            self._reloading = False
        return {
            "changed": list(change.changed),
            **{name: list(names) for name, names in asdict(models).items()},
            "needs_restart": list(change.needs_restart),
        }
