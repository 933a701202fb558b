"""The demo's figures: what has no score is left out, never counted as wrong; sources err as they are said to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from assay import ids
from assay.domain import Message, PreferencePair
from assay.statistics.intervals import Interval
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_policy_training.plugins.prompts.constrained import generate_prompts
from assay_rm_training.evaluation.pairs import PairEvaluation, ScoredPair, evaluate
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_web.demo.config import SOURCES
from assay_web.demo.curation import detected_errors, import_file
from assay_web.demo.pages import _verdict
from assay_web.demo.reward_models import difference, shorter_baseline, true_labels
from assay_web.demo.source import Pair, SourceTruth, write_source

SOURCE = "careful"
ROW = (
    '{"id": "%s", "source": "%s", "prompt": [{"role": "user", "content": "%s?"}], "responses": [], '
    '"label_type": "model", "chosen": "yes", "rejected": "no"}\n'
)


def test_a_pair_without_a_score_is_no_caught_error(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "source.jsonl"
    file.write_text("".join(ROW % (name, SOURCE, name) for name in ("right", "flipped", "unscored")))
    import_file(workspace, file)
    with workspace.store.unit() as db:
        found = dict(db.execute("SELECT record_id, comparison_id FROM origins").fetchall())
        labels = dict(db.execute("SELECT comparison_id, label FROM source_labels").fetchall())
        made = [
            Decision(found["right"], "silver", labels[found["right"]], "rm_consistent", ""),
            Decision(found["flipped"], "discarded", None, "rm_inconsistent", ""),
            Decision(found["unscored"], "pending", None, "no_score", ""),
        ]
        insert_decisions(db, made, None)
    truth = SourceTruth(dict.fromkeys(("right", "flipped", "unscored"), SOURCE), frozenset({"flipped", "unscored"}))
    errors = detected_errors(workspace, truth)
    assert (errors.pairs, errors.errors, errors.caught, errors.false_alarms, errors.kept) == (2, 1, 1, 0, 1)


def with_items(base: PairEvaluation, margins: Sequence[float | None]) -> PairEvaluation:
    items = [
        ScoredPair(f"c-{n}", f"p-{n}", "", "", m, None if m is None else 0.0, False, None if m is not None else "x")
        for n, m in enumerate(margins)
    ]
    return replace(base, items=tuple(items))


def test_the_difference_of_two_models_is_over_pairs_that_both_scored(tiny_reward_model: Path) -> None:
    prompt = (Message("user", "q"),)
    pair = PreferencePair(prompt, "a", "b", comparison_id=ids.prompt_id(prompt))
    base = evaluate(TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu")), [pair])
    raw = with_items(base, [1.0, 1.0, 1.0, None])
    curated = with_items(base, [1.0, 1.0, None, 1.0])
    change = difference(curated, raw)
    assert change is not None
    assert (change.value, change.pairs, change.interval) == (0.0, 2, None)  # of two prompts: undetermined
    more = [-1.0] * 8 + [1.0] * 4
    change = difference(with_items(base, [1.0] * 12), with_items(base, more))
    assert change is not None
    assert change.value == 8 / 12
    assert change.interval is not None
    assert change.interval.low > 0
    assert difference(with_items(base, [None]), with_items(base, [1.0])) is None


def pairs_of(count: int) -> list[Pair]:
    """The better response is the longer one in every other pair."""
    prompts = generate_prompts(count, 3, kinds=("no_commas",), constraints_per_prompt=(1,))
    texts = [("short", "a longer, worse one") if n % 2 else ("a longer and better one", "a, b") for n in range(count)]
    return [Pair(f"p-{n}", prompt, *text) for n, (prompt, text) in enumerate(zip(prompts, texts, strict=True))]


def test_the_sources_are_of_the_worth_that_the_demo_states(tmp_path: Path) -> None:
    pairs = pairs_of(1200)
    truth = write_source(tmp_path / "labels.jsonl", pairs, SOURCES, seed=3)
    rows = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines() if line.endswith("}")]
    labels = {row["id"]: row for row in rows}
    for source in SOURCES:
        wrong, count = truth.wrong_of(source.name)
        expected = source.longer * 0.5 + (1 - source.longer) * source.wrong  # half of the longer ones are worse
        assert abs(wrong / count - expected) < 0.06
        assert abs(count / len(pairs) - source.share) < 0.06
    longer = 0
    for pair in pairs:
        row = labels[pair.record_id]
        assert row["source"] == truth.source[pair.record_id]
        assert (row["chosen"] == pair.worse) == (pair.record_id in truth.wrong)
        longer += row["source"] == "longer-wins" and len(row["chosen"]) > len(row["rejected"])
    assert longer / truth.wrong_of("longer-wins")[1] > 0.9


def test_the_oracle_has_the_right_label_of_every_pair() -> None:
    pairs = pairs_of(6)
    given = [
        PreferencePair(pair.prompt.prompt, *((pair.better, pair.worse) if n % 3 else (pair.worse, pair.better)))
        for n, pair in enumerate(pairs)
    ]
    right = true_labels(given, [pair.prompt for pair in pairs])
    assert [pair.chosen for pair in right] == [pair.better for pair in pairs]
    assert {pair.prompt for pair in right} == {pair.prompt for pair in given}


def test_choosing_the_shorter_response_is_no_judgement_where_both_are_as_long() -> None:
    prompt = (Message("user", "q"),)
    sides = [("no", "longer"), ("no", "yes"), ("longer", "no"), ("ab", "cd")]
    assert shorter_baseline([PreferencePair(prompt, chosen, rejected) for chosen, rejected in sides]) == 0.5


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        (Interval(0.01, 0.2), "Curation raised the accuracy by +10.0 points [+1.0 to +20.0]"),
        (Interval(-0.3, -0.1), "Curation lowered the accuracy"),
        (Interval(-0.01, 0.2), "within the noise of this run"),
        (None, "within the noise of this run"),
    ],
)
def test_the_report_concludes_only_what_the_interval_supports(interval: Interval | None, said: str) -> None:
    assert said in _verdict("Curation", "accuracy", 0.1, interval)
