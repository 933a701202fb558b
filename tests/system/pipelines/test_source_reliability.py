"""What sources are worth on gold, and what the passes make of it: weights, reversals, drops, new labels, refusals."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.data.snapshots import Selection, create_snapshot, load_pairs
from assay.domain import Answer, Comparison, Message, PreferencePair
from assay.errors import BadInputError
from assay.models.spec import Calibration
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreResult
from assay.statistics.intervals import beta_posterior
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.curation.loop import relabelling, source_pass
from assay_pipelines.curation.loop.choosing import choose_for_judges, posteriors
from assay_pipelines.curation.loop.config import Stage2Config
from assay_pipelines.curation.loop.labelling import MODEL, silver_decisions, voter_weights
from assay_pipelines.curation.loop.pass_config import RelabelConfig, SourcePassConfig
from assay_pipelines.curation.loop.relabelling import run_relabelling
from assay_pipelines.curation.loop.reward_models import LoopModel
from assay_pipelines.curation.loop.source_pass import run_source_pass
from assay_pipelines.curation.loop.stage2 import Stage2Parts, run_stage2
from assay_pipelines.curation.reliability.estimates import from_answers, reliabilities
from assay_pipelines.curation.reliability.label_quality import FOLDS, LabelQuality, Outcome, fold_of, label_quality
from assay_pipelines.curation.status import curation_status
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig
from assay_pipelines.judging.simulated import SimulatedConfig, SimulatedJudge
from assay_serving.scorer import ModelInfo, ScoreItem

POOL = Selection(("unverified",))
#: Source -> chance that its label is right.
WORTH = {"good": 0.95, "noise": 0.5, "liar": 0.1}
ROWS, GOLD = 120, 40  # of each source


class TruthScorer:
    """Rewards the better response of most pairs: `right` is its share."""

    def __init__(self, right: float = 1.0, name: str = "truth") -> None:
        self._right = right
        self.info = ModelInfo(
            name=name,
            version=name,
            kind="scalar",
            template_hash="t",
            max_length=64,
            calibrated=False,
            parity="unchecked",
            dtype="float32",
            device="cpu",
        )

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        return [
            Score(
                self._reward(item), model=self.info.name, version=self.info.version, template_hash="t", tokens=1,
                truncated=False,
            )
            for item in items
        ]  # fmt: skip

    def _reward(self, item: ScoreItem) -> float:
        number = int(str(item.prompt[-1].content).split()[-1])
        better = "better" in item.response
        return 2.0 * (better == (random.Random(number).random() < self._right))


def model(right: float = 1.0, name: str = "truth") -> LoopModel:
    return LoopModel(TruthScorer(right, name), Calibration(1.0, 0.0, fitted_on="nothing", pairs=0))


@pytest.fixture
def truth(workspace: Workspace, tmp_path: Path) -> dict[str, Answer]:
    """Three sources of different worth; gold on part of each. Returns the truth by comparison id."""
    rng = random.Random(3)
    rows: list[dict[str, object]] = []
    answers: dict[str, Answer] = {}
    gold: list[str] = []
    for source, worth in WORTH.items():
        for _ in range(ROWS):
            number = len(rows)
            prompt = f"Question {number}"
            better, worse = f"better {number}", f"worse {number}"
            sides = (better, worse) if rng.random() < worth else (worse, better)
            rows.append(
                {
                    "id": f"r{number}",
                    "source": source,
                    "prompt": [{"role": "user", "content": prompt}],
                    "chosen": sides[0],
                    "rejected": sides[1],
                    "category": "even" if number % 2 else "odd",
                }
            )
            comparison, swapped = Comparison.of((Message("user", prompt),), better, worse)
            answers[comparison.id] = "B" if swapped else "A"
            if number % ROWS < GOLD:
                gold.append(comparison.id)
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_import(workspace, open_import(workspace, ImportConfig(str(file), format="normalised")))
    with workspace.store.unit() as db:
        insert_decisions(db, [Decision(c, "gold", answers[c], "people", "verified") for c in gold], None)  # type: ignore[arg-type]
    return answers


def decided(workspace: Workspace) -> dict[str, tuple[str, str | None, str, float | None, float | None, str]]:
    """comparison -> (pool, label, rule, weight, preference, source) of what is not gold by people."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT comparison_id, pool, label, rule, weight, preference, source
               FROM current_decisions JOIN origins USING (comparison_id) WHERE rule <> 'people'"""
        ).fetchall()
    return {row[0]: tuple(row[1:]) for row in rows}


def right(made: Mapping[str, tuple[object, ...]], truth: Mapping[str, Answer], source: str) -> float:
    labels = [(c, row[1]) for c, row in made.items() if row[5] == source]
    return sum(truth[c] == label for c, label in labels) / len(labels)


def test_a_posterior_of_few_answers_is_wide_and_the_prior_shrinks_a_category() -> None:
    few, many = beta_posterior(3, 3), beta_posterior(300, 300)
    assert few.mean == pytest.approx(0.8)  # Laplace: (3 + 1) / (3 + 2)
    assert few.interval.low == pytest.approx(0.3976, abs=1e-4)  # 0.025 ** (1/4): the quantile of Beta(4, 1)
    assert many.interval.low > 0.98
    answers = [("s", "source", "s", "easy", True)] * 40 + [("s", "source", "s", "hard", n < 2) for n in range(10)]
    worth = from_answers(answers)
    overall, hard = worth.of("s"), worth.of("s", "hard")
    assert overall is not None
    assert hard is not None
    assert 0.2 < hard.mean < overall.mean
    assert hard.mean == pytest.approx((2 + 20 * overall.mean) / 30)
    assert worth.of("s", "never seen") is overall
    with pytest.raises(BadInputError):
        beta_posterior(4, 3)


def test_gold_tells_a_good_source_from_noise_and_from_a_liar(workspace: Workspace, truth: dict[str, Answer]) -> None:
    with workspace.store.unit() as db:
        worth = {r.name: r for r in reliabilities(db).overall.values()}
    assert {name: r.worth for name, r in worth.items()} == {"good": "sound", "noise": "chance", "liar": "adversarial"}
    assert worth["noise"].cautious == 0.5
    assert worth["liar"].cautious == worth["liar"].interval.high < 0.5
    assert all(r.compared == GOLD for r in worth.values())
    shown = curation_status(workspace).to_dict()["reliability"]
    assert {"good", "noise", "liar"} == {r["name"] for r in shown if r["category"] is None}


def test_weights_keep_the_good_turn_the_liar_round_and_discard_noise(
    workspace: Workspace, truth: dict[str, Answer]
) -> None:
    report = run_source_pass(workspace, SourcePassConfig(), POOL, "run")
    left = ROWS - GOLD
    assert (report.kept, report.reversed, report.discarded, report.unmeasured) == (left, left, left, 0)
    made = decided(workspace)
    assert {(row[5], row[0], row[2]) for row in made.values()} == {
        ("good", "silver", "source_reliable"),
        ("liar", "silver", "source_reversed"),
        ("noise", "discarded", "source_at_chance"),
    }
    assert right(made, truth, "liar") > 0.8
    create_snapshot(workspace, "train", Selection(("gold", "silver")), None)
    weights = {pair.comparison_id: pair.weight for pair in load_pairs(workspace, "train")}
    assert {weights[c] for c in weights if c not in made} == {1.0}  # gold
    assert all(0.3 < weights[c] < 1 for c in weights if c in made)
    assert report.quality["after"] > report.quality["before"]


@pytest.mark.slow
def test_what_comes_or_is_decided_during_the_pass_displaces_nothing(
    workspace: Workspace, truth: dict[str, Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"prompt": f"Late {n}", "chosen": "a", "rejected": "b", "source": "late"} for n in range(100)]
    file = tmp_path / "late.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    overtaken: list[str] = []

    def meanwhile(workspace: Workspace, ids: list[str], *others: Any) -> Any:
        answered = posteriors(workspace, ids, *others)
        with workspace.store.unit() as db:
            if (
                not overtaken
                and not db.execute("SELECT 1 FROM current_decisions WHERE comparison_id = ?", [ids[0]]).fetchall()
            ):
                overtaken.append(ids[0])
                insert_decisions(db, [Decision(ids[0], "gold", "A", "people", "looked at")], None)
        if overtaken:
            run_import(workspace, open_import(workspace, ImportConfig(str(file), format="trl")))
        return answered

    monkeypatch.setattr(source_pass, "posteriors", meanwhile)
    monkeypatch.setattr(source_pass, "PAGE", 40)
    report = run_source_pass(workspace, SourcePassConfig(), POOL, "run")
    assert report.overtaken == 1
    own = len(WORTH) * (ROWS - GOLD)
    assert len([c for c in decided(workspace) if c in truth]) == own - 1
    assert report.kept + report.reversed + report.discarded == own - 1


def test_soft_labels_reach_the_training_pairs(workspace: Workspace, truth: dict[str, Answer]) -> None:
    report = run_source_pass(workspace, SourcePassConfig(use="soft"), POOL, "run")
    assert report.quality["used"] < report.quality["kept"] + report.quality["changed"]  # each counts as its 2p - 1
    snapshot = create_snapshot(workspace, "train", Selection(("silver",)), None)
    pairs = load_pairs(workspace, "train")
    assert {pair.weight for pair in pairs} == {1.0}
    assert all(0.6 < pair.preference < 1 for pair in pairs)
    assert create_snapshot(workspace, "train", Selection(("silver",)), None).id == snapshot.id


def test_dropping_takes_whole_labels_of_good_sources_alone(workspace: Workspace, truth: dict[str, Answer]) -> None:
    report = run_source_pass(workspace, SourcePassConfig(use="drop"), POOL, "run")
    assert (report.kept, report.discarded) == (ROWS - GOLD, 2 * (ROWS - GOLD))
    assert {row[3:5] for row in decided(workspace).values()} == {(None, None)}


@pytest.mark.slow
def test_judges_are_spent_where_sources_tell_nothing(workspace: Workspace, truth: dict[str, Answer]) -> None:
    judge = SimulatedJudge(truth, SimulatedConfig(accuracy=0.9))
    report = run_source_pass(workspace, SourcePassConfig(judged=50), POOL, "run", judges=[judge])
    assert (report.judged, report.measured_on) == (50, 3 * GOLD)
    made = decided(workspace)
    rescued = {c: row for c, row in made.items() if row[5] == "noise" and row[0] == "silver"}
    assert len(rescued) == 50
    assert right(rescued, truth, "noise") > 0.8
    assert {row[0] for row in made.values() if row[5] == "noise" and row[0] != "silver"} == {"discarded"}


@pytest.mark.slow
def test_judges_are_spent_where_a_model_contradicts_the_source(workspace: Workspace, truth: dict[str, Answer]) -> None:
    judge = SimulatedJudge(truth, SimulatedConfig(accuracy=0.9))
    config = SourcePassConfig(judged=30, spend="contradiction")
    with pytest.raises(BadInputError, match="model"):
        run_source_pass(workspace, config, POOL, "run", judges=[judge])
    run_source_pass(workspace, config, POOL, "run", judges=[judge], refit=lambda pairs: model())
    with workspace.store.unit() as db:
        asked = db.execute(
            """SELECT j.comparison_id, s.label FROM judgments j JOIN annotators n USING (annotator_id)
               JOIN source_labels s USING (comparison_id) LEFT JOIN current_decisions d USING (comparison_id)
               WHERE n.kind = 'simulated' AND d.rule <> 'people'"""
        ).fetchall()
    assert len({c for c, _ in asked}) == 30
    assert all(truth[c] != label for c, label in asked)  # the model knows the truth


@pytest.mark.slow
def test_a_model_decides_where_sources_tell_nothing_and_never_reads_what_it_was_trained_on(
    workspace: Workspace, truth: dict[str, Answer]
) -> None:
    fitted: list[dict[str, float]] = []

    def refit(pairs: Sequence[PreferencePair]) -> LoopModel:
        fitted.append({pair.comparison_id: pair.weight for pair in pairs})
        return model(0.8)

    report = run_source_pass(workspace, SourcePassConfig(), POOL, "run", refit=refit, model_version="v1")
    made = decided(workspace)
    assert report.read_by_model
    assert (report.discarded, report.kept + report.reversed) == (0, 3 * (ROWS - GOLD))
    assert right(made, truth, "noise") > 0.7
    noise = [row[3] or 0.0 for row in made.values() if row[5] == "noise"]
    good = [row[3] or 0.0 for row in made.values() if row[5] == "good"]
    assert max(noise) < max(good)
    assert len(fitted) == FOLDS
    everything = set.union(*map(set, fitted))
    assert everything == {c for c in truth if c not in made or made[c][5] != "noise"}
    for fold, weights in enumerate(fitted):
        assert weights.keys() == {c for c in everything if fold_of(c) != fold}
        assert {weights[c] for c in weights if c not in made} == {1.0}
    with workspace.store.unit() as db:
        ((reason, basis),) = db.execute(
            "SELECT reason, basis FROM current_decisions WHERE rule <> 'people' LIMIT 1"
        ).fetchall()
    assert "the model gives A p = " in reason
    assert (basis[-1]["relation"], basis[-1]["ref"]) == ("scored by", "v1")


@pytest.mark.slow
def test_a_model_no_better_than_chance_is_not_counted(workspace: Workspace, truth: dict[str, Answer]) -> None:
    report = run_source_pass(workspace, SourcePassConfig(), POOL, "run", refit=lambda pairs: model(0.2))
    assert not report.read_by_model
    assert report.discarded == ROWS - GOLD


def test_judges_are_spent_where_sources_and_model_together_are_least_sure(
    workspace: Workspace, truth: dict[str, Answer]
) -> None:
    with workspace.store.unit() as db:
        worth = reliabilities(db)
    chosen = choose_for_judges(workspace, POOL, 40, "uncertain", worth, model=model(0.8))
    alone = choose_for_judges(workspace, POOL, 40, "uncertain", worth)
    open_after = {
        pair.comparison_id: abs(pair.log_odds) for pair in posteriors(workspace, list(truth), worth, (), model(0.8))
    }
    with workspace.store.unit() as db:
        pool = {row[0] for row in db.execute("SELECT comparison_id FROM pools WHERE pool = 'unverified'").fetchall()}
    least = sorted(open_after[c] for c in pool)[:40]
    assert sorted(open_after[c.comparison_id] for c in chosen) == pytest.approx(least)
    assert sorted(open_after[c.comparison_id] for c in alone) != pytest.approx(least)
    assert all(0.5 <= target.why["posterior"] < 1 for target in chosen)


@pytest.mark.slow
def test_a_source_that_never_met_gold_is_left_alone(
    workspace: Workspace, truth: dict[str, Answer], tmp_path: Path
) -> None:
    row = {"source": "new", "prompt": [{"role": "user", "content": "Question 9999"}], "chosen": "x", "rejected": "y"}
    file = tmp_path / "new.jsonl"
    file.write_text(json.dumps(row) + "\n")
    run_import(workspace, open_import(workspace, ImportConfig(str(file), format="normalised")))
    report = run_source_pass(workspace, SourcePassConfig(), POOL, "run")
    assert report.unmeasured == 1
    assert "new" not in {made[5] for made in decided(workspace).values()}


def test_without_gold_the_pass_says_what_to_do(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="verify some first"):
        run_source_pass(workspace, SourcePassConfig(), POOL, "run")


@pytest.mark.slow
def test_a_dry_run_decides_nothing(workspace: Workspace, truth: dict[str, Answer]) -> None:
    report = run_source_pass(workspace, SourcePassConfig(), POOL, "run", dry_run=True)
    assert report.kept == ROWS - GOLD
    assert not decided(workspace)


def test_relabelling_is_marked_and_rests_on_the_model(workspace: Workspace, truth: dict[str, Answer]) -> None:
    with pytest.raises(BadInputError, match="assay curate sources"):
        run_relabelling(workspace, RelabelConfig(), model(), "run")
    run_source_pass(workspace, SourcePassConfig(), POOL, "run")
    report = run_relabelling(workspace, RelabelConfig(), model(0.9), "run")
    made = {c: row for c, row in decided(workspace).items() if row[5] == "noise"}
    assert (report.relabelled, report.seen) == (ROWS - GOLD, ROWS - GOLD)
    assert {row[2] for row in made.values()} == {"relabelled"}
    assert right(made, truth, "noise") > 0.8
    assert 0 < report.against < report.relabelled
    with workspace.store.unit() as db:
        reason, basis = db.execute("SELECT reason, basis FROM current_decisions WHERE rule = 'relabelled'").fetchall()[
            0
        ]
    assert "no better than chance on gold" in reason
    assert {entry["relation"] for entry in basis} == {"scored by", "checked"}


@pytest.mark.slow
def test_what_is_decided_while_relabelling_stands(
    workspace: Workspace, truth: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first page is scored, people decide one of its comparisons and one of the next page."""
    monkeypatch.setattr(relabelling, "PAGE", 50)
    run_source_pass(workspace, SourcePassConfig(), POOL, "run")
    noise = sorted(c for c, row in decided(workspace).items() if row[5] == "noise")
    by_people, first = [noise[0], noise[-1]], list(truth).index(noise[0])
    assert 50 < len(noise) <= 100

    class SlowScorer(TruthScorer):
        def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
            if any(item.prompt[-1].content == f"Question {first}" for item in items):
                with workspace.store.unit() as db:
                    insert_decisions(db, [Decision(c, "gold", "tie", "by hand", "seen") for c in by_people], None)
            return super().score(items, on_progress)

    calibration = Calibration(1.0, 0.0, fitted_on="nothing", pairs=0)
    report = run_relabelling(workspace, RelabelConfig(), LoopModel(SlowScorer(0.9), calibration), "run")
    rules = [decided(workspace)[c][2] for c in noise]
    assert {decided(workspace)[c][2] for c in by_people} == {"by hand"}
    assert (report.seen, report.overtaken) == (len(noise), 2)
    assert report.relabelled == rules.count("relabelled") == len(noise) - 2


@pytest.mark.slow
def test_relabelling_by_a_model_worse_than_the_source_is_refused(
    workspace: Workspace, truth: dict[str, Answer]
) -> None:
    run_source_pass(workspace, SourcePassConfig(), POOL, "run")
    with pytest.raises(BadInputError, match=r"relabelling would make labels worse: on 40 gold pairs.*--force"):
        run_relabelling(workspace, RelabelConfig(), model(0.2), "run")
    assert run_relabelling(workspace, RelabelConfig(), model(0.2), "run", force=True).relabelled == ROWS - GOLD


@pytest.mark.slow
def test_stage_2_refuses_flips_that_make_labels_worse(workspace: Workspace, truth: dict[str, Answer]) -> None:
    good = Selection(("unverified",), ("good",))
    wrong = Stage2Parts(workspace, model(0.3, "best"), model(0.3, "gold"))
    flips = Stage2Config(recycle_below=0.5)
    with pytest.raises(
        BadInputError,
        match=r"stage 2 would make labels worse: on 120 gold pairs.*changed \(.* of their weight\); --force",
    ):
        run_stage2(flips, wrong, good, "run")
    assert not decided(workspace)
    assert run_stage2(flips, wrong, good, "run", dry_run=True).quality["changed_right"] < 60
    assert run_stage2(flips, wrong, good, "run", force=True).recycled > 0
    fine = Stage2Parts(workspace, model(), model())
    report = run_stage2(flips, fine, Selection(("unverified",), ("liar",)), "run")
    assert report.quality["after"] == 1.0
    assert report.recycled > 0


def test_a_label_that_hardly_counts_does_hardly_any_harm() -> None:

    def quality(weight_of_wrong: float) -> LabelQuality:
        outcomes: list[Outcome] = [("A", "A", "A", 0.8)] * 70
        outcomes += [("A", "B", "B", weight_of_wrong)] * 50
        outcomes += [("A", "A", None, 0.0)] * 10
        return label_quality(outcomes)

    light = quality(0.02)
    assert light.after == pytest.approx(56 / 57)
    assert not light.worse
    even = quality(0.8)
    assert even.before == pytest.approx(80 / 130)
    assert even.worse


def test_changed_labels_count_by_their_weight() -> None:
    outcomes: list[Outcome] = [("A", "A", "A", 1.0)] * 10
    outcomes += [("A", "B", "A", 0.9)] * 4
    outcomes += [("A", "A", "B", 0.02)] * 8
    light = label_quality(outcomes)
    assert (light.changed, light.changed_right) == (12, 4)
    assert light.turned == pytest.approx(3.76)
    assert not light.worse
    assert label_quality([*outcomes[:14], *[("A", "A", "B", 0.9)] * 8]).worse  # type: ignore[list-item]


@pytest.mark.slow
def test_stage_2_scores_gold_by_models_that_have_not_seen_it(workspace: Workspace, truth: dict[str, Answer]) -> None:
    trained_on: list[set[str]] = []

    def refit(pairs: Sequence[object]) -> LoopModel:
        trained_on.append({pair.comparison_id for pair in pairs})  # type: ignore[attr-defined]
        return model(0.3)

    parts = Stage2Parts(workspace, model(), model(), refit_best=refit, refit_gold=refit)
    with pytest.raises(BadInputError, match="would make labels worse"):
        run_stage2(Stage2Config(recycle_below=0.5), parts, POOL, "run")
    everything = set.union(*trained_on)
    assert len(everything) == 3 * GOLD
    assert all(0 < len(everything - fold) < len(everything) / 2 for fold in trained_on)


@pytest.mark.slow
def test_stage_2_weighs_what_it_keeps_by_its_source(workspace: Workspace, truth: dict[str, Answer]) -> None:
    parts = Stage2Parts(workspace, model(), model())
    run_stage2(Stage2Config(), parts, POOL, "run")
    made = decided(workspace)
    kept = {row[5]: row for row in made.values() if row[0] == "silver"}
    assert set(kept) == {"good", "liar"}
    assert 0.5 < kept["good"][3] < 1  # type: ignore[operator]
    assert {row[2] for row in made.values() if row[5] == "noise" and row[0] == "discarded"} >= {"source_at_chance"}


def test_stage_1_counts_each_source_for_itself(workspace: Workspace, truth: dict[str, Answer]) -> None:
    from assay.browsing.candidates import candidates_by_id

    with workspace.store.unit() as db:
        pool = [row[0] for row in db.execute("SELECT comparison_id FROM pools WHERE pool = 'unverified'").fetchall()]
        names = dict(db.execute("SELECT annotator_id, name FROM annotators").fetchall())
    judge = SimulatedJudge(truth, SimulatedConfig(accuracy=0.9))
    weights = voter_weights(workspace, [judge], model=(89, 98))
    assert weights.pop(MODEL) == pytest.approx(math.log(9))
    assert len(weights) == len(WORTH)  # the judge has met no gold: it counts one
    by_name = {names[who]: weight for who, weight in weights.items()}
    assert by_name["good"] > 1.5
    assert by_name["liar"] < -1.0
    assert 0 <= by_name["noise"] < 0.8
    assert voter_weights(workspace, [], model=(40, 98))[MODEL] == 0  # no better than chance
    made = silver_decisions(
        workspace, [], candidates_by_id(workspace, pool), source_votes=True, model_p={}, iteration=1, weights=weights
    )
    turned = [d for d in made if "liar" in d.reason]
    assert turned
    assert all("counted for the other side" in d.reason for d in turned)
    assert sum(truth[d.comparison_id] == d.label for d in turned) > 0.8 * len(turned)


@pytest.mark.slow
def test_voters_by_dawid_and_skene_learn_who_lies(workspace: Workspace, truth: dict[str, Answer]) -> None:
    pytest.importorskip("crowdkit", reason="needs the extra `voters`")
    from assay.browsing.candidates import candidates_by_id
    from assay_pipelines.judging.asking import ask
    from assay_pipelines.llm.questions import load_questions

    judges = [
        SimulatedJudge(truth, SimulatedConfig(accuracy=accuracy, seed=seed), name=f"judge-{seed}")
        for seed, accuracy in enumerate((0.9, 0.6, 0.15))
    ]
    for judge in judges:
        ask(workspace, judge, load_questions(workspace, list(truth)), None)
    with workspace.store.unit() as db:
        pool = [row[0] for row in db.execute("SELECT comparison_id FROM pools WHERE pool = 'unverified'").fetchall()]
    candidates = candidates_by_id(workspace, pool)

    def share(**settings: object) -> float:
        made = silver_decisions(workspace, judges, candidates, source_votes=False, model_p={}, iteration=1, **settings)  # type: ignore[arg-type]
        return sum(truth[d.comparison_id] == d.label for d in made) / len(made)

    assert share(voter_model="dawid-skene") > 0.87
    assert share() < 0.8  # by equal votes
