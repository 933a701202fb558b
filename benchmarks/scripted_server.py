"""The reward server around an engine without a model: `python scripted_server.py --port P [--workers N] ...`.

Everything but the scorer is as in `assay serve`: supervisor, HTTP workers, engine process, queue, cache, keys. Leaves
out the engine (`scripted_child`) and the load (`serving.py`, `soak.py`).
"""

from __future__ import annotations

import argparse
import asyncio

from assay.http.listening import claim_port
from assay.http.running import serve_until_stopped
from assay_serving.engine_process.supervisor import Supervisor
from assay_serving.model_config import ModelConfig
from assay_serving.server.app import app_of
from assay_serving.server.core.settings import ServeConfig, ServerSettings
from assay_serving.server.in_process import InProcessBackend
from scripted_child import scripted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--item-s", type=float, default=0.0, help="seconds that the engine sleeps for an item")
    parser.add_argument("--nothing", action="store_true", help="do not even look at the text")
    parser.add_argument("--max-queue", type=int, default=ServerSettings.max_queue_items)
    parser.add_argument("--max-body-bytes", type=int, default=ServerSettings.max_body_bytes)
    parser.add_argument("--cache-entries", type=int, default=ServerSettings.cache_entries)
    parser.add_argument("--request-timeout", type=float, default=ServerSettings.request_timeout_s)
    parser.add_argument("--api-key", action="append", default=[])
    options = parser.parse_args()
    settings = ServerSettings(
        api_keys=tuple(options.api_key),
        max_items=min(ServerSettings.max_items, options.max_queue),
        max_queue_items=options.max_queue,
        max_body_bytes=options.max_body_bytes,
        cache_entries=options.cache_entries,
        request_timeout_s=options.request_timeout,
    )
    reference = "nothing" if options.nothing else "scripted"
    plan = ModelConfig(reference, served_as="scripted", device="cpu", engine_options={"item_s": options.item_s})
    config = ServeConfig(
        (plan,), port=options.port, workers=options.workers, replicas=options.replicas, settings=settings
    )
    listening = claim_port(config.host, config.port)
    if config.workers:
        asyncio.run(Supervisor(config, listening, engine_program="scripted_child").run())
    else:
        host = InProcessBackend(scripted(config.models)[0], settings)
        serve_until_stopped(app_of(host, settings=settings), listening)


if __name__ == "__main__":
    main()
