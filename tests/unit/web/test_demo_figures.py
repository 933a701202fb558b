"""The demo's figures where something could not be scored: what has no score is left out, never counted as wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from assay import ids
from assay.domain import Message, PreferencePair
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_rm_training.evaluation.pairs import PairEvaluation, ScoredPair, evaluate
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_web.demo.curation import SOURCE, detected_errors, import_file
from assay_web.demo.pipeline import _difference
from assay_web.demo.source import Injected

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
    errors = detected_errors(workspace, Injected(3, frozenset({"flipped", "unscored"})))
    assert (errors.pairs, errors.errors, errors.caught, errors.false_alarms, errors.kept) == (2, 1, 1, 0, 1)


def with_items(base: PairEvaluation, margins: list[float | None]) -> PairEvaluation:
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
    assert _difference(curated, raw) is None  # of two pairs: undetermined
