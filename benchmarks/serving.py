"""The reward server under load: beside its own engine offline, a plain FastAPI server, and vLLM's server.

Float32, one machine, real HH conversations (short ones, other ones in every round), real HTTP from a load generator of
its own process. Requests of one item and of 16 responses to one prompt.

- A real model (SmolLM2-135M with a random head) at 1, 64 and 256 clients; at 64 the contenders take turns, and all
  rewards must agree. Ratios are of items a second, ours to the peer's.
- An engine that does nothing, at 1, 64 and 256 clients: what HTTP, the queue and (but for `in one process`) the way to
  the engine process cost.
- A cache hit beside that engine, at one client.

vLLM needs an environment of its own (docs/serving/engines.md): --vllm-python PATH or $ASSAY_VLLM_PYTHON; without it
that peer is skipped.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from assay_serving.model_config import ModelConfig
from hh_pairs import hh_pairs
from http_load import Load, drive
from measure import Report, Spread, arguments, interleaved, ratio, versions
from scoring import save_model
from servers import assay_server, plain_server, scripted_server, vllm_server

MEASURES = (
    "serving/assay_serving/server",
    "serving/assay_serving/engine_process",
    "serving/assay_serving/engines",
    "platform/assay/models",
)

GROUP = 16
CLIENTS = (1, 64, 256)
PEERS_AT = 64
PROMPT_CHARACTERS, RESPONSE_CHARACTERS = 200, 120
LENGTH = 1024
TOLERANCE = 1e-3  #: rewards of different engines, float32
SIZES = {"one item": 1, "16 items": GROUP}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--vllm-python", default=os.environ.get("ASSAY_VLLM_PYTHON"), help="Python that has vLLM")
    parser.add_argument("--base", default=None, help="language model (default: smollm2; quick: tiny)")
    parser.add_argument("--rounds", type=int, default=None, help="rounds (default: 3)")
    parser.add_argument("--workers", type=int, default=1, help="HTTP workers of our server")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run(options, Path(scratch) / "reward-model")


def run(options: argparse.Namespace, folder: Path) -> None:
    import torch

    from assay_serving.engines.transformers import TransformersScorer

    torch.set_num_threads(options.threads)
    save_model(options.base or ("tiny" if options.quick else "smollm2"), folder)
    report = Report("serving", measures=MEASURES)
    report.figures = {"dtype": "float32", "threads": options.threads, "workers": options.workers}
    report.figures["versions"] = versions("torch", "transformers", "fastapi", "uvicorn")
    scorer = TransformersScorer.load(ModelConfig(str(folder), max_length=LENGTH))
    with ExitStack() as running:
        urls = {"assay": running.enter_context(assay_server(folder, workers=options.workers, threads=options.threads))}
        urls["plain FastAPI"] = running.enter_context(plain_server(folder, options.threads))
        if options.vllm_python:
            urls["vLLM's server"] = running.enter_context(
                vllm_server(options.vllm_python, folder, LENGTH, options.threads)
            )
        else:
            report.figures["vLLM"] = "skipped: no environment named by --vllm-python or ASSAY_VLLM_PYTHON"
        for kind in reversed(SIZES):
            beside_peers(report, scorer, urls, kind, options.rounds or 3)
    report.figures["real model"] = {}
    with assay_server(folder, workers=options.workers, threads=options.threads) as url:
        for clients in CLIENTS:
            for kind in SIZES:
                rounds = 1 if clients > 1 else 4
                bodies = [native(request) for request in requests_of(SIZES[kind], clients * rounds)]
                add_figures(report, "real model", f"{clients} clients, {kind}", SIZES[kind], post(url, bodies, clients))
    nothing = 200 if options.quick else 2000
    hits = without_engine(report, options, nothing)
    report.figures["a cache hit's p50 over the engine that does nothing, ms"] = hits
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    report.finish(options)


def beside_peers(report: Report, scorer: Any, urls: dict[str, str], kind: str, rounds: int) -> None:
    """Contenders in turns on one kind of request from 64 clients."""
    size = SIZES[kind]
    work = [requests_of(size, PEERS_AT, start=PEERS_AT * number) for number in range(rounds + 1)]
    work[0] = work[0][:4]
    latencies: dict[str, list[list[float]]] = {}
    loads: list[Load] = []

    def offline() -> float:
        requests = work[len(latencies.setdefault("engine offline", []))]
        started = time.perf_counter()
        scores = scorer.score([item for request in requests for item in request])
        seconds = time.perf_counter() - started
        latencies["engine offline"].append([score.reward for score in scores])
        return len(scores) / seconds

    def over_http(name: str, path: str, body: Callable[[Any], Any], read: Callable[[Any], list[float]]) -> float:
        requests = work[len(latencies.setdefault(name, []))]
        load = drive(urls[name] + path, [body(request) for request in requests], clients=PEERS_AT, keep=True)
        if not load.all_answered:
            sys.exit(f"{name}, {kind}: {load.statuses}")
        latencies[name].append([reward for reply in load.replies for reward in read(reply)])
        if name == "assay":
            loads.append(load)
        return size * load.requests_per_s

    def text(request: Any) -> Any:
        return {"query": [scorer.renderer.render(item.prompt, item.response) for item in request]}

    def token_ids(request: Any) -> Any:
        rows = [list(scorer.encode(item).ids) for item in request]
        return {"model": "rm", "input": rows, "use_activation": False}

    contenders: dict[str, Callable[[], float]] = {
        "assay": lambda: over_http(
            "assay", "/v1/score", native, lambda reply: [entry["reward"] for entry in reply["results"]]
        ),
        "engine offline": offline,
        "plain FastAPI": lambda: over_http("plain FastAPI", "/get_reward", text, lambda reply: list(reply["rewards"])),
    }
    if "vLLM's server" in urls:
        contenders["vLLM's server"] = lambda: over_http(
            "vLLM's server", "/classify", token_ids, lambda reply: [entry["probs"][0] for entry in reply["data"]]
        )
    for contender in contenders.values():  # once unmeasured: a first pass prepares kernels
        contender()
    loads.clear()
    rates = interleaved(contenders, rounds)
    for name, values in latencies.items():
        gaps = [
            abs(one - other)
            for ours, theirs in zip(latencies["engine offline"], values, strict=True)
            for one, other in zip(ours, theirs, strict=True)
        ]
        if max(gaps) > TOLERANCE:
            sys.exit(f"{name} and the engine disagree by {max(gaps):.3g} on {kind}: the comparison means nothing")
        print(f"{PEERS_AT} clients, {kind}, {name}: {Spread.of(rates[name])} items/s", flush=True)
        if name != "assay":
            report.ratios[f"{PEERS_AT} clients, {kind}: assay's server / {name}"] = ratio(rates["assay"], rates[name])
    report.figures[f"items/s at {PEERS_AT} clients, {kind}"] = {
        name: round(Spread.of(values).median, 2) for name, values in rates.items()
    }


def without_engine(report: Report, options: argparse.Namespace, number: int) -> dict[str, float]:
    """Requests to an engine that does nothing; then cache hits. Returns p50 of a hit less p50 of nothing (ms)."""
    medians: dict[str, dict[str, float]] = {}
    workers = str(options.workers)
    ways = {"in one process": ["--workers", "0"], f"{workers} workers and the engine process": ["--workers", workers]}
    for way, chosen in ways.items():
        for cached in (False, True):
            extra = [*chosen, *([] if cached else ["--cache-entries", "0"])]
            with scripted_server("--nothing", *extra) as (url, _):
                for kind, size in SIZES.items():
                    for clients in (1,) if cached else CLIENTS:
                        requests = requests_of(size, min(number, 512))
                        bodies = [native(request) for request in requests] * max(1, number // 512)
                        if cached:
                            post(url, bodies[:512], 8)
                            again = drive(url + "/v1/score", bodies[:8], clients=1, keep=True)
                            if not all(reply["usage"]["cached"] == size for reply in again.replies):
                                sys.exit("what was asked for twice does not come from the cache")
                        load = post(url, bodies, clients)
                        what = "cache hit" if cached else "no engine"
                        add_figures(report, f"{what}, {way}", f"{clients} clients, {kind}", size, load)
                        if clients == 1:
                            medians.setdefault(f"{way}, {kind}", {})[what] = 1000 * load.percentile(0.5)
    return {name: round(arms["cache hit"] - arms["no engine"], 3) for name, arms in medians.items()}


def post(url: str, bodies: Sequence[Any], clients: int) -> Load:
    load = drive(url + "/v1/score", bodies, clients=clients)
    if not load.all_answered:
        sys.exit(f"{clients} clients: {load.statuses}")
    return load


def add_figures(report: Report, group: str, name: str, size: int, load: Load) -> None:
    figures = {"requests/s": round(load.requests_per_s, 2), "items/s": round(size * load.requests_per_s, 2)}
    figures |= {f"p{int(100 * share)} ms": round(1000 * load.percentile(share), 2) for share in (0.5, 0.95, 0.99)}
    report.figures.setdefault(group, {})[name] = figures
    print(f"{group}, {name}: {figures}", flush=True)


def native(request: Sequence[Any]) -> dict[str, Any]:
    """The body of our own route."""
    return {
        "prompt": [message.to_dict() for message in request[0].prompt],
        "responses": [item.response for item in request],
    }


def requests_of(size: int, number: int, *, start: int = 0) -> list[list[Any]]:
    """`number` requests of `size` responses to one short prompt; another `start` gives other prompts."""
    from assay_serving.scorer import ScoreItem

    pairs = [
        pair
        for pair in hh_pairs(3400, seed=0)
        if sum(len(m.content) for m in pair.prompt) <= PROMPT_CHARACTERS and 0 < len(pair.chosen) <= RESPONSE_CHARACTERS
    ]
    drawn = random.Random(start)
    responses = [pair.chosen for pair in pairs]
    requests = []
    for index in range(start, start + number):
        pair = pairs[index % len(pairs)]
        first = pair.chosen if index < len(pairs) else drawn.choice(responses)
        responses_drawn = [first, *drawn.sample(responses, size - 1)]
        requests.append([ScoreItem(pair.prompt, response) for response in responses_drawn])
    return requests


if __name__ == "__main__":
    main()
