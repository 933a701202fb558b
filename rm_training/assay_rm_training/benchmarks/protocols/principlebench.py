"""A benchmark like PrincipleBench: preferring the response that satisfies a NAMED principle to one that does not.

Covers: pairs with the same prompt and principle and opposite fulfilment out of judged rows, pooled accuracy and the
unweighted mean over principles, the baseline of choosing the longer. The published PrincipleBench's items are not
public: this is a substitute from the paper's data (arXiv 2509.21319; the item format is our reading). A principle model
scores under the principle; a scalar model without it.

Rows: {prompt or context, response, principle, fulfilment} as `assay_rm_training.data.principle_rows` reads them, each
an item with one score; or pairs {prompt, principle, chosen, rejected}. Leaves out: single judgments
(`evaluation/principle.py`).
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from assay.data.json_lines import RowError
from assay.data.pairs import pair_of
from assay.domain import Response, response_text
from assay.errors import BadInputError
from assay_rm_training.benchmarks.benchmark import BenchmarkFigures, ScoredItems, TiePolicy, win
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, Record, publisher_id
from assay_rm_training.benchmarks.published import PublishedBenchmark
from assay_rm_training.benchmarks.strata import Stratum, mean_of, pooled, sizes_of
from assay_rm_training.data.principle_rows import principle_key, principle_row_of, prompt_key


class PrincipleBench(PublishedBenchmark, name="principlebench"):
    def read(self, record: Record) -> BenchmarkItem | None:
        """A judged response is an item of one response, gold 1 where it fulfils; a pair is one of two."""
        values = dict(record.values)
        try:
            if "fulfilment" in values:
                if str(values["fulfilment"]).strip().lower() == "partially":
                    return None
                row = principle_row_of(values)
                prompt, principle, category = row.prompt, row.principle, row.category
                responses: tuple[Response, ...] = (row.response,)
                gold: tuple[float, ...] = (float(row.fulfilled),)
            else:
                pair = pair_of(values)
                prompt, principle, category = pair.prompt, " ".join(record.text("principle").split()), pair.category
                responses, gold = (pair.chosen, pair.rejected), (1.0, 0.0)
        except RowError as error:
            raise record.error(error.reason, error.field) from error
        return BenchmarkItem(
            id=publisher_id(values.get("id")) or f"row-{record.row}",
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
        """Whether a pair is ranked right, or a single response judged right (by the score's sign)."""
        assert outcome.scores is not None
        if len(item.responses) == 2:
            return win(outcome.scores[0], outcome.scores[1], ties)
        return win(outcome.scores[0], 0.0, ties) if item.gold[0] else win(0.0, outcome.scores[0], ties)

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        names = {item.part: item.principle or "" for item in reversed(scored.items)}
        pair_rows: dict[str, list[tuple[str, Sequence[float]]]] = defaultdict(list)
        tied = 0
        for part, prompt, better, worse, longer in _paired(scored.items, scored.outcomes):
            if better is None or worse is None:
                if scored.failed_as_wrong:
                    pair_rows[part].append((prompt, [0.0, longer]))
                continue
            tied += better == worse
            pair_rows[part].append((prompt, [win(better, worse, scored.ties), longer]))
        strata = [s for part, rows in pair_rows.items() if (s := Stratum.of(part, ("accuracy", "longer"), rows))]
        sizes = sizes_of(strata)
        shares = {
            "overall": [(stratum.name, "accuracy") for stratum in strata],
            "longer": [(stratum.name, "longer") for stratum in strata],
            **{f"principle/{names[s.name]}": [(s.name, "accuracy")] for s in strata},
        }
        return BenchmarkFigures(
            strata,
            lambda means: (
                pooled(means, shares, sizes)
                | {"principle_mean": mean_of([means[f"{part}/accuracy"] for part in sizes])}
            ),
            shares=shares,
            sizes={"overall": sum(sizes.values()), **{f"principle/{names[part]}": n for part, n in sizes.items()}},
            counts={"pairs": sum(sizes.values()), "principles": len(sizes), "ties": tied},
        )


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
        item_sides = [_Side(prompt, response_text(r), score) for r, score in zip(item.responses, scores, strict=True)]
        if len(item_sides) == 2:
            pairs.append((item.part, item_sides[0], item_sides[1]))
        else:
            sides.setdefault((prompt, item.part), ([], []))[0 if item.gold[0] else 1].append(item_sides[0])
    for (_, part), (satisfying, violating) in sides.items():
        pairs += [(part, yes, no) for yes in satisfying for no in violating if yes.text != no.text]
    return [(part, y.prompt, y.score, n.score, float(len(y.text) > len(n.text))) for part, y, n in pairs]


BENCHMARK = PrincipleBench()
