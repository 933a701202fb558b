"""Train and held-out split of principle rows by prompt and by principle.

Covers: holding out whole prompts and whole principles, the cell each held-out row belongs to, its principle's base rate
in training. Leaves out: reading rows (`assay_rm_training.data.principle_rows`), figures (`evaluation/principle.py`).

Near-duplicates stay on one side: prompts that differ in case and white space, principles whose words are the same but
for case, order, punctuation and words that carry no meaning ("clarity of the response" and "Response clarity").
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from assay.errors import BadInputError
from assay_rm_training.data.principle_rows import PrincipleRow, principle_key, prompt_key


@dataclass(frozen=True, slots=True)
class HeldOutRow(PrincipleRow):
    """`cell`: which of prompt and principle training has seen. `base_rate`: share of yes among the training rows of
    this principle, or of all training rows where there is none; None where training is not known."""

    cell: str = ""
    base_rate: float | None = None


@dataclass(frozen=True)
class BaseRate:
    """One principle among some rows, under its first wording: `yes` of `rows` fulfil it."""

    principle: str
    rows: int
    yes: int


def divide(
    rows: Sequence[PrincipleRow], *, prompts: float = 0.1, principles: float = 0.1, seed: int = 0
) -> tuple[list[PrincipleRow], list[PrincipleRow]]:
    """(training rows, held-out rows). `prompts`, `principles`: the shares of each that are held out; at least one of
    a kind whose share is above 0. A row is trained on only if both its prompt and its principle are.

    The choice is a function of the seed and of the sets of prompts and principles, not of the rows' order. Raises
    BadInputError for shares outside 0..1 and where one side would be empty.
    """
    for name, share in (("holdout_prompts", prompts), ("holdout_principles", principles)):
        if not 0 <= share < 1:
            raise BadInputError(f"is a share from 0 to below 1, not {share}", field=name)
    away_prompts = _chosen({prompt_key(row.prompt) for row in rows}, prompts, seed)
    away_principles = _chosen({principle_key(row.principle) for row in rows}, principles, seed)
    training_rows: list[PrincipleRow] = []
    held: list[PrincipleRow] = []
    for row in rows:
        away = prompt_key(row.prompt) in away_prompts or principle_key(row.principle) in away_principles
        (held if away else training_rows).append(row)
    if not training_rows or not held:
        what = "nothing to train on" if not training_rows else "nothing held out"
        raise BadInputError(
            f"holding out {prompts:g} of the prompts and {principles:g} of the principles leaves {what}"
        )
    return training_rows, held


def with_cells(trained: Sequence[PrincipleRow], held: Iterable[PrincipleRow]) -> list[HeldOutRow]:
    """The held-out rows with their cell and base rate against the rows that are trained on."""
    prompts = {prompt_key(row.prompt) for row in trained}
    rates = {principle_key(rate.principle): rate for rate in base_rates(trained)}
    overall = sum(row.fulfilled for row in trained) / max(len(trained), 1)
    held_out = []
    for row in held:
        rate = rates.get(principle_key(row.principle))
        cell = (
            f"{'seen' if prompt_key(row.prompt) in prompts else 'unseen'} prompt, "
            f"{'unseen' if rate is None else 'seen'} principle"
        )
        values = {name: getattr(row, name) for name in PrincipleRow.__dataclass_fields__}
        held_out.append(HeldOutRow(**values, cell=cell, base_rate=overall if rate is None else rate.yes / rate.rows))
    return held_out


def base_rates(rows: Iterable[PrincipleRow]) -> list[BaseRate]:
    """Every principle's share of yes, the most frequent principle first."""
    groups = grouped(rows, lambda row: principle_key(row.principle))
    rates = [BaseRate(g[0].principle, len(g), sum(row.fulfilled for row in g)) for g in groups.values()]
    return sorted(rates, key=lambda rate: (-rate.rows, rate.principle))


def grouped(
    rows: Iterable[PrincipleRow], key: Callable[[PrincipleRow], Hashable]
) -> dict[Hashable, list[PrincipleRow]]:
    """Rows by key, groups and rows in order of occurrence."""
    groups: dict[Hashable, list[PrincipleRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _chosen(keys: set[str], share: float, seed: int) -> frozenset[str]:
    """The share of the keys with the lowest hashes."""
    if not share or len(keys) < 2:
        return frozenset()
    ordered = sorted(keys, key=lambda key: hashlib.sha256(f"{seed}\x1f{key}".encode()).digest())
    return frozenset(ordered[: max(1, round(share * len(keys)))])
