"""PrincipleBench-like: does a model prefer the response that satisfies a NAMED principle to one that does not?

Covers: pairs with the same prompt and principle and opposite fulfilment out of judged rows, pooled accuracy and the
unweighted mean over principles, the baseline of choosing the longer. The published PrincipleBench's items are not
public: this is the substitute that its paper's data allows (arXiv 2509.21319; the item format is our reading). A
principle model is asked by the principle; a scalar model scores the same two responses without it.

Rows: {prompt or context, response, principle, fulfilment} as `assay_rm_training.data.principle_rows` reads them, each
its own item with one score; or pairs {prompt, principle, chosen, rejected}. Leaves out: single judgments
(`principle_evaluation.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from assay.data.json_lines import RowError
from assay.data.pairs import pair_of
from assay.errors import BadInputError
from assay.statistics.intervals import Interval, cluster_bootstrap
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, Record, own_id
from assay_rm_training.benchmarks.protocol import Benchmark, Measured, TiePolicy, win
from assay_rm_training.benchmarks.strata import Stratum, mean_of, pooled, sizes_of
from assay_rm_training.data.principle_rows import PrincipleRow, principle_row_of
from assay_rm_training.evaluation.principle_split import principle_key, prompt_key


class OppositePair(NamedTuple):
    """Numbers of two rows with the same prompt and principle: one fulfils it, the other does not."""

    satisfying: int
    violating: int
    principle: str
    prompt: str
    longer: float  #: 1.0 where the satisfying response has more characters


@dataclass(frozen=True)
class OppositePairs:
    """Accuracy of ranking the satisfying response higher; a tie is wrong. `principle_mean`: unweighted over principles;
    `interval`: of the pooled accuracy, resampled by prompt."""

    pairs: int
    accuracy: float
    interval: Interval
    principle_mean: float
    principles: int
    length_baseline: float
    by_principle: dict[str, tuple[int, float]]  #: principle -> (pairs, accuracy)


def opposite_pairs(rows: Sequence[PrincipleRow]) -> list[OppositePair]:
    """Every pair of a fulfilling and a violating response to one prompt under one principle, in the rows' order."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        groups[prompt_key(row.prompt), principle_key(row.principle)].append(number)
    pairs = []
    for (prompt, _), members in groups.items():
        named = rows[members[0]].principle
        for yes in (n for n in members if rows[n].fulfilled):
            for no in (n for n in members if not rows[n].fulfilled and rows[n].response != rows[yes].response):
                longer = float(len(rows[yes].response) > len(rows[no].response))
                pairs.append(OppositePair(yes, no, named, prompt, longer))
    return pairs


def pair_figures(pairs: Sequence[OppositePair], rewards: Sequence[float], *, seed: int = 0) -> OppositePairs | None:
    """Figures of one reward a row [rows]; None where there is no pair."""
    if not pairs:
        return None
    right = [win(rewards[pair.satisfying], rewards[pair.violating], "official") for pair in pairs]
    names = {principle_key(pair.principle): pair.principle for pair in reversed(pairs)}
    of: dict[str, list[float]] = defaultdict(list)
    for pair, value in zip(pairs, right, strict=True):
        of[principle_key(pair.principle)].append(value)
    return OppositePairs(
        pairs=len(pairs),
        accuracy=float(np.mean(right)),
        interval=cluster_bootstrap(right, [pair.prompt for pair in pairs], seed=seed),
        principle_mean=float(np.mean([np.mean(values) for values in of.values()])),
        principles=len(of),
        length_baseline=float(np.mean([pair.longer for pair in pairs])),
        by_principle={names[key]: (len(values), float(np.mean(values))) for key, values in of.items()},
    )


class PrincipleBench(Benchmark):
    name = "principlebench"
    title = "PrincipleBench-like pairs"
    source = "RLBFF, arXiv 2509.21319: figures from notes, the item format is our reading"
    obtain = "name a file of judged responses with --path: rows with prompt, response, principle and fulfilment"

    def read(self, record: Record) -> BenchmarkItem | None:
        """A judged response is an item of one response, gold 1 where it fulfils; a pair is one of two."""
        values = dict(record.values)
        try:
            if "fulfilment" in values:
                if str(values["fulfilment"]).strip().lower() == "partially":
                    return None
                row = principle_row_of(values)
                prompt, principle, category = row.prompt, row.principle, row.category
                responses: tuple[str, ...] = (row.response,)
                gold: tuple[float, ...] = (float(row.fulfilled),)
            else:
                pair = pair_of(values)
                prompt, principle, category = pair.prompt, " ".join(record.text("principle").split()), pair.category
                responses, gold = (pair.chosen, pair.rejected), (1.0, 0.0)
        except RowError as error:
            raise record.error(error.reason, error.field) from error
        return BenchmarkItem(
            id=own_id(values.get("id")) or f"row-{record.row}",
            prompt=prompt,
            responses=responses,
            gold=gold,
            subset=category,
            part=principle_key(principle),
            principle=principle,
        )

    def check(self, items: Sequence[BenchmarkItem]) -> None:
        super().check(items)
        if not any(True for _ in _paired(items, [Outcome(scores=item.gold) for item in items])):
            raise BadInputError("no two responses to one prompt differ in whether they fulfil the same principle")

    def credit(self, item: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> float:
        """Of a pair: is it ranked right; of a single response: is its judgment (the score's sign) right."""
        assert outcome.scores is not None
        if len(item.responses) == 2:
            return win(outcome.scores[0], outcome.scores[1], ties)
        return win(outcome.scores[0], 0.0, ties) if item.gold[0] else win(0.0, outcome.scores[0], ties)

    def measure(
        self,
        items: Sequence[BenchmarkItem],
        outcomes: Sequence[Outcome],
        *,
        ties: TiePolicy = "official",
        failed_as_wrong: bool = False,
        seed: int = 0,
    ) -> Measured:
        names = {item.part: item.principle or "" for item in reversed(items)}
        found: dict[str, list[tuple[str, Sequence[float]]]] = defaultdict(list)
        tied = 0
        for part, prompt, better, worse, longer in _paired(items, outcomes):
            if better is None or worse is None:
                if failed_as_wrong:
                    found[part].append((prompt, [0.0, longer]))
                continue
            tied += better == worse
            found[part].append((prompt, [win(better, worse, ties), longer]))
        strata = [s for part, rows in found.items() if (s := Stratum.of(part, ("accuracy", "longer"), rows))]
        sizes = sizes_of(strata)
        shares = {
            "overall": [(stratum.name, "accuracy") for stratum in strata],
            "longer": [(stratum.name, "longer") for stratum in strata],
            **{f"principle/{names[s.name]}": [(s.name, "accuracy")] for s in strata},
        }
        return Measured(
            strata,
            lambda means: (
                pooled(means, shares, sizes)
                | {"principle_mean": mean_of([means[f"{part}/accuracy"] for part in sizes])}
            ),
            shares=shares,
            sizes={"overall": sum(sizes.values()), **{f"principle/{names[part]}": n for part, n in sizes.items()}},
            counts={"pairs": sum(sizes.values()), "principles": len(sizes), "ties": tied},
        )

    def statement(self, ties: TiePolicy) -> dict[str, str]:
        return {
            "unit": "pair of responses to one prompt, of which one satisfies the principle",
            "correct_when": "score(satisfying) > score(violating)",
            "tie": "wrong" if ties == "official" else "counts 1/2",
            "aggregation": "overall = pooled over pairs; principle_mean = unweighted mean over principles; "
            "longer = choosing the longer response",
            "failures": "pairs with a failed side are left out of every mean",
        }


class _Side(NamedTuple):
    prompt: str
    text: str
    score: float | None


def _paired(
    items: Sequence[BenchmarkItem], outcomes: Sequence[Outcome]
) -> list[tuple[str, str, float | None, float | None, float]]:
    """(principle, prompt, score of the satisfying, of the violating response, 1.0 where the former is longer)."""
    sides: dict[tuple[str, str], tuple[list[_Side], list[_Side]]] = {}
    pairs = []
    for item, outcome in zip(items, outcomes, strict=True):
        prompt = prompt_key(item.prompt)
        scores: Sequence[float | None] = outcome.scores or [None] * len(item.responses)
        made = [_Side(prompt, text, score) for text, score in zip(item.responses, scores, strict=True)]
        if len(made) == 2:
            pairs.append((item.part, made[0], made[1]))
        else:
            sides.setdefault((prompt, item.part), ([], []))[0 if item.gold[0] else 1].append(made[0])
    for (_, part), (satisfying, violating) in sides.items():
        pairs += [(part, yes, no) for yes in satisfying for no in violating if yes.text != no.text]
    return [(part, y.prompt, y.score, n.score, float(len(y.text) > len(n.text))) for part, y, n in pairs]


BENCHMARK = PrincipleBench()
