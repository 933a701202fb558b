"""Reward-model benchmarks as comparisons, the subset as category: RewardBench 1 and 2, RM-Bench, JudgeBench.

RewardBench 2 gives lists: every correct response is better than every wrong one, and in the subset Ties the correct
ones are equally good (ids `ref:N` and `tied:N`), so their pairs are ties. RM-Bench gives three responses per side
of increasing style (concise, detailed, detailed with Markdown), which makes nine pairs; each pair records its styles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

from assay.data.conversation import Turns, prompt_turns, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import leftover_meta, list_of, optional_text
from assay_pipelines.importers.formats.trl import parse_pair
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import PairRow, Row

BENCHMARK = "a benchmark: do not train on it"
STYLES = ("concise", "detailed", "markdown")
_JUDGE_BENCH_COLUMNS = frozenset({"question", "response_A", "response_B", "label", "pair_id", "source"})
_JUDGE_BENCH = {"A>B": "first", "B>A": "second"}


class RewardBenchLayout(RecordLayout):
    """RewardBench."""

    source, note = "RewardBench", BENCHMARK

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"prompt", "chosen", "rejected", "chosen_model", "rejected_model", "subset"} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        return parse_pair({**{k: v for k, v in record.items() if k != "subset"}, "category": record.get("subset")})


class RewardBench2Layout(RecordLayout):
    """RewardBench 2."""

    source, note = "RewardBench-2", BENCHMARK

    def matches(self, record: Mapping[str, Any]) -> bool:
        return _lists(record) and bool({"num_correct", "num_incorrect", "total_completions"} & record.keys())

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        turns = prompt_turns(record.get("prompt"))
        chosen, rejected = (list_of(record.get(side), side) for side in ("chosen", "rejected"))
        id_, subset = optional_text(record, "id"), optional_text(record, "subset")
        models = record.get("models")
        model_names: Sequence[Any] = (
            models if isinstance(models, list) and len(models) == len(chosen) + len(rejected) else ()
        )
        responses = [*chosen, *rejected]
        pairs = [(i, len(chosen) + j, "first") for i, j in product(range(len(chosen)), range(len(rejected)))]
        if str(subset).strip().lower() == "ties":
            pairs += [(i, j, "both_good") for i, j in combinations(range(len(chosen)), 2)]
        out: list[Row | RowError] = []
        for i, j, label in pairs:
            meta: dict[str, Any] = {
                "responses": [i, j],
                **({"models": [model_names[i], model_names[j]]} if model_names else {}),
            }
            out.append(_pair(turns, responses[i], responses[j], label, id_, subset, meta))
        return out


class RmBenchLayout(RecordLayout):
    """RM-Bench, nine pairs per row."""

    source, note = "RM-Bench", BENCHMARK

    def matches(self, record: Mapping[str, Any]) -> bool:
        return _lists(record) and len(record["chosen"]) == len(record["rejected"]) == len(STYLES)

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        turns = prompt_turns(record.get("prompt"))
        chosen, rejected = (list_of(record.get(side), side) for side in ("chosen", "rejected"))
        for side, texts in (("chosen", chosen), ("rejected", rejected)):
            if len(texts) != len(STYLES):
                raise RowError(f"not {len(STYLES)} responses, one a style", field=side)
        id_ = optional_text(record, "id")
        category = optional_text(record, "domain") or optional_text(record, "subset")
        return [
            _pair(turns, chosen[i], rejected[j], "first", id_, category, {"styles": [STYLES[i], STYLES[j]]})
            for i, j in product(range(len(STYLES)), repeat=2)
        ]


class JudgeBenchLayout(RecordLayout):
    """JudgeBench."""

    source, note = "JudgeBench", BENCHMARK

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"question", "response_A", "response_B", "label"} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        label = _JUDGE_BENCH.get(str(record.get("label")).replace(" ", ""))
        if label is None:
            raise RowError("not A>B or B>A", field="label")
        pair = PairRow(
            prompt_turns(record.get("question"), "question"),
            text_of(record.get("response_A"), "response_A"),
            text_of(record.get("response_B"), "response_B"),
            label,
            record_id=optional_text(record, "pair_id"),
            category=optional_text(record, "source"),
            meta=leftover_meta(record, _JUDGE_BENCH_COLUMNS),
        )
        return [pair.check(("response_A", "response_B"))]


def _lists(record: Mapping[str, Any]) -> bool:
    return "prompt" in record and all(
        isinstance(record.get(side), list) and record[side] and all(isinstance(text, str) for text in record[side])
        for side in ("chosen", "rejected")
    )


def _pair(
    turns: Turns,
    first: object,
    second: object,
    label: str,
    record_id: str | None,
    category: str | None,
    meta: dict[str, Any],
) -> PairRow | RowError:
    try:
        texts = text_of(first, "chosen"), text_of(second, "rejected")
        return PairRow(turns, *texts, label, record_id=record_id, category=category, meta=meta).check()
    except RowError as error:
        error.detail = str(meta)
        return error
