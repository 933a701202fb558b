"""Replicas of one model behind one server: rates of two engine processes against one, over HTTP.

The engines sleep (`--item-s` for each item) and compute nothing, so that they share no core: the ratio is what routing
by prompt, splitting requests and unequal queues leave of the engines' own, which would be 2. Requests of 16 responses
to one prompt, and of four prompts with four responses each, which are split between the replicas. Servers take turns,
one at a time under load, with other prompts in every round; every reward is checked.

    python benchmarks/replicas.py [--quick] [--replicas 2] [--json] [--save-baseline]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from http_load import drive
from measure import Cost, Report, arguments, compare, cpu_seconds
from scripted_engine import reward_of
from servers import scripted_server

MEASURES = (
    "serving/assay_serving/routing.py",
    "serving/assay_serving/server",
    "serving/assay_serving/engine_process",
)

CLIENTS, RESPONSES = 64, 16
KINDS = {"one prompt": 1, "four prompts": 4}  #: prompts of one request
START_S = 300.0


def requests_of(prompts: int, count: int, salt: str) -> list[dict[str, Any]]:
    """Bodies of `count` requests, of `RESPONSES` items each; no text twice."""
    return [
        {
            "groups": [
                {
                    "prompt": f"Question {salt} {number}.{group}: which metal is it?",
                    "responses": [f"Answer {n} to it." for n in range(RESPONSES // prompts)],
                }
                for group in range(prompts)
            ]
        }
        for number in range(count)
    ]


def check(bodies: list[dict[str, Any]], replies: list[Any]) -> None:
    for body, reply in zip(bodies, replies, strict=True):
        rewards = [result["reward"] for result in reply["results"]]
        texts = [f"{group['prompt']}\n{text}" for group in body["groups"] for text in group["responses"]]
        if rewards != [reward_of(text) for text in texts]:
            sys.exit("a reply has wrong rewards")


def wait_for(url: str, replicas: int) -> None:
    """Until all of them would score."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        families = text_string_to_metric_families(httpx.get(url + "/metrics", timeout=START_S).text)
        ready = [s.value for family in families for s in family.samples if s.name == "assay_replica_ready"]
        if replicas == 1 or sum(ready) == replicas:
            return
        time.sleep(0.1)
    sys.exit("the replicas do not start")


def run(options: argparse.Namespace) -> None:
    rounds, count = (5, 96) if options.quick else (7, 192)
    report = Report("replicas", measures=MEASURES, peers=("fastapi", "uvicorn"))
    report.figures = {"seconds an item": options.item_s, "clients": CLIENTS}
    report.figures["items/s that one engine can do"] = 1 / options.item_s
    with ExitStack() as running:
        urls, pids = {}, {}
        for replicas in (1, options.replicas):
            server = scripted_server("--replicas", str(replicas), "--item-s", str(options.item_s))
            urls[replicas], pids[replicas] = running.enter_context(server)
            wait_for(urls[replicas], replicas)
        for left, (kind, prompts) in zip((2, 1), KINDS.items(), strict=True):
            done = dict.fromkeys(urls, 0)

            def turn(replicas: int, kind: str = kind, prompts: int = prompts, done: dict[int, int] = done) -> Cost:
                done[replicas] += 1
                bodies = requests_of(prompts, count, f"{kind} {done[replicas]}")
                before = cpu_seconds(pids[replicas])
                load = drive(urls[replicas] + "/v1/score", bodies, clients=CLIENTS, keep=True)
                if not load.all_answered:
                    sys.exit(f"{replicas} replicas: {load.statuses}")
                cpu = cpu_seconds(pids[replicas]) - before
                check(bodies, load.replies)
                return Cost(load.seconds, cpu, RESPONSES * count)

            contenders: dict[str, Callable[[], Cost]] = {
                str(replicas): lambda replicas=replicas: turn(replicas)  # type: ignore[misc]
                for replicas in urls
            }
            for contender in contenders.values():  # once unmeasured: engines learn their speed
                contender()
            compared = compare(contenders, options, rounds=rounds, parts_left=left)
            name = f"{kind} a request: {options.replicas} replicas / 1"
            report.ratios[name] = compared.ratio(str(options.replicas), "1")
            report.figures[f"items/s, {kind} a request"] = {
                replicas: round(compared.per_second(replicas).median, 1) for replicas in contenders
            }
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    report.finish(options)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--item-s", type=float, default=0.005)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
