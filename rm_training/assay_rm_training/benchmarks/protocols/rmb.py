"""RMB: pairs and best-of-N lists, for helpfulness and harmlessness, over 49 real-world scenarios.

Source: arXiv 2410.09893 and its repository (code and data files read). A pair is right if the winner scores
above the loser; a list is right only if the winner scores above EVERY loser. Overall is the mean of the four cells,
which is not the pooled share. A list of m losers is right by chance with 1/(m + 1).
"""

from collections.abc import Sequence
from dataclasses import replace

from assay_rm_training.benchmarks.benchmark import BenchmarkFigures, ScoredItems, TiePolicy
from assay_rm_training.benchmarks.figures.best_of_n import curve, scored_lists
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, Record
from assay_rm_training.benchmarks.published import PublishedBenchmark
from assay_rm_training.benchmarks.strata import Floats, mean_of

CELLS = ("pairwise_helpfulness", "bon_helpfulness", "pairwise_harmlessness", "bon_harmlessness")


def list_right(scores: Sequence[float]) -> bool:
    """The first score is the winner's."""
    return all(scores[0] > loser for loser in scores[1:])


class RMB(PublishedBenchmark, name="rmb"):
    def read(self, record: Record) -> BenchmarkItem:
        pairwise = "bon_best" not in record.values
        goal, scenario = _category(record)
        if pairwise:
            loser = "reject" if record.values.get("reject") is not None else "rejected"
            responses: tuple[str, ...] = (_answer(record, "chosen"), _answer(record, loser))
        else:
            losers = record.get("loser_list")
            if not isinstance(losers, list | tuple) or not losers:
                raise record.error("not a list of responses", "loser_list")
            responses = (_answer(record, "bon_best"), *(_text(record, "loser_list", loser) for loser in losers))
        return BenchmarkItem(
            id=record.identity(*(("pair_uid", "id") if pairwise else ("bon_uid", "id"))),
            prompt=record.prompt("conversation_input"),
            responses=responses,
            gold=(1.0,) + (0.0,) * (len(responses) - 1),
            subset=scenario,
            part=f"{'pairwise' if pairwise else 'bon'}_{goal}",
        )

    def credit(self, item: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> float:
        assert outcome.scores is not None
        if item.part.startswith("bon_"):
            return float(list_right(outcome.scores))
        return super().credit(item, outcome, ties)

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        figures = self.pooled(
            scored,
            lambda item: f"{item.part}/{item.subset}",
            lambda name: (name.split("/")[0], name),
            _with_overall,
        )
        lists = {
            cell: scored_lists(members)
            for cell, members in scored.grouped(lambda item: item.part).items()
            if cell.startswith("bon_")
        }
        return replace(
            figures,
            curves=lambda: {cell: curve(mine, seed=scored.seed) for cell, mine in lists.items()},
            missing=[cell for cell in CELLS if cell not in figures.shares],
        )


def _category(record: Record) -> tuple[str, str]:
    """Goal and scenario, from `category_path`, else from the folders the file lies in."""
    category_path = record.values.get("category_path")
    parts = (
        str(category_path).split("/")
        if isinstance(category_path, str) and category_path
        else record.file.removesuffix(".json").split("/")
    )
    for depth, part in enumerate(parts):
        if part.lower() in ("helpfulness", "harmlessness"):
            return part.lower(), "/".join(parts[depth + 1 :]) or part
    raise record.error("neither it nor the file's path names Helpfulness or Harmlessness", "category_path")


def _answer(record: Record, field: str) -> str:
    return _text(record, field, record.get(field))


def _text(record: Record, field: str, value: object) -> str:
    answer = value.get("answer") if isinstance(value, dict) else value
    if not isinstance(answer, str):
        raise record.error("no text in `answer`", field)
    return answer


def _with_overall(out: dict[str, Floats]) -> dict[str, Floats]:
    cells = {cell: out.pop(cell) for cell in CELLS if cell in out}
    if not cells:
        return out
    return {"overall": mean_of(list(cells.values())), **cells, **out}


BENCHMARK = RMB()
