"""Prometheus gauges of the latest scores and of swaps in progress, computed when they are read.

Leaves out: the figures and the counters since the start (`metrics.engine_metrics`). Labels are model names and failure
codes, both closed sets.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from assay.statistics.intervals import bounds
from assay_serving.server.models.served_model import ServedModel
from assay_serving.server.rollout.swap import Swap


class ScoreGauges(Collector):
    """`models`: the live ones; `swaps`: those in progress."""

    def __init__(self, models: Callable[[], Iterable[ServedModel]], swaps: Callable[[], Iterable[Swap]]) -> None:
        self._models = models
        self._swaps = swaps

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing: the registry need not collect in order to know the names."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from self._of_models()
        yield from self._of_swaps()

    def _of_models(self) -> Iterator[GaugeMetricFamily]:
        mean = _gauge("assay_reward_window_mean", "Mean reward of the latest items")
        std = _gauge("assay_reward_window_std", "Standard deviation of the latest rewards")
        truncated = _gauge("assay_truncated_share", "Share of the latest items that were cut to the model's length")
        failed = _gauge("assay_failed_share", "Share of the latest items without a score", "code")
        psi = _gauge("assay_reward_drift_psi", "Population stability index of the latest rewards against the reference")
        ks = _gauge("assay_reward_drift_ks", "Kolmogorov-Smirnov distance of the latest rewards from the reference")
        chance = _gauge("assay_reward_drift_by_chance", "What the statistic passes once in twenty without drift", "of")
        for served in self._models():
            name, statistics = served.name, served.statistics
            rewards = statistics.rewards
            if len(rewards):
                mean.add_metric([name], float(rewards.mean()))
                std.add_metric([name], float(rewards.std()))
            shares = statistics.shares()
            truncated.add_metric([name], shares.pop("truncated", 0.0))
            for outcome, share in shares.items():
                failed.add_metric([name, outcome.removeprefix("failed ")], share)
            if (moved := statistics.drift()) is not None:
                psi.add_metric([name], moved.psi)
                ks.add_metric([name], moved.ks)
                chance.add_metric([name, "psi"], moved.psi_by_chance)
                chance.add_metric([name, "ks"], moved.ks_by_chance)
        yield from (mean, std, truncated, failed, psi, ks, chance)

    def _of_swaps(self) -> Iterator[GaugeMetricFamily]:
        compared = _gauge("assay_swap_compared_items", "Items that both models of a swap have scored")
        dropped = _gauge("assay_swap_dropped_items", "Items that there was no time to score by both")
        excess = _gauge("assay_swap_failure_excess", "Share of failures of the new model above the old one's")
        order = _gauge("assay_swap_order_agreement", "Share of pairs within prompts in the same order", "bound")
        for swap in self._swaps():
            name = swap.live.name
            compared.add_metric([name], swap.pairs.total)
            dropped.add_metric([name], swap.dropped)
            excess.add_metric([name], swap.failure_excess())
            if swap.latest is not None and (order_agreement := swap.latest.order) is not None:
                low, high = bounds(order_agreement.interval)
                for bound, value in (("low", low), ("value", order_agreement.agreement), ("high", high)):
                    if value is not None:
                        order.add_metric([name, bound], value)
        yield from (compared, dropped, excess, order)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["model", *labels])
