"""The program of the engine process: loads the models it is told, then answers the fronts until it is told to stop.

Covers: a first start, at which a model that cannot be loaded is an error of whoever started the server; a restart, at
which it is left out, so that it keeps no other model away. Leaves out: who starts it (`supervisor`), how it answers
(`endpoint`). Run as `python -m`, with a line of JSON on its standard input; it is no command for people.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from assay.errors import AssayError, BackendError, BadInputError
from assay.system.fast_exit import end
from assay.system.gc_threshold import collect_less
from assay_serving.engine_process.endpoint import Endpoint
from assay_serving.engine_process.launch import (
    EngineLaunch,
    Plans,
    Ready,
    Supervised,
    frame_bytes,
    ignore_signals,
)
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
    named: dict[str, ModelConfig] = {}
    for plan in plans:
        name = Loader(workspace).resolve(plan).name
        if name in named:
            raise BadInputError(f"two models would be served as {name!r}; name them with --name")
        named[name] = plan
    scorers: dict[str, Scorer] = {}
    for name, plan in named.items():
        print(f"loading {plan.reference} as {name}", file=sys.stderr, flush=True)
        scorers[name] = Loader(workspace).open_served(plan)
    return scorers, named


def load_again(load: Load, plans: tuple[ModelConfig, ...], workspace: Path | None) -> tuple[Loaded, list[MissingModel]]:
    """The models that can be loaded, and those that cannot any more. Each plan says its name.

    Raises BackendError if none can: then there is nothing to lose by another restart, which tries all of them.
    """
    scorers: dict[str, Scorer] = {}
    named: dict[str, ModelConfig] = {}
    absent: list[MissingModel] = []
    for plan in plans:
        try:
            found, by_name = load((plan,), workspace)
        except Exception as error:  # of whatever library: the others must come back
            name, reason = plan.served_as or plan.reference, reason_of(error)
            logger.error("%s is not served any more: it cannot be loaded again: %s", name, reason)
            if not isinstance(error, AssayError | OSError):
                logger.error("%s", "".join(traceback.format_tb(error.__traceback__)))
            absent.append(MissingModel(name, plan, reason))
        else:
            scorers |= found
            named |= by_name
    if absent and not scorers:
        raise BackendError(f"no model can be loaded again: {'; '.join(f'{a.name}: {a.reason}' for a in absent)}")
    return (scorers, named), absent


async def answer_fronts(supervised: Supervised, launch: EngineLaunch, host: InProcessBackend, loading_s: float) -> None:
    """Until the supervisor says stop; then what is in progress is answered first."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    supervised.stop_with(lambda: loop.call_soon_threadsafe(stop.set))
    await host.start()
    endpoint = Endpoint(host, launch.token, frame_bytes=frame_bytes(launch.settings), loading_s=loading_s)
    await endpoint.start(socket.socket(fileno=launch.listening_fd))
    supervised.tell(Plans(tuple(map(ModelConfig.from_dict, host.plans()))))  # from now on they say their names
    supervised.tell(Ready(tuple(await host.models())))
    await stop.wait()
    await endpoint.stop(DRAIN_S)
    await host.stop()


def main(load: Load = load) -> int:
    """`load`: another way to come to scorers than the product's own, for programs that measure or test the rest."""
    collect_less()
    supervised = Supervised()
    launch = supervised.launched(EngineLaunch)
    ignore_signals()
    configure_logs(launch.log_format, requests=launch.log_requests)
    workspace = Path(launch.workspace) if launch.workspace else None

    def on_plans(plans: list[dict[str, Any]]) -> None:
        supervised.tell(Plans(tuple(map(ModelConfig.from_dict, plans))))

    started = time.monotonic()
    try:
        absent: list[MissingModel] = []
        if launch.restart:
            (scorers, plans), absent = load_again(load, launch.plans, workspace)
        else:
            scorers, plans = load(launch.plans, workspace)
        host = InProcessBackend(
            scorers, launch.settings, plans=plans, missing=absent, workspace=workspace, on_plans=on_plans
        )
    except AssayError as error:
        supervised.fail(error)
        return error.exit_code
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        supervised.fail(BackendError(f"{where}{error.strerror or error}"))
        return BackendError.exit_code
    scorers.clear()  # the host alone holds a model, so that one can be unloaded
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(answer_fronts(supervised, launch, host, time.monotonic() - started))
    return 0


def loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed: the one that the fronts run on."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


if __name__ == "__main__":
    end(main())
