"""The evaluation of a policy before and after its training as rows of text, for the page and the model card.

Leaves out: measuring (`assay_policy_training.training.evaluation`), and evaluations during training, which are curves.
"""

from collections.abc import Iterator, Mapping
from typing import Any

HEAD = ("measure", "before", "after", "change, 95 % by prompt")


def evaluation_tables(results: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """(prompts with their number, rows under `HEAD`) of each set that the run's results have."""
    # Other runs have a `before` and an `after` of their own (calibrations, judges), which are not compared.
    sets = results.get("sets") or ({"": results} if results.get("change") else {})
    for name, part in sets.items():
        after = part["after"]
        title = f"{name or 'Held-out prompts'}: {after['prompts']} prompts, {after['samples']} responses each"
        missing = after.get("rewards_missing")
        yield title + (f", {missing} rewards missing" if missing else ""), list(_rows(part))


def _rows(part: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    before, after, change = part["before"], part["after"], part["change"]
    yield _row("reward", before["reward_mean"], after["reward_mean"], change.get("reward"))
    if before.get("verifier") and after.get("verifier"):
        yield _row("pass rate", before["verifier"]["share"], after["verifier"]["share"], change.get("pass_rate"))
    changes = {figure["k"]: figure for figure in change.get("pass_at_k") or ()}
    olds = {figure["k"]: figure["value"] for figure in before.get("pass_at_k") or ()}
    for figure in (after.get("pass_at_k") or ())[1:]:  # the first is the pass rate
        k = figure["k"]
        yield _row(f"pass@{k}", olds.get(k), figure["value"], changes.get(k))
    for name, key in (("length in tokens", "length_mean"), ("entropy", "entropy"), ("KL a token (k3)", "kl_k3")):
        if after.get(key) is not None:
            yield _row(name, before.get(key), after[key], None)


def _row(name: str, before: float | None, after: float | None, change: Mapping[str, Any] | None) -> tuple[str, ...]:
    text = ""
    if change is not None and change.get("value") is not None:
        low, high = change.get("low"), change.get("high")
        bounds = "undetermined" if low is None or high is None else f"{low:+.3f} to {high:+.3f}"
        text = f"{change['value']:+.3f} [{bounds}]"
    return name, *("" if value is None else f"{value:.4g}" for value in (before, after)), text
