"""One report of several replicas: metrics with the label `replica`, the status of models.

Leaves out: asking them (`engine_client`).
"""

import re
from collections.abc import Sequence
from typing import Any

_SAMPLE = re.compile(r"(?P<name>[^{\s]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_READY = """# HELP assay_replica_ready Whether it would score now
# TYPE assay_replica_ready gauge
assay_replica_ready %d
"""
_COUNTS = ("in_flight", "waiting_items", "retiring")


def merged_metrics(texts: Sequence[bytes], ready: Sequence[bool]) -> bytes:
    """Prometheus text of all replicas, each family once. `texts`: of replicas 1 and following, empty for one that is
    away."""
    families: dict[str, tuple[dict[str, None], list[str]]] = {}  # comments and samples
    for number, (text, is_ready) in enumerate(zip(texts, ready, strict=True), 1):
        for line in (_READY % is_ready + text.decode()).splitlines():
            if line.startswith("# HELP "):
                comments, samples = families.setdefault(line.split(" ", 3)[2], ({}, []))
            if line.startswith("#"):
                comments[line] = None
            elif (sample := _SAMPLE.match(line)) is not None:
                labels = f'replica="{number}"' + (f",{sample['labels']}" if sample["labels"] else "")
                samples.append(f"{sample['name']}{{{labels}}} {sample['value']}")
    lines = [line for comments, samples in families.values() for line in (*comments, *samples)]
    return ("\n".join(lines) + "\n").encode()


def merged_status(outcomes: Sequence[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    """The outcomes of an order that changes nothing, by the replicas' numbers: the first one's, with each model's and
    swap's `replicas`, and sums of the requests and items of models."""
    merged = dict(outcomes[0][1])
    if "swap" in merged:
        of_swap = [{"replica": number, **outcome["swap"]} for number, outcome in outcomes]
        merged["swap"] = {**merged["swap"], "replicas": of_swap}
    for model in merged.get("models", ()):
        of_model = [  # copies: the first of them is the model itself
            {"replica": number, **described}
            for number, outcome in outcomes
            for described in outcome["models"]
            if described["name"] == model["name"]
        ]
        for count in _COUNTS:
            model[count] = sum(described[count] for described in of_model)
        model["replicas"] = [
            {"version": each["info"]["version"], **{name: each[name] for name in ("replica", *_COUNTS, "scores")}}
            for each in of_model
        ]
    return merged
