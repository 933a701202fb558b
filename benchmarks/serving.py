"""The reward server under load: beside its own engine offline, a plain FastAPI server, and vLLM's server.

Float32, one machine, real HH conversations (short ones, other ones in every round), real HTTP from a load generator of
its own process. Requests of one item and of 16 responses to one prompt.

- A real model (SmolLM2-135M with a random head) at 1, 64 and 256 clients. With one client and at 64 the contenders take
  turns, and all rewards must agree. Ratios are of items a second and a CPU second, ours to the peer's. `--quick`: only
  these turns, with the tiny model, where what a request costs beside its model is all there is to see; then 64 clients
  of the real one beside its engine offline.
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
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay_serving.model_config import ModelConfig
from hh_pairs import hh_pairs
from http_load import Load, drive
from measure import Cost, Report, Spread, arguments, compare, cpu_seconds, spent, versions
from scoring import save_model
from servers import ServerUrl, assay_server, plain_server, scripted_server, vllm_server

MEASURES = (
    "serving/assay_serving/server",
    "serving/assay_serving/engine_process",
    "serving/assay_serving/engines",
    "platform/assay/models",
)

GROUP = 16
CLIENTS = (1, 64, 256)
PROMPT_CHARACTERS, RESPONSE_CHARACTERS = 200, 120
LENGTH = 1024
TOLERANCE = 1e-3  #: rewards of different engines, float32
SIZES = {"one item": 1, "16 items": GROUP}


@dataclass(frozen=True)
class Work:
    """One kind of requests."""

    clients: int
    size: int  #: items of a request, of one prompt

    def __str__(self) -> str:
        clients = "1 client" if self.clients == 1 else f"{self.clients} clients"
        return f"{clients}, {'one item' if self.size == 1 else f'{self.size} items'}"


BESIDE = (Work(1, 1), Work(64, 1), Work(64, GROUP))
SMALL, REAL = "tiny", "smollm2"  #: models
#: What a ratio must be at least, by wall seconds: requests are answered one after the other, or all at once.
LIMITS = {
    f"{SMALL}, {Work(1, 1)}: assay's server / plain FastAPI": 1.0,
    f"{SMALL}, {Work(64, 1)}: assay's server / engine offline": 0.85,
    f"{REAL}, {Work(64, 1)}: assay's server / engine offline": 0.85,
}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--vllm-python", default=os.environ.get("ASSAY_VLLM_PYTHON"), help="Python that has vLLM")
    parser.add_argument("--base", default=None, help="language model (default: smollm2; quick: tiny, then smollm2)")
    parser.add_argument("--rounds", type=int, default=None, help="rounds (default: 3)")
    parser.add_argument("--workers", type=int, default=1, help="HTTP workers of our server")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run(options, Path(scratch))


def run(options: argparse.Namespace, scratch: Path) -> None:
    import torch

    torch.set_num_threads(options.threads)
    report = Report("serving", measures=MEASURES, limits=LIMITS, by_wall=[*LIMITS])
    report.figures = {"dtype": "float32", "threads": options.threads, "workers": options.workers}
    report.figures["versions"] = versions("torch", "transformers", "fastapi", "uvicorn")
    works: dict[str, Sequence[Work]] = {options.base or (SMALL if options.quick else REAL): BESIDE}
    if options.quick and not options.base:
        works[REAL] = (Work(64, 1),)
    parts_left = sum(map(len, works.values()))
    folders = [scratch / f"model-{number}" for number in range(len(works))]  # not by name: --base may be a path
    for folder, (base, kinds) in zip(folders, works.items(), strict=True):
        save_model(base, folder)
        parts_left = in_turns(report, base, folder, kinds, options, parts_left)
    if not options.quick:
        alone(report, options, folders[0])
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    report.finish(options)


def in_turns(
    report: Report, base: str, folder: Path, works: Sequence[Work], options: argparse.Namespace, parts_left: int
) -> int:
    """All `works` with the model in `folder`; how many parts of the benchmark are left after them."""
    from assay_serving.engines.transformers import TransformersScorer

    scorer = TransformersScorer.load(ModelConfig(str(folder), max_length=LENGTH))
    with ExitStack() as running:
        urls = {"assay": running.enter_context(assay_server(folder, workers=options.workers, threads=options.threads))}
        if not (options.quick and base == REAL):  # the three minutes are for the limit
            urls["plain FastAPI"] = running.enter_context(plain_server(folder, options.threads))
            if options.vllm_python:
                urls["vLLM's server"] = running.enter_context(
                    vllm_server(options.vllm_python, folder, LENGTH, options.threads)
                )
            else:
                report.figures["vLLM"] = "skipped: no environment named by --vllm-python or ASSAY_VLLM_PYTHON"
        for work in works:
            beside_peers(report, scorer, urls, base, work, options, parts_left)
            parts_left -= 1
    return parts_left


def alone(report: Report, options: argparse.Namespace, folder: Path) -> None:
    """Figures of our server by itself: a real model, an engine that does nothing, cache hits."""
    report.figures["real model"] = {}
    with assay_server(folder, workers=options.workers, threads=options.threads) as url:
        for clients in CLIENTS:
            for kind in SIZES:
                rounds = 1 if clients > 1 else 4
                bodies = [native(request) for request in requests_of(SIZES[kind], clients * rounds)]
                add_figures(report, "real model", f"{clients} clients, {kind}", SIZES[kind], post(url, bodies, clients))
    hits = without_engine(report, options, 2000)
    report.figures["a cache hit's p50 over the engine that does nothing, ms"] = hits


def beside_peers(
    report: Report,
    scorer: Any,
    urls: dict[str, ServerUrl],
    base: str,
    work: Work,
    options: argparse.Namespace,
    parts_left: int,
) -> None:
    """Contenders in turns on one kind of request. CPU seconds are the server's, all of its processes."""
    small, kind = base == SMALL, f"{base}, {work}"
    rounds = options.rounds or (5 if small else 3)
    number = work.clients * (6 if small and work.size == 1 else 1) if work.clients > 1 else 80
    number *= 3 if small and work.clients == 1 else 1  # the tiny model takes 2 ms
    turns = [requests_of(work.size, number, start=number * turn) for turn in range(rounds + 1)]
    turns[0] = turns[0][: max(4, work.clients // 8)]
    rewards: dict[str, list[list[float]]] = {}
    latencies: dict[str, list[float]] = {}

    def offline() -> Cost:
        requests = turns[len(rewards.setdefault("engine offline", []))]
        scores: list[Any] = []
        batches = [[item for request in requests for item in request]] if work.clients > 1 else requests
        cost = spent(lambda: scores.extend(score for items in batches for score in scorer.score(items)))
        rewards["engine offline"].append([score.reward for score in scores])
        return replace(cost, amount=len(scores))

    def over_http(name: str, path: str, body: Callable[[Any], Any], read: Callable[[Any], list[float]]) -> Cost:
        requests = turns[len(rewards.setdefault(name, []))]
        before = cpu_seconds(urls[name].pid)
        load = drive(urls[name] + path, [body(request) for request in requests], clients=work.clients, keep=True)
        used = cpu_seconds(urls[name].pid) - before
        if not load.all_answered:
            sys.exit(f"{name}, {work}: {load.statuses}")
        rewards[name].append([reward for reply in load.replies for reward in read(reply)])
        latencies.setdefault(name, []).append(1000 * load.percentile(0.5))
        return Cost(load.seconds, used, work.size * len(requests))

    def text(request: Any) -> Any:
        return {"query": [scorer.renderer.render(item.prompt, item.response) for item in request]}

    def token_ids(request: Any) -> Any:
        rows = [list(scorer.encode(item).ids) for item in request]
        return {"model": "rm", "input": rows, "use_activation": False}

    contenders: dict[str, Callable[[], Cost]] = {
        "assay": lambda: over_http(
            "assay", "/v1/score", native, lambda reply: [entry["reward"] for entry in reply["results"]]
        ),
        "engine offline": offline,
    }
    if "plain FastAPI" in urls:
        contenders["plain FastAPI"] = lambda: over_http(
            "plain FastAPI", "/get_reward", text, lambda reply: list(reply["rewards"])
        )
    if "vLLM's server" in urls:
        contenders["vLLM's server"] = lambda: over_http(
            "vLLM's server", "/classify", token_ids, lambda reply: [entry["probs"][0] for entry in reply["data"]]
        )
    for contender in contenders.values():  # once unmeasured: a first pass prepares kernels
        contender()
    latencies.clear()
    costs = compare(contenders, options, rounds=rounds, parts_left=parts_left)
    for name, values in rewards.items():
        gaps = [
            abs(one - other)
            for ours, theirs in zip(rewards["engine offline"], values, strict=True)
            for one, other in zip(ours, theirs, strict=True)
        ]
        if max(gaps) > TOLERANCE:
            sys.exit(f"{name} and the engine disagree by {max(gaps):.3g} on {kind}: the comparison means nothing")
        print(f"{kind}, {name}: {costs.per_second(name)} items/s", flush=True)
        if name != "assay":
            report.ratios[f"{kind}: assay's server / {name}"] = costs.ratio("assay", name)
    report.figures[f"items/s, {kind}"] = {name: round(costs.per_second(name).median, 2) for name in contenders}
    report.figures[f"CPU ms an item, {kind}"] = {
        name: round(1000 / costs.per_cpu_second(name).median, 3) for name in contenders
    }
    report.figures[f"p50 ms, {kind}"] = {name: str(Spread.of(values)) for name, values in latencies.items()}
    if work.clients == 1 and work.size == 1:
        fixed = [
            1000 * (ours.wall_s / ours.amount - engine.wall_s / engine.amount)
            for ours, engine in zip(costs.costs["assay"], costs.costs["engine offline"], strict=True)
        ]
        report.figures["fixed cost of a request, ms (ours less its engine)"] = str(Spread.of(fixed))


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
