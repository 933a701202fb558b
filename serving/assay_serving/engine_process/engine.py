"""The program of the engine process: loads the models, then serves the HTTP workers until it is stopped.

Covers: the first start, at which a model that cannot be loaded is an error; a restart, at which it is left out, so that
the others are served. Leaves out: its supervisor (`supervisor`), the protocol (`engine_server`). Run as `python -m`
with a line of JSON on standard input, not by people.
"""

import asyncio
import logging
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from assay.errors import AssayError, BackendError, BadInputError
from assay.system.fast_exit import exit_fast
from assay.system.gc_threshold import collect_less
from assay_serving.engine_process.engine_server import EngineServer
from assay_serving.engine_process.launch import (
    EngineLaunch,
    ModelsLoaded,
    OrderRequest,
    Plans,
    Ready,
    Supervised,
    ignore_signals,
    max_frame_bytes,
)
from assay_serving.engine_process.reloading import EngineOrders
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import Loader
from assay_serving.scorer import Scorer
from assay_serving.server.core.logs import configure_logs
from assay_serving.server.in_process import InProcessBackend
from assay_serving.server.models.missing_models import MissingModel, reason_of

logger = logging.getLogger("assay.serving")

DRAIN_S = 30.0

Loaded: TypeAlias = tuple[dict[str, Scorer], dict[str, ModelConfig]]
Load: TypeAlias = Callable[[tuple[ModelConfig, ...], Path | None], Loaded]


def load(plans: tuple[ModelConfig, ...], workspace: Path | None) -> Loaded:
    """The models and their plans by the name each is served under. Raises what loading one raises; BadInputError if
    two have one name."""
    by_name: dict[str, ModelConfig] = {}
    for plan in plans:
        name = Loader(workspace).resolve(plan).name
        if name in by_name:
            raise BadInputError(f"two models would be served as {name!r}; name them with --name")
        by_name[name] = plan
    scorers: dict[str, Scorer] = {}
    for name, plan in by_name.items():
        print(f"loading {plan.reference} as {name}", file=sys.stderr, flush=True)
        scorers[name] = Loader(workspace).open_served(plan)
    return scorers, by_name


def load_again(load: Load, plans: tuple[ModelConfig, ...], workspace: Path | None) -> tuple[Loaded, list[MissingModel]]:
    """The models that can be loaded, and those that cannot any more. Each plan has its name.

    Raises BackendError if none can, so that the next restart tries all of them again.
    """
    scorers: dict[str, Scorer] = {}
    by_name: dict[str, ModelConfig] = {}
    missing: list[MissingModel] = []
    for plan in plans:
        try:
            loaded, names = load((plan,), workspace)
        except Exception as error:  # of any library: the others must be served
            name, reason = plan.served_as or plan.reference, reason_of(error)
            logger.error("%s is not served any more: it cannot be loaded again: %s", name, reason)
            if not isinstance(error, AssayError | OSError):
                logger.error("%s", "".join(traceback.format_tb(error.__traceback__)))
            missing.append(MissingModel(name, plan, reason))
        else:
            scorers |= loaded
            by_name |= names
    if missing and not scorers:
        raise BackendError(f"no model can be loaded again: {'; '.join(f'{a.name}: {a.reason}' for a in missing)}")
    return (scorers, by_name), missing


async def serve_workers(
    supervised: Supervised, launch: EngineLaunch, backend: InProcessBackend, loading_s: float
) -> None:
    """Until the supervisor stops it, after the calls in progress."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    supervised.stop_with(lambda: loop.call_soon_threadsafe(stop.set))
    await backend.start()
    server = EngineServer(
        backend, launch.token, max_frame_bytes=max_frame_bytes(launch.config.settings), loading_s=loading_s
    )
    stopped = asyncio.create_task(stop.wait())
    supervised.beat_in(loop, lambda: backend.overdue_s)
    orders = EngineOrders(supervised, backend)
    supervised.send(_plans(backend, backend.plans()))  # with their names
    supervised.send(ModelsLoaded(tuple(await backend.models())))
    may_serve = asyncio.create_task(orders.serve.wait())
    await asyncio.wait({may_serve, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if may_serve.done():
        await server.start(socket.socket(fileno=launch.listening_fd))
        supervised.send(Ready())
    await stopped
    await server.stop(DRAIN_S)
    await backend.stop()


def main(load: Load = load) -> int:
    """`load`: another way to load scorers, for benchmarks and tests."""
    collect_less()
    # Texts are tokenized one by one (`Renderer`): threads of the tokenizers library would only be started.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    supervised = Supervised()
    launch = supervised.launched(EngineLaunch)
    ignore_signals()
    config = launch.config
    configure_logs(config.log_format, requests=config.log_requests)
    workspace = Path(config.workspace) if config.workspace else None

    def on_decision(order: dict[str, Any]) -> None:
        supervised.send(OrderRequest(None, order))

    started = time.monotonic()
    try:
        missing: list[MissingModel] = []
        if launch.restart:
            (scorers, plans), missing = load_again(load, launch.plans, workspace)
        else:
            scorers, plans = load(launch.plans, workspace)
        backend = InProcessBackend(
            scorers,
            config.settings,
            plans=plans,
            missing=missing,
            workspace=workspace,
            on_plans=lambda plans: supervised.send(_plans(backend, plans)),
            on_decision=None if launch.decides else on_decision,
        )
        backend.generation = launch.generation
    except AssayError as error:
        supervised.fail(error)
        return error.exit_code
    except OSError as error:
        file = f"{error.filename}: " if error.filename else ""
        supervised.fail(BackendError(f"{file}{error.strerror or error}"))
        return BackendError.exit_code
    scorers.clear()  # only the backend references a model, so that it can be unloaded
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve_workers(supervised, launch, backend, time.monotonic() - started))
    return 0


def _plans(backend: InProcessBackend, plans: list[dict[str, Any]]) -> Plans:
    versions = {served.name: served.info.version for served in backend.registry.live}
    return Plans(tuple(map(ModelConfig.from_dict, plans)), backend.generation, versions)


def loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed, as in the HTTP workers."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


if __name__ == "__main__":
    exit_fast(main())
