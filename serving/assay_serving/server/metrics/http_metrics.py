"""What a server counts, for Prometheus. One registry an application, so that several can live in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from assay.score import Score, ScoreResult

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_REWARDS = (-30, -20, -15, -10, -7, -5, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class HttpMetrics:
    """Counters of the requests. Labels come from closed sets (routes, statuses), never from callers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.requests = Counter("assay_requests", "Requests answered", ["route", "status"], registry=r)
        self.seconds = Histogram(
            "assay_request_seconds", "From the first byte to the reply", ["route"], buckets=_SECONDS, registry=r
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)


class EngineMetrics:
    """Counters of what the models did. Labels come from closed sets (model names, codes), never from callers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        r = self.registry
        self.items = Counter("assay_items", "Items answered, failures included", ["model"], registry=r)
        self.tokens = Counter("assay_tokens", "Tokens read by the model", ["model"], registry=r)
        self.truncated = Counter("assay_truncated_items", "Items cut to the model's length", ["model"], registry=r)
        self.failures = Counter("assay_item_failures", "Items without a score", ["model", "code"], registry=r)
        self.rewards = Histogram("assay_reward", "Rewards given", ["model"], buckets=_REWARDS, registry=r)
        self.call_items = Histogram(
            "assay_engine_call_items", "Items per engine call", ["model"], buckets=_ITEMS, registry=r
        )
        self.call_seconds = Histogram(
            "assay_engine_call_seconds", "Length of engine calls", ["model"], buckets=_SECONDS, registry=r
        )
        self.queue = Gauge("assay_queue_items", "Items waiting for the engine", ["model"], registry=r)
        self.wait_seconds = Histogram(
            "assay_wait_seconds",
            "From a request's arrival to its engine call",
            ["model", "priority"],
            buckets=_SECONDS,
            registry=r,
        )
        self.dropped = Counter(
            "assay_dropped_items", "Items never scored: late, or their client gone", ["model", "reason"], registry=r
        )
        self.cache_hits = Counter(
            "assay_cache_hits", "Items that no engine computed, by what had them", ["model", "tier"], registry=r
        )
        self.cache_misses = Counter("assay_cache_misses", "Items that an engine had to compute", ["model"], registry=r)

    def watch_queue(self, model: str, depth: Callable[[], int]) -> None:
        self.queue.labels(model).set_function(depth)

    def forget(self, model: str) -> None:
        """A model of this name is no more: its series end, and nothing here holds its queue."""
        for alone in (self.items, self.tokens, self.truncated, self.rewards, self.call_items, self.call_seconds):
            alone.remove(model)
        self.cache_misses.remove(model)
        self.queue.remove(model)
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
        """Seconds of all its engine calls so far, and items in them."""
        return _sum_of(self.call_seconds, model), _sum_of(self.call_items, model)

    def count_results(self, model: str, results: Sequence[ScoreResult]) -> None:
        self.items.labels(model).inc(len(results))
        rewards, tokens, truncated = self.rewards.labels(model), 0, 0
        for result in results:
            if isinstance(result, Score):
                rewards.observe(result.reward)
                tokens += result.tokens
                truncated += result.truncated
            else:
                self.failures.labels(model, result.code).inc()
        self.tokens.labels(model).inc(tokens)
        self.truncated.labels(model).inc(truncated)

    def text(self) -> bytes:
        return generate_latest(self.registry)


def _sum_of(histogram: Histogram, model: str) -> float:
    samples = (sample for metric in histogram.collect() for sample in metric.samples)
    return sum(s.value for s in samples if s.name.endswith("_sum") and s.labels == {"model": model})
