"""Curation on a real store with the real verifier and a real (tiny) reward model: every decision has its reason."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.browsing.candidates import count_candidates, iter_candidates
from assay.data.snapshots import HashSlice, Selection, create_snapshot, load_pairs
from assay.errors import BadInputError
from assay.models.spec import Calibration
from assay.runs.lineage import lineage
from assay.runs.progress_bar import Advance, silent
from assay.runs.record import start_run
from assay.score import Score, ScoreResult
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.curation.consistency import ConsistencyConfig, ConsistencyReport, check_pool
from assay_pipelines.curation.status import curation_status
from assay_pipelines.curation.verifier import VerifierReport, verify_pool
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig
from assay_pipelines.judging.reward_model import RewardModelJudge as Judge
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem
from assay_serving.verifiers import MaxWords, NoCommas

UNVERIFIED = Selection(("unverified",))
CONSTRAINTS = [MaxWords(3).to_dict(), NoCommas().to_dict()]


def row(number: int, chosen: str, rejected: str, constraints: list[dict[str, object]] | None) -> dict[str, object]:
    return {
        "id": f"row-{number}",
        "source": "noisy",
        "prompt": [{"role": "user", "content": f"Question {number}?"}],
        "chosen": chosen,
        "rejected": rejected,
        "category": "demo",
        "meta": {"constraints": constraints} if constraints else {},
    }


@pytest.fixture
def filled(workspace: Workspace, tmp_path: Path) -> Workspace:
    rows = [
        row(1, "three words here", "one, two, three, four", CONSTRAINTS),  # right
        row(2, "this one is far too long", "short", CONSTRAINTS),  # flipped
        row(3, "both are fine", "this is too", CONSTRAINTS),  # a tie
        row(4, "a, b, c and d too", "x, y, z and more", CONSTRAINTS),  # a tie of failures
        row(5, "no constraints", "none here either", None),
    ] + [row(n, f"answer {n} one", f"another {n} answer", None) for n in range(6, 30)]
    file = tmp_path / "noisy.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    report = run_import(workspace, open_import(workspace, ImportConfig(str(file), format="normalised")))
    assert report.pairs == len(rows)
    return workspace


def decisions(workspace: Workspace) -> dict[str, tuple[str, str | None, str, str]]:
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT o.record_id, d.pool, d.label, d.rule, d.reason
               FROM current_decisions d JOIN origins o USING (comparison_id)"""
        ).fetchall()
    return {record: (pool, label, rule, reason) for record, pool, label, rule, reason in rows}


def test_the_verifier_decides_what_it_can_check(filled: Workspace) -> None:
    report = verify_pool(filled, UNVERIFIED, "run-x")
    assert report == VerifierReport(seen=29, confirmed=1, corrected=1, ties=2, unverifiable=25)
    made = decisions(filled)
    assert set(made) == {"row-1", "row-2", "row-3", "row-4"}
    assert {pool for pool, *_ in made.values()} == {"gold"}
    assert made["row-3"][1] == made["row-4"][1] == "tie"
    assert "source said" in made["row-2"][3]
    assert "max_words" in made["row-2"][3]
    snapshot = create_snapshot(filled, "gold", Selection(("gold",)), "run-x")
    assert (snapshot.items, snapshot.ties) == (4, 2)
    assert {pair.chosen for pair in load_pairs(filled, "gold")} == {"three words here", "short"}


def test_a_corrected_label_does_not_rest_on_the_source_it_contradicts(filled: Workspace) -> None:
    verify_pool(filled, UNVERIFIED, "run-x")
    with filled.store.unit() as db:
        rows = db.execute(
            """SELECT d.position, n.kind, j.answer, d.label FROM decisions d JOIN judgments j USING (comparison_id)
               JOIN annotators n USING (annotator_id) WHERE d.reason LIKE 'source said%'"""
        ).fetchall()
    assert {kind for _, kind, *_ in rows} == {"source", "verifier"}
    assert {answer == label for _, kind, answer, label in rows if kind == "source"} == {False}
    tree = lineage(filled, f"d-{rows[0][0]}", "up", depth=1)
    (rests_on,) = [branch for branch in tree.branches if branch.relation == "rests on"]
    assert ["by verifier" in node.about for node in rests_on.nodes] == [True]


def test_verifying_again_changes_nothing(filled: Workspace) -> None:
    verify_pool(filled, UNVERIFIED, "run-x")
    everything = Selection(("unverified", "gold"))
    before = decisions(filled)
    verify_pool(filled, everything, "run-y")
    with filled.store.unit() as db:
        assert db.execute(
            "SELECT count(*) FROM judgments j JOIN annotators USING (annotator_id) WHERE kind = 'verifier'"
        ).fetchone() == (4,)
    assert decisions(filled) == before  # what the source said stays in the reason


def test_broken_constraints_name_the_comparison(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text(json.dumps(row(1, "a b", "c d", [{"kind": "no_such_kind"}])) + "\n")
    run_import(workspace, open_import(workspace, ImportConfig(str(file), format="normalised")))
    with pytest.raises(BadInputError, match=r"comparison c-[0-9a-f]{32}"):
        verify_pool(workspace, UNVERIFIED, "run-x")


def test_another_column_called_constraints_is_none_of_ours(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "foreign.jsonl"
    file.write_text(
        json.dumps({"prompt": "q", "chosen": "a", "rejected": "b", "constraints": "at most 3 words"}) + "\n"
    )
    run_import(workspace, open_import(workspace, ImportConfig(str(file))))
    assert verify_pool(workspace, UNVERIFIED, "run-x") == VerifierReport(seen=1, unverifiable=1)


def test_pages_cover_the_selection_once(filled: Workspace) -> None:
    seen = [c.comparison_id for page in iter_candidates(filled, UNVERIFIED, page=7) for c in page]
    assert len(seen) == len(set(seen)) == count_candidates(filled, UNVERIFIED) == 29
    halves = [Selection(("unverified",), slice=HashSlice(low, low + 0.5)) for low in (0.0, 0.5)]
    parts = [{c.comparison_id for page in iter_candidates(filled, half) for c in page} for half in halves]
    assert parts[0] | parts[1] == set(seen)
    assert not parts[0] & parts[1]


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))


def check(
    workspace: Workspace,
    judges: Sequence[Judge],
    config: ConsistencyConfig,
    selection: Selection,
    *,
    dry_run: bool = False,
) -> ConsistencyReport:
    with start_run(workspace, "curate-consistency", {}) as run:
        return check_pool(run, judges, config, selection, dry_run=dry_run)


@pytest.mark.slow
def test_consistency_keeps_flips_and_discards_by_the_probabilities(
    filled: Workspace, scorer: TransformersScorer
) -> None:
    margins: dict[str, float] = {}
    for page in iter_candidates(filled, UNVERIFIED):
        for c in page:
            a, b = scorer.score([ScoreItem(c.prompt, c.response_a), ScoreItem(c.prompt, c.response_b)])
            assert isinstance(a, Score)
            assert isinstance(b, Score)
            margins[c.comparison_id] = (a.reward - b.reward) * (1 if c.label == "A" else -1)
    # A random model's margins are tiny: a temperature of their own size spreads the probabilities over 0..1.
    temperature = sorted(map(abs, margins.values()))[len(margins) // 4]
    judge = Judge(scorer, Calibration(temperature, reference=0.0, fitted_on="a test", pairs=1))
    config = ConsistencyConfig(keep_above=0.7, flip_below=0.3)
    expected: dict[str, str] = {}
    for comparison, margin in margins.items():
        p = 1 / (1 + math.exp(-margin / temperature))
        expected[comparison] = "silver" if p >= 0.7 else "recycled" if p <= 0.3 else "discarded"
    assert set(expected.values()) == {"silver", "recycled", "discarded"}

    dry = check(filled, [judge], config, UNVERIFIED, dry_run=True)
    assert not decisions(filled)
    report = check(filled, [judge], config, UNVERIFIED)
    assert report == ConsistencyReport(**{**dry.__dict__, "dry_run": False})
    assert report.seen == report.kept + report.flipped + report.discarded == 29

    with filled.store.unit() as db:
        rows = db.execute(
            """SELECT d.comparison_id, d.pool, d.label, s.label, d.reason
               FROM current_decisions d JOIN source_labels s USING (comparison_id)"""
        ).fetchall()
        scores = db.execute("SELECT count(*), count(reward) FROM scores").fetchone()
        bases = db.execute("SELECT comparison_id, list_distinct([e.relation for e in basis]) FROM decisions").fetchall()
    assert {comparison: pool for comparison, pool, *_ in rows} == expected
    assert all((label != source) == (pool == "recycled") for _, pool, label, source, _ in rows)
    assert all("gives the source's winner p = " in reason for *_, reason in rows)
    assert scores == (58, 58)
    assert {comparison for comparison, _ in bases} == set(expected)
    assert all(set(relations) == {"checked", "counted"} for _, relations in bases)

    again = check(filled, [judge], config, UNVERIFIED)
    assert again.seen == 0  # all of them have left the pool


@pytest.mark.slow
def test_two_models_must_agree(filled: Workspace, scorer: TransformersScorer) -> None:
    believer = Judge(scorer, Calibration(0.02, 0.0, "a test", 1))
    alone = check(filled, [believer], ConsistencyConfig(), UNVERIFIED, dry_run=True)
    both = check(filled, [believer, believer], ConsistencyConfig(), UNVERIFIED, dry_run=True)
    assert alone == both
    unsure = Judge(scorer, Calibration(1e6, 0.0, "a test", 1))  # p is 0.5 but for a hair, whatever the pair
    strict = ConsistencyConfig(keep_above=0.6)
    assert check(filled, [believer, unsure], strict, UNVERIFIED, dry_run=True).kept == 0


def test_a_side_that_cannot_be_scored_is_pending_with_the_reason(
    workspace: Workspace, tmp_path: Path, tiny_reward_model: Path
) -> None:
    file = tmp_path / "long.jsonl"
    file.write_text(json.dumps(row(1, "y" * 5000, "short", None)) + "\n")
    run_import(workspace, open_import(workspace, ImportConfig(str(file), format="normalised")))
    judge = Judge(TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu")))
    report = check(workspace, [judge], ConsistencyConfig(), UNVERIFIED)
    assert (report.unscored, report.kept) == (1, 0)
    pool, label, rule, reason = decisions(workspace)["row-1"]
    assert (pool, label, rule) == ("pending", None, "no_score")
    assert "too_long" in reason
    again = check(workspace, [judge], ConsistencyConfig(), Selection(("pending",)))
    assert (again.unscored, again.unlabelled) == (1, 0)  # its source's label is not lost


class Interrupted:
    """The real engine, which stops at its first call."""

    def __init__(self, scorer: TransformersScorer) -> None:
        self.info, self._scorer, self.calls = scorer.info, scorer, 0

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        self.calls += 1
        if self.calls == 1:
            raise KeyboardInterrupt
        return self._scorer.score(items, on_progress)


@pytest.mark.slow
@pytest.mark.parametrize("dry_run", [True, False])
def test_an_interrupted_pass_counts_each_comparison_once(
    filled: Workspace, tmp_path: Path, scorer: TransformersScorer, dry_run: bool
) -> None:
    tie = tmp_path / "tie.jsonl"
    tie.write_text(json.dumps({"prompt": "Question 99?", "responses": ["this", "that"], "scores": [1, 1]}) + "\n")
    run_import(filled, open_import(filled, ImportConfig(str(tie), format="normalised")))
    expected = check(filled, [Judge(scorer)], ConsistencyConfig(), UNVERIFIED, dry_run=True)
    assert (expected.seen, expected.unlabelled) == (30, 1)
    judge = Judge(Interrupted(scorer))
    with pytest.raises(KeyboardInterrupt):
        check(filled, [judge], ConsistencyConfig(), UNVERIFIED, dry_run=dry_run)
    report = check(filled, [judge], ConsistencyConfig(), UNVERIFIED, dry_run=dry_run)
    assert {**report.__dict__, "dry_run": True} == expected.__dict__


def test_an_interrupted_pass_of_other_thresholds_is_none_of_this_one(
    filled: Workspace, scorer: TransformersScorer
) -> None:
    judge = Judge(Interrupted(scorer))
    with pytest.raises(KeyboardInterrupt):
        check(filled, [judge], ConsistencyConfig(keep_above=0.9), UNVERIFIED, dry_run=True)
    report = check(filled, [judge], ConsistencyConfig(), UNVERIFIED, dry_run=True)
    assert report == check(filled, [Judge(scorer)], ConsistencyConfig(), UNVERIFIED, dry_run=True)
    assert len(list((filled.root / "stages").glob("*/manifest.json"))) == 1  # the other's goes on when it is asked for


class Overtaken:
    """The real engine, but somebody decides one comparison as gold while it scores."""

    def __init__(self, scorer: TransformersScorer, workspace: Workspace, comparison: str) -> None:
        self.info, self._scorer, self._workspace, self._comparison = scorer.info, scorer, workspace, comparison

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        with self._workspace.store.unit() as db:
            insert_decisions(db, [Decision(self._comparison, "gold", "A", "person", "looked at")], None)
        return self._scorer.score(items, on_progress)


def test_a_decision_made_while_the_models_score_stands(filled: Workspace, scorer: TransformersScorer) -> None:
    first = next(iter(iter_candidates(filled, UNVERIFIED)))[0].comparison_id
    report = check(filled, [Judge(Overtaken(scorer, filled, first))], ConsistencyConfig(), UNVERIFIED)
    assert (report.overtaken, report.kept + report.discarded) == (1, 28)
    with filled.store.unit() as db:
        assert db.execute("SELECT pool, rule FROM pools WHERE comparison_id = ?", [first]).fetchall() == [
            ("gold", "person")
        ]


def test_thresholds_out_of_order_are_refused() -> None:
    with pytest.raises(BadInputError, match="flip_below <= keep_above"):
        ConsistencyConfig(keep_above=0.3, flip_below=0.4)


def test_status_counts_every_comparison_once_and_the_sources_agreement(filled: Workspace) -> None:
    verify_pool(filled, UNVERIFIED, "run-x")
    found = curation_status(filled)
    assert found.pools == {"gold": 4, "unverified": 25}
    assert found.rules == {("gold", "verifier"): 4}
    (source,) = found.reliability
    assert (source.kind, source.name, source.compared, source.right) == ("source", "noisy", 2, 1)
