"""What the models did: Prometheus counters since the start, and statistics of each model's latest scores.

Leaves out: counters of HTTP requests (`http_metrics`), formulas of drift (`drift`), gauges (`rollout.score_gauges`).
"""

import collections
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from assay.score import Score, ScoreResult
from assay_serving.server.metrics.drift import Drift, Floats, drift
from assay_serving.server.metrics.http_metrics import SECONDS

_REWARDS = (-30, -20, -15, -10, -7, -5, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
WINDOW = 4096  #: items
REFERENCE = 1000  #: scores
LEAST = 100  #: scores after the reference before drift is computed


class EngineMetrics:
    """Counters of the models, for Prometheus. Labels come from closed sets (model names, codes), never from callers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        one, waits = ["model"], "From a request's arrival to its engine call"
        self.items = counter("assay_items", "Items answered, failures included", one)
        self.tokens = counter("assay_tokens", "Tokens read by the model", one)
        self.truncated = counter("assay_truncated_items", "Items cut to the model's length", one)
        self.failures = counter("assay_item_failures", "Items without a score", ["model", "code"])
        self.rewards = histogram("assay_reward", "Rewards given", one, buckets=_REWARDS)
        self.call_items = histogram("assay_engine_call_items", "Items per engine call", one, buckets=_ITEMS)
        self.call_seconds = histogram("assay_engine_call_seconds", "Length of engine calls", one, buckets=SECONDS)
        self.queue = gauge("assay_queue_items", "Items waiting for the engine", one)
        self.queue_seconds = gauge("assay_queue_seconds", "Estimated time the engine needs for queued items", one)
        self.wait_seconds = histogram("assay_wait_seconds", waits, ["model", "priority"], buckets=SECONDS)
        dropped, had = (
            "Items never scored: late, or their client gone",
            "Items that no engine computed, by what had them",
        )
        self.dropped = counter("assay_dropped_items", dropped, ["model", "reason"])
        self.cache_hits = counter("assay_cache_hits", had, ["model", "tier"])
        self.cache_misses = counter("assay_cache_misses", "Items that an engine had to compute", one)
        self._series: dict[str, ModelSeries] = {}

    def of(self, model: str) -> "ModelSeries":
        """The model's series, looked up once."""
        series = self._series.get(model)
        if series is None:
            series = self._series[model] = ModelSeries(self, model)
        return series

    def watch_queue(self, model: str, depth: Callable[[], int], seconds: Callable[[], float]) -> None:
        self.queue.labels(model).set_function(depth)
        self.queue_seconds.labels(model).set_function(seconds)

    def remove(self, model: str) -> None:
        """End the series of an unloaded model; nothing here refers to its queue afterwards."""
        self._series.pop(model, None)
        for series in (self.items, self.tokens, self.truncated, self.rewards, self.call_items, self.call_seconds):
            series.remove(model)
        self.cache_misses.remove(model)
        self.queue.remove(model)
        self.queue_seconds.remove(model)
        for metric, label in (
            (self.failures, "code"),
            (self.wait_seconds, "priority"),
            (self.dropped, "reason"),
            (self.cache_hits, "tier"),
        ):
            samples = [sample.labels for family in metric.collect() for sample in family.samples]
            for value in {labels[label] for labels in samples if labels["model"] == model}:
                metric.remove(model, value)

    def engine_work(self, model: str) -> tuple[float, float]:
        """Seconds of all engine calls of the model, and items in them."""
        return _sum_of(self.call_seconds, model), _sum_of(self.call_items, model)

    def count_results(self, model: str, results: Sequence[ScoreResult]) -> None:
        series = self.of(model)
        series.items.inc(len(results))
        rewards, tokens, truncated = series.rewards, 0, 0
        for result in results:
            if isinstance(result, Score):
                rewards.observe(result.reward)
                tokens += result.tokens
                truncated += result.truncated
            else:
                self.failures.labels(model, result.code).inc()
        series.tokens.inc(tokens)
        series.truncated.inc(truncated)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class ModelSeries:
    """One model's series: finding a child by its labels takes longer than counting."""

    def __init__(self, metrics: EngineMetrics, model: str) -> None:
        self.items, self.tokens = metrics.items.labels(model), metrics.tokens.labels(model)
        self.truncated, self.rewards = metrics.truncated.labels(model), metrics.rewards.labels(model)
        self.call_items, self.call_seconds = metrics.call_items.labels(model), metrics.call_seconds.labels(model)
        self.cache_misses = metrics.cache_misses.labels(model)
        self.waits = cache(partial(metrics.wait_seconds.labels, model))  #: by the priority's name


class ScoreStatistics:
    """A sliding window over one model's latest scores: location, spread, truncation, failures, drift, latency.

    Appending is cheap; figures are computed when they are read. Drift is measured against the first scores after
    loading, unless an administrator sets the reference; a restarted server starts a new reference. Used on the event
    loop only.
    """

    def __init__(self, *, window: int = WINDOW, reference: int = REFERENCE, least: int = LEAST) -> None:
        self._rewards: deque[float] = deque(maxlen=window)
        self._outcomes: deque[str] = deque(maxlen=window)  # "" scored, "truncated" scored, else a failure's code
        self._seconds: deque[float] = deque(maxlen=window)  # one per request
        self._reference: list[float] = []
        self._wanted = reference
        self._least = least
        self.items = self.failed = self._scores_since = 0

    def add(self, results: Sequence[ScoreResult], seconds: float) -> None:
        """Results of one request, and the time since its arrival."""
        self._seconds.append(seconds)
        self.items += len(results)
        for result in results:
            if isinstance(result, Score):
                self._outcomes.append("truncated" if result.truncated else "")
                self._rewards.append(result.reward)
                if len(self._reference) < self._wanted:
                    self._reference.append(result.reward)
                else:
                    self._scores_since += 1
            else:
                self.failed += 1
                self._outcomes.append(f"failed {result.code}")

    def add_failures(self, items: int, code: str) -> None:
        """Items of a request that failed as a whole."""
        self.items += items
        self.failed += items
        self._outcomes.extend([f"failed {code}"] * items)

    def set_reference(self) -> None:
        """Measure drift against the present window from now on."""
        self._reference = list(self._rewards)[-self._wanted :]
        self._scores_since = 0

    @property
    def failure_rate(self) -> float:
        """Since loading."""
        return self.failed / self.items if self.items else 0.0

    @property
    def rewards(self) -> Floats:
        """Those of the window, oldest first."""
        return np.array(self._rewards, dtype=float)

    def shares(self) -> dict[str, float]:
        """Shares of the window's items: "truncated" and "failed CODE", those that occur."""
        counts = collections.Counter(self._outcomes)
        counts.pop("", None)
        return {name: count / len(self._outcomes) for name, count in sorted(counts.items())}

    def drift(self) -> Drift | None:
        """Of the window's scores since the reference was complete; None while there are too few of them."""
        rewards = self.rewards[-self._scores_since :] if self._scores_since else np.array([])
        if len(self._reference) < self._wanted or len(rewards) < min(self._least, self._rewards.maxlen or self._least):
            return None
        return drift(self._reference, rewards)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; None where nothing has been scored."""
        rewards, seconds, moved = self.rewards, np.array(self._seconds), self.drift()
        shares = self.shares()
        return {
            "items": self.items,
            "failed": self.failed,
            "window": {
                "items": len(self._outcomes),
                "mean": float(rewards.mean()) if len(rewards) else None,
                "std": float(rewards.std()) if len(rewards) else None,
                "quantiles": _quantiles(rewards, (0.05, 0.25, 0.5, 0.75, 0.95)),
                "truncated": shares.pop("truncated", 0.0),
                "failed": {name.removeprefix("failed "): share for name, share in shares.items()},
            },
            "reference": {"scores": len(self._reference), "wanted": self._wanted},
            "drift": moved.to_dict() if moved is not None else None,
            "answer_seconds": _quantiles(seconds, (0.5, 0.95)),
        }


def _sum_of(histogram: Histogram, model: str) -> float:
    samples = (sample for metric in histogram.collect() for sample in metric.samples)
    return sum(s.value for s in samples if s.name.endswith("_sum") and s.labels == {"model": model})


def _quantiles(values: Floats, shares: tuple[float, ...]) -> dict[str, float] | None:
    if not len(values):
        return None
    return {
        f"p{round(share * 100):02d}": float(value)
        for share, value in zip(shares, np.quantile(values, shares), strict=True)
    }
