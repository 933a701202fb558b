"""One report of several replicas: metrics with the label `replica`, the status of models.

Leaves out: asking them (`engine_client`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_SAMPLE = re.compile(r"(?P<name>[^{\s]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_COUNTS = ("in_flight", "waiting_items", "retiring")


def merged_metrics(texts: Sequence[bytes], ready: Sequence[bool]) -> bytes:
    """Prometheus text of all replicas, each family once. `texts`: of replicas 1 and following, empty for one that is
    away."""
    heads: dict[str, list[str]] = {"assay_replica_ready": ["# HELP assay_replica_ready Whether it would score now"]}
    heads["assay_replica_ready"].append("# TYPE assay_replica_ready gauge")
    samples = {
        "assay_replica_ready": [f'assay_replica_ready{{replica="{n}"}} {each:d}' for n, each in _numbered(ready)]
    }
    for number, text in _numbered(texts):
        family, head, first = "", list[str](), False
        for line in text.decode().splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                head = heads.setdefault(family, [])
                first = not head
            if line.startswith("#"):
                if first:
                    head.append(line)
            elif (sample := _SAMPLE.match(line)) is not None:
                labels = f'replica="{number}"' + (f",{sample['labels']}" if sample["labels"] else "")
                samples.setdefault(family, []).append(f"{sample['name']}{{{labels}}} {sample['value']}")
    lines = [line for family, head in heads.items() for line in (*head, *samples.get(family, ()))]
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
            {
                "replica": each["replica"],
                "version": each["info"]["version"],
                **{c: each[c] for c in (*_COUNTS, "scores")},
            }
            for each in of_model
        ]
    return merged


def _numbered(values: Sequence[Any]) -> enumerate[Any]:
    return enumerate(values, 1)
