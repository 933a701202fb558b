"""The curation loop on the tiny model: real store, real features, simulated people and judges of stated accuracy."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from empty_workspaces import new_workspace

from assay.browsing import candidates
from assay.data.pair_attributes import PairAttributes, store_attributes
from assay.data.snapshots import HashSlice, Selection
from assay.domain import Answer, response_text
from assay.errors import BadInputError
from assay.runs.lineage import lineage
from assay.runs.record import start_run
from assay.score import Score
from assay.store.intake import pair_schema, store_pairs
from assay.store.records import Decision, insert_annotator, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.curation.loop.config import PeopleConfig, Stage1Config, Stage1ModelConfig, Stage2Config
from assay_pipelines.curation.loop.parts import Parts
from assay_pipelines.curation.loop.people import JudgedPeople
from assay_pipelines.curation.loop.reward_models import UNCALIBRATED, LoopModel, ProbeModels, open_models
from assay_pipelines.curation.loop.stage1 import Stage1Report, run_stage1
from assay_pipelines.curation.loop.stage2 import Stage2Parts, run_stage2
from assay_pipelines.curation.reliability.estimates import reliabilities
from assay_pipelines.embedding.hashing import HashingEncoder
from assay_pipelines.judging.fake_endpoint import fake_endpoint, longer_wins
from assay_pipelines.judging.judge import JudgeFailure, OnResult
from assay_pipelines.judging.openai_compatible import LlmJudge, LlmJudgeConfig
from assay_pipelines.judging.simulated import SimulatedConfig, SimulatedJudge
from assay_pipelines.llm.budget import Budget, Spending
from assay_pipelines.llm.configuration import EndpointConfig
from assay_pipelines.llm.questions import Question
from assay_serving.scorer import ModelInfo, ScoreItem

PAIRS = 60
TOPICS = ("rivers", "metals", "birds")


def loop_steps(workspace: Workspace, name: str) -> list[tuple[int, str, dict[str, Any]]]:
    """(iteration, step, outcome) of a loop in the order they happened."""
    with workspace.store.unit() as db:
        rows = db.execute(
            "SELECT iteration, step, outcome FROM loop_steps WHERE loop = ? ORDER BY created_at, iteration", [name]
        ).fetchall()
    return [(iteration, step, json.loads(outcome)) for iteration, step, outcome in rows]


def pool(workspace: Workspace) -> dict[str, Answer]:
    """PAIRS comparisons whose source is wrong on every fifth; returns the truth by comparison id."""
    rows = []
    for n in range(PAIRS):
        topic = TOPICS[n % 3]
        good, bad = f"A careful and complete answer about {topic}, number {n}.", f"dunno {n}"
        rows.append(
            {
                **dict.fromkeys(pair_schema().names),
                "row": n + 1,
                "messages": [{"role": "user", "content": f"Tell me about {topic}, part {n}."}],
                "first": good,
                "second": bad,
                "label": "second" if n % 5 == 0 else "first",
                "source": "made-up",
                "record_id": str(n),
                "category": topic,
            }
        )
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), None)
        found = db.execute(
            """SELECT comparison_id, if(a.content LIKE 'A careful%', 'A', 'B')
               FROM comparisons c JOIN responses a ON a.response_id = c.response_a"""
        ).fetchall()
    return dict(found)


@pytest.fixture
def truth(workspace: Workspace) -> dict[str, Answer]:
    return pool(workspace)


CONFIG = Stage1Config(
    name="loop",
    iterations=2,
    seed=12,
    judges="given to the parts",
    encoder="hashing",
    model=Stage1ModelConfig(base="tiny", max_length=128, device="cpu"),
    people=PeopleConfig(seed=10, per_iteration=4, queue=False, judges="given to the parts"),
)


class CountingJudge(SimulatedJudge):
    """Notes every comparison it is asked."""

    def __init__(self, truth: Mapping[str, Answer], *, name: str, accuracy: float = 1.0, stop_after: int | None = None):
        super().__init__(truth, SimulatedConfig(accuracy=accuracy), name)
        self.asked: list[str] = []
        self.demonstrations: list[int] = []
        self._stop_after = stop_after

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        for place, question in enumerate(questions):
            if self._stop_after is not None and len(self.asked) >= self._stop_after:
                raise KeyboardInterrupt
            self.asked.append(question.comparison_id)
            self.demonstrations.append(len(question.demonstrations))
            super().judge([question], lambda _, result, place=place: on_result(place, result))  # type: ignore[misc]


def parts(workspace: Workspace, people: Sequence[Any], judges: Sequence[Any], **more: Any) -> Parts:
    return Parts(
        workspace,
        open_models(workspace, CONFIG.model),
        JudgedPeople(workspace, people),
        HashingEncoder(64),
        judges,
        **more,
    )


def run(workspace: Workspace, config: Stage1Config, made: Parts) -> Stage1Report:
    with start_run(workspace, "curate-stage1", config.to_dict()) as current:
        return run_stage1(config, made, current)


def decisions(workspace: Workspace) -> list[tuple[Any, ...]]:
    with workspace.store.unit() as db:
        return db.execute(
            "SELECT comparison_id, pool, label, rule, reason, iteration FROM decisions ORDER BY ALL"
        ).fetchall()


class Finished(NamedTuple):
    """A whole loop, which nothing interrupted; to be read."""

    workspace: Workspace
    truth: dict[str, Answer]
    person: CountingJudge
    judge: CountingJudge
    report: Stage1Report


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    place = new_workspace(tmp_path_factory.mktemp("finished") / "workspace")
    truth = pool(place)
    person, judge = CountingJudge(truth, name="ada"), CountingJudge(truth, name="judge", accuracy=0.9)
    return Finished(place, truth, person, judge, run(place, CONFIG, parts(place, [person], [judge])))


def test_the_loop_fills_gold_and_silver_and_publishes_its_best_model(finished: Finished) -> None:
    workspace, truth, person, judge, report = finished
    assert report.waiting is None
    assert report.stopped is None
    assert [i["iteration"] for i in report.iterations][:2] == [0, 1]
    pools = Counter((pool, iteration) for _, pool, _, _, _, iteration in decisions(workspace))
    assert pools["gold", 0] == 10
    assert pools["silver", 0] == 12
    assert pools["gold", 1] <= 4
    # a person who is always right makes gold that is always right, whatever the source said
    for comparison, pool_, label, *_ in decisions(workspace):
        if pool_ == "gold":
            assert label == truth[comparison]
    assert len(person.asked) == len(set(person.asked))
    assert not set(person.asked) & set(judge.asked)  # what people were asked no judge was
    assert max(judge.demonstrations[:12]) <= 8
    check_bases(workspace)
    assert report.model is not None
    with workspace.store.unit() as db:
        row = db.execute("SELECT path FROM artifacts WHERE artifact_id = ?", [report.model]).fetchone()
    assert row is not None
    assert (workspace.root / row[0] / "model.safetensors").is_file()
    best = max(report.models, key=lambda m: (m["gold_accuracy"]["value"], m["iteration"]))
    assert best["iteration"] in [m["iteration"] for m in report.models]


def check_bases(workspace: Workspace) -> None:
    """Gold rests on ada's votes, silver on the judge's and, where they voted, on source and model; of a later iteration
    also on the gold comparison it was near. None rests on the vote of the source that it did not count."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT d.comparison_id, d.pool, d.iteration, d.basis, t.why->>'gold'
               FROM decisions d JOIN loop_targets t USING (comparison_id)"""
        ).fetchall()
        judgments = {
            judgment: (comparison, name)
            for judgment, comparison, name in db.execute(
                "SELECT judgment_id, comparison_id, name FROM judgments JOIN annotators USING (annotator_id)"
            ).fetchall()
        }
    assert rows
    for comparison, pool_, iteration, basis, near in rows:
        counted = [judgments[entry["ref"]] for entry in basis if entry["relation"] == "counted"]
        names = sorted(name.split("@")[0] for _, name in counted)
        assert {where for where, _ in counted} == {comparison}
        assert names == (["ada"] if pool_ == "gold" else ["judge", "made-up"] if CONFIG.source_votes else ["judge"])
        assert [e["ref"] for e in basis if e["relation"] == "retrieved near"] == ([near] if near else [])
        assert (iteration > 0) == (near is not None)


@pytest.mark.slow
def test_demonstrations_that_a_language_model_was_shown_are_recorded(
    workspace: Workspace, truth: dict[str, Answer]
) -> None:
    config = replace(CONFIG, iterations=1, seed=4, demonstrations=2)
    with fake_endpoint(longer_wins()) as fake:
        judge = LlmJudge(LlmJudgeConfig(EndpointConfig(fake.base_url, "m")), workspace)
        run(workspace, config, parts(workspace, [CountingJudge(truth, name="ada")], [judge]))
        prompts = {frozenset(r.candidates): r.body["messages"][1]["content"] for r in fake.requests}
    with workspace.store.unit() as db:
        shown = db.execute(
            """SELECT j.comparison_id, list(t.comparison_id ORDER BY t.position), any_value(d.pool)
               FROM judgment_demonstrations t JOIN judgments j USING (judgment_id)
               JOIN current_decisions d ON d.comparison_id = t.comparison_id GROUP BY 1"""
        ).fetchall()
        (silver,) = db.execute("SELECT 'd-' || min(position) FROM decisions WHERE pool = 'silver'").fetchall()[0]
    assert shown
    texts = {c.comparison_id: c for page in candidates.iter_candidates(workspace, Selection()) for c in page}
    for comparison, examples, pool_ in shown:
        assert pool_ == "gold"
        prompt = prompts[frozenset(map(response_text, (texts[comparison].response_a, texts[comparison].response_b)))]
        assert len(examples) == 2
        assert all(texts[e].response_a in prompt and texts[e].response_b in prompt for e in examples)
    relations = {branch.relation for branch in lineage(workspace, silver, "up", depth=1).branches}
    assert {"rests on", "demonstrations"} <= relations


def test_every_target_says_why_it_was_chosen(finished: Finished) -> None:
    with finished.workspace.store.unit() as db:
        rows = db.execute(
            """SELECT t.comparison_id, t.why->>'gold', (t.why->>'p')::DOUBLE FROM loop_targets t WHERE iteration > 0"""
        ).fetchall()
        gold = {r[0] for r in db.execute("SELECT comparison_id FROM decisions WHERE pool = 'gold'").fetchall()}
    assert rows
    assert len({row[0] for row in rows}) == len(rows)
    for comparison, neighbour_of, p in rows:
        assert neighbour_of in gold
        assert neighbour_of != comparison
        assert 0 <= p <= 1


def test_interrupted_and_run_again_it_ends_as_if_it_never_stopped(
    workspace: Workspace, truth: dict[str, Answer], finished: Finished
) -> None:
    asked: list[str] = []
    for stop_after in (5, 9, 3, None):  # each a new process's worth of objects
        person = CountingJudge(truth, name="ada", stop_after=stop_after)
        judge = CountingJudge(truth, name="judge", accuracy=0.9, stop_after=stop_after)
        with contextlib.suppress(KeyboardInterrupt):
            run(workspace, CONFIG, parts(workspace, [person], [judge]))
        asked += person.asked + judge.asked
    # an interrupted chunk's answers were written as they came: nothing is asked twice
    assert len(asked) == len(set(asked))
    assert sorted(asked) == sorted(finished.person.asked + finished.judge.asked)
    assert decisions(workspace) == decisions(finished.workspace)


@pytest.mark.slow
def test_a_budget_stops_the_loop_and_a_larger_one_resumes(workspace: Workspace, truth: dict[str, Answer]) -> None:
    person, judge = CountingJudge(truth, name="ada"), CountingJudge(truth, name="judge")
    config = replace(CONFIG, iterations=1)
    report = run(workspace, config, parts(workspace, [person], [judge], spending=Spending(Budget(questions=5))))
    assert report.stopped is not None
    assert "5 questions" in report.stopped
    assert len(judge.asked) == 5
    report = run(workspace, config, parts(workspace, [person], [judge]))
    assert report.stopped is None
    assert len(judge.asked) == len(set(judge.asked)) > 5


@pytest.mark.slow(reason="another choice of voters")
def test_source_and_model_can_vote_where_there_are_no_judges(workspace: Workspace, truth: dict[str, Answer]) -> None:
    config = replace(CONFIG, judges=None, source_votes=True, model_votes=True, judge_weights="equal")
    run(workspace, config, parts(workspace, [CountingJudge(truth, name="ada")], []))
    silver = [row for row in decisions(workspace) if row[1] == "silver"]
    assert silver
    later = [row for row in silver if row[5] > 0]
    assert all("source" in row[4] and "reward model" in row[4] for row in later)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [pytest.param("equal", marks=pytest.mark.slow), "accuracy"])
def test_judges_that_are_wrong_on_gold_outvote_the_right_one_only_where_all_count_the_same(
    workspace: Workspace, truth: dict[str, Answer], weights: Any
) -> None:
    judges = [CountingJudge(truth, name="right")]
    judges += [CountingJudge(truth, name=name, accuracy=0.0) for name in ("wrong", "as wrong")]
    config = replace(CONFIG, iterations=1, judge_weights=weights, source_votes=weights == "accuracy")
    report = run(workspace, config, parts(workspace, [CountingJudge(truth, name="ada")], judges))
    silver = [row for row in decisions(workspace) if row[1] == "silver"]
    assert silver
    assert {row[2] == truth[row[0]] for row in silver} == {weights == "accuracy"}
    found = report.iterations[0]["weights"]
    gold = {row[0] for row in decisions(workspace) if row[1] == "gold"}
    if weights == "equal":
        assert found is None
        assert not gold & set(judges[0].asked)
        return
    assert gold <= set(judges[0].asked)
    of = {name.split("@")[0]: weight for name, weight in found.items()}
    assert sorted(of.values())[:2] == [0, 0]
    assert max(of.values()) == pytest.approx(math.log(11))  # right on all ten of the seed's gold
    assert len(judges[0].asked) == len(set(judges[0].asked))


@pytest.mark.slow(reason="a loop of an older version; another configuration under the same name is refused above")
def test_a_loop_from_before_judge_weights_continues(workspace: Workspace, truth: dict[str, Answer]) -> None:
    made = parts(workspace, [CountingJudge(truth, name="ada")], [CountingJudge(truth, name="judge")])
    config = replace(CONFIG, iterations=1, judge_weights="equal")
    run(workspace, config, made)
    with workspace.store.unit() as db:
        db.execute("UPDATE loops SET config = json_merge_patch(config::JSON, '{\"judge_weights\": null}')")
    assert run(workspace, config, made).stopped is None
    with pytest.raises(BadInputError, match=r"judge_weights \('equal'\); set it again, or choose another name"):
        run(workspace, replace(config, judge_weights=CONFIG.judge_weights), made)


@pytest.mark.slow
def test_by_default_a_voter_counts_by_its_worth_where_gold_has_measured_it(
    workspace: Workspace, truth: dict[str, Answer]
) -> None:
    judge = CountingJudge(truth, name="judge")
    config = replace(CONFIG, iterations=1, source_votes=True)
    report = run(workspace, config, parts(workspace, [CountingJudge(truth, name="ada")], [judge]))
    with workspace.store.unit() as db:
        worth = {r.annotator_id: r for r in reliabilities(db).overall.values() if r.kind == "source"}
    of_sources = report.iterations[0]["weights"]
    assert of_sources.keys() == worth.keys()  # the judge has met no gold, and is not asked about it
    gold = {row[0] for row in decisions(workspace) if row[1] == "gold"}
    assert not gold & set(judge.asked)


@pytest.mark.slow
def test_what_people_cannot_decide_is_discarded_and_put_to_no_judge(
    workspace: Workspace, truth: dict[str, Answer]
) -> None:
    class Undecided(CountingJudge):
        def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
            from assay_pipelines.judging.judge import Opinion, Vote

            known = [q for q in questions if int(q.comparison_id[-1], 16) % 2]
            super().judge(known, lambda place, result: on_result(questions.index(known[place]), result))
            for place, question in enumerate(questions):
                if question not in known:
                    on_result(place, Opinion("skip", None, (Vote("skip"),)))

    judge = CountingJudge(truth, name="judge")
    config = replace(CONFIG, iterations=1)
    run(workspace, config, parts(workspace, [Undecided(truth, name="ada")], [judge]))
    dropped = {row[0] for row in decisions(workspace) if row[3] == "people_undecided"}
    assert dropped
    assert not dropped & set(judge.asked)


def test_another_configuration_under_the_same_name_is_refused(finished: Finished) -> None:
    workspace = finished.workspace
    made = parts(workspace, [finished.person], [finished.judge])
    with pytest.raises(BadInputError, match="k_max"):
        run(workspace, replace(CONFIG, k_max=4), made)
    steps = [(iteration, step) for iteration, step, _ in loop_steps(workspace, "loop")]
    assert steps[:3] == [(0, "targets"), (0, "people"), (0, "judges")]


@pytest.mark.slow
@pytest.mark.parametrize("page", [1, 7, 1000])
def test_pages_of_candidates_hold_each_once_whatever_their_size(
    workspace: Workspace, truth: dict[str, Answer], monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(candidates, "PAGE", 9)  # comparisons looked at in one unit
    gold = sorted(truth)[::4]
    with workspace.store.unit() as db:
        insert_decisions(db, [Decision(c, "gold", "A", "verifier", "checked") for c in gold], None)
    for selection, wanted in (
        (Selection(("unverified",)), sorted(set(truth) - set(gold))),
        (Selection(("gold",)), gold),
        (Selection(("silver",)), []),
    ):
        pages = list(candidates.iter_candidates(workspace, selection, page=page))
        assert [c.comparison_id for found in pages for c in found] == wanted
        assert all(len(found) == page for found in pages[:-1])
    sliced = [Selection(("unverified",), slice=HashSlice(*part, by="category")) for part in ((0.0, 0.5), (0.5, 1.0))]
    halves = [c for half in sliced for found in candidates.iter_candidates(workspace, half) for c in found]
    assert sorted(c.comparison_id for c in halves) == sorted(set(truth) - set(gold))


def test_an_empty_pool_is_a_clear_error(workspace: Workspace) -> None:
    with pytest.raises(BadInputError, match="pool is empty"):
        run(workspace, replace(CONFIG, sources=("nothing",)), parts(workspace, [], []))
    with pytest.raises(BadInputError, match="pool is empty"):  # and the name is free for what was meant
        run(workspace, replace(CONFIG, sources=("something",)), parts(workspace, [], []))


def test_a_source_by_its_name_alone_is_a_list_of_one() -> None:
    assert Stage1Config.of({"name": "x", "source_votes": True, "sources": "one"}).sources == ("one",)


@pytest.mark.slow(reason="full training is shown by its own command, the loop by probes")
def test_full_training_as_the_loops_reward_model(workspace: Workspace, truth: dict[str, Answer]) -> None:
    model = replace(CONFIG.model, backend="bt", options={"batch_size": 8, "lr": 1e-3})
    config = replace(CONFIG, iterations=1, model=model)
    made = replace(
        parts(workspace, [CountingJudge(truth, name="ada")], [CountingJudge(truth, name="judge")]),
        models=open_models(workspace, model),
    )
    report = run(workspace, config, made)
    best = max(report.models, key=lambda m: (m["gold_accuracy"]["value"], m["iteration"]))
    name = f"loop-i{best['iteration']}"
    with workspace.store.unit() as db:
        row = db.execute("SELECT name, kind FROM artifacts WHERE artifact_id = ?", [report.model]).fetchone()
        snapshot = db.execute("SELECT items FROM snapshots WHERE name = ?", [f"{name}-train"]).fetchone()
    assert row == (name, "reward_model")
    assert snapshot == (best["trained_on"],)
    assert (workspace.models / name / "README.md").is_file()


class Failing(CountingJudge):
    """Fails on every question, or on those that `fails` names."""

    def __init__(self, truth: Mapping[str, Answer], fails: Callable[[str], bool]) -> None:
        super().__init__(truth, name="failing")
        self._fails = fails
        self.attributes: dict[str, PairAttributes | None] = {}

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        self.attributes = {q.comparison_id: q.attributes for q in questions} | self.attributes
        for place, question in enumerate(questions):
            if self._fails(question.comparison_id):
                on_result(place, JudgeFailure("timeout", "no reply"))
            else:
                super().judge([question], lambda _, result, place=place: on_result(place, result))  # type: ignore[misc]


@pytest.mark.slow
def test_a_training_that_was_killed_resumes_though_somebody_decided_since(
    workspace: Workspace, truth: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    config = replace(CONFIG, iterations=1)
    made = parts(workspace, [CountingJudge(truth, name="ada")], [CountingJudge(truth, name="judge")])
    with monkeypatch.context() as patch:
        patch.setattr(ProbeModels, "train", killed)
        with pytest.raises(KeyboardInterrupt):
            run(workspace, config, made)
    with workspace.store.unit() as db:
        row = db.execute("SELECT comparison_id FROM pools WHERE pool = 'unverified' ORDER BY 1 LIMIT 1").fetchone()
        assert row is not None
        insert_decisions(db, [Decision(row[0], "gold", "A", "verifier", "checked meanwhile")], None)
    report = run(workspace, config, made)
    assert report.model is not None
    assert report.model_name == "loop"


@pytest.mark.slow
def test_what_is_discarded_while_people_look_at_it_stays_discarded(
    workspace: Workspace, truth: dict[str, Answer]
) -> None:
    judges, config = [CountingJudge(truth, name="judge")], replace(CONFIG, iterations=1)
    with contextlib.suppress(KeyboardInterrupt):
        run(workspace, config, parts(workspace, [CountingJudge(truth, name="ada", stop_after=3)], judges))
    with workspace.store.unit() as db:
        row = db.execute("SELECT comparison_id FROM loop_targets WHERE route = 'people' AND place = 0").fetchone()
        assert row is not None
        insert_decisions(db, [Decision(row[0], "discarded", None, "contamination", "a leak")], None)
    report = run(workspace, config, parts(workspace, [CountingJudge(truth, name="ada")], judges))
    assert report.iterations[0]["people_overtaken"] == 1
    assert report.iterations[0]["gold"] == CONFIG.people.seed - 1
    assert [d[1:4] for d in decisions(workspace) if d[0] == row[0]] == [("discarded", None, "contamination")]


@pytest.mark.slow
def test_judges_that_all_fail_stop_the_loop_and_label_nothing(workspace: Workspace, truth: dict[str, Answer]) -> None:
    config = replace(CONFIG, iterations=1, source_votes=True)
    people = [CountingJudge(truth, name="ada")]
    report = run(workspace, config, parts(workspace, people, [Failing(truth, lambda _: True)]))
    assert report.stopped is not None
    assert "no judge answered" in report.stopped
    assert "timeout 12" in report.stopped
    assert not [d for d in decisions(workspace) if d[1] == "silver"]
    report = run(workspace, config, parts(workspace, people, [Failing(truth, lambda _: False)]))
    assert report.stopped is None
    assert report.iterations[0]["silver"] > 0


@pytest.mark.slow(reason="judges that all fail are in the test before")
def test_where_judges_fail_the_source_alone_makes_no_silver(workspace: Workspace, truth: dict[str, Answer]) -> None:
    config = replace(CONFIG, iterations=1, source_votes=True)

    def odd(comparison: str) -> bool:
        return int(comparison[-1], 16) % 2 == 1

    run(workspace, config, parts(workspace, [CountingJudge(truth, name="ada")], [Failing(truth, odd)]))
    silver = [d[0] for d in decisions(workspace) if d[1] == "silver"]
    assert silver
    assert not [comparison for comparison in silver if odd(comparison)]


@pytest.mark.parametrize("fails", [True, False])
def test_stage2_decides_nothing_that_hangs_on_judges_who_failed(
    workspace: Workspace, truth: dict[str, Answer], fails: bool
) -> None:
    class Fixed:
        """Gives each pair's first item the same margin over its second."""

        def __init__(self, margin: float) -> None:
            self.margin = margin
            self.info = ModelInfo(f"fixed{margin}", f"version{margin}", "none")

        def score(self, items: Sequence[ScoreItem]) -> list[Score]:
            rewards = [self.margin, 0.0] * (len(items) // 2)
            return [Score(reward, "fixed", "1", "none", 1, False) for reward in rewards]

    described = PairAttributes("facts", "objective", "low", "a right answer", "check it")
    some = next(iter(truth))
    with workspace.store.unit() as db:
        machine = insert_annotator(db, "llm", "describer")
    store_attributes(workspace, machine, {some: described}, None)
    judge = Failing(truth, lambda _: fails)
    doubts, agrees = LoopModel(Fixed(-1.0), UNCALIBRATED), LoopModel(Fixed(1.0), UNCALIBRATED)  # type: ignore[arg-type]
    report = run_stage2(
        Stage2Config(), Stage2Parts(workspace, doubts, agrees, [judge]), Selection(("unverified",)), "run"
    )
    assert report.seen == PAIRS
    assert judge.attributes == {**dict.fromkeys(truth), some: described}  # judges see what is known of the pair
    assert report.unanswered == (PAIRS if fails else 0)
    assert report.kept == (0 if fails else PAIRS - PAIRS // 5)  # the source is wrong on every fifth
    assert report.discarded == (0 if fails else PAIRS // 5)


@pytest.mark.slow(reason="another choice of what is trained on")
def test_gold_that_is_trained_on_chooses_nothing(workspace: Workspace, truth: dict[str, Answer]) -> None:
    config = replace(CONFIG, train_on="silver+gold")
    report = run(
        workspace, config, parts(workspace, [CountingJudge(truth, name="ada")], [CountingJudge(truth, name="judge")])
    )
    steps = {(i, step): outcome for i, step, outcome in loop_steps(workspace, "loop")}
    trained = [outcome for (_, step), outcome in steps.items() if step in ("train", "final")]
    assert trained
    assert all("cross-validation" in outcome["model"]["chosen_on"] for outcome in trained)
    published = next(outcome for (_, step), outcome in steps.items() if step == "publish")
    assert published["best"] == max(m["iteration"] for m in report.models)
