"""What the pages of curation read: funnel, errors, conflicts, ledger, clusters, estimates, from one small store."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import pytest

from assay.data.snapshots import POOLS, Selection
from assay.domain import Answer, Judgment
from assay.errors import BadInputError
from assay.runs.record import start_run
from assay.store.records import Decision, insert_annotator, insert_decisions, insert_judgments
from assay.workspace import Workspace
from assay_pipelines.curation.conflicts import PartyAgreement, conflicts_between, party_agreements
from assay_pipelines.curation.funnel import LABELLED, decided_by, funnel
from assay_pipelines.curation.loop.config import PeopleConfig, Stage1Config
from assay_pipelines.curation.loop.estimating import estimate_stage1
from assay_pipelines.curation.source_errors import AnswerErrors, error_types
from assay_pipelines.hygiene.contamination.benchmarks import add_benchmark
from assay_pipelines.hygiene.contamination.check import CheckConfig, check_benchmarks, discard_overlaps
from assay_pipelines.hygiene.contamination.ledger import evidence, ledger
from assay_pipelines.hygiene.near_duplicates.search import (
    NearDuplicateConfig,
    discard_near_duplicates,
    find_near_duplicates,
)
from assay_pipelines.hygiene.near_duplicates.stored import duplicate_clusters, duplicate_searches
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig

SOURCE = "made-up"
PAIRS = 20


def sentence(chance: random.Random, count: int) -> str:
    return " ".join(f"word{chance.randrange(3000)}" for _ in range(count))


@pytest.fixture(scope="module")
def curated(empty_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, list[str]]:
    """PAIRS pairs and a near-duplicate with the opposite label; a leak; the first six pairs decided and judged.

    Gold, in the order of the ids: 0 and 1 as the source says, 2 the other side, 3 a tie. Silver: 4 as the source says,
    5 the other side. The judge says of 0 to 3: right, the other side, a tie, a side. A person votes on 4 and 5.
    """
    folder = tmp_path_factory.mktemp("curated")
    workspace = Workspace.open(shutil.copytree(empty_workspace, folder / "workspace"))
    chance = random.Random(0)
    rows = [
        {"prompt": sentence(chance, 20), "chosen": sentence(chance, 14), "rejected": sentence(chance, 14)}
        for _ in range(PAIRS)
    ]
    text = "\n".join(json.dumps(row) for row in [*rows, {"prompt": "no responses"}])
    (folder / "pairs.jsonl").write_text(text + "\n", encoding="utf-8")
    # the same pair with a word more, and its label turned round
    again = {**rows[19], "chosen": rows[19]["rejected"], "rejected": f"{rows[19]['chosen']} indeed"}
    (folder / "again.jsonl").write_text(json.dumps(again) + "\n", encoding="utf-8")
    for name, source in (("pairs", SOURCE), ("again", "again")):
        run_import(workspace, open_import(workspace, ImportConfig(str(folder / f"{name}.jsonl"), source=source)))
    leak = rows[18]["prompt"]
    (folder / "bench.jsonl").write_text(json.dumps({"prompt": f"Please: {leak.upper()}!"}) + "\n", encoding="utf-8")
    config = NearDuplicateConfig(threshold=0.6)
    with start_run(workspace, "near-dup", {**asdict(config), "action": "discard"}) as run:
        found = find_near_duplicates(workspace, config, run.id)
        run.metrics.update(asdict(found) | {"discarded": discard_near_duplicates(workspace, config, run.id)})
    with start_run(workspace, "decontaminate", {}) as run:
        add_benchmark(workspace, "bench", folder / "bench.jsonl", run.id)
        reports = check_benchmarks(workspace, CheckConfig(), run.id)
        discard_overlaps(workspace, reports, CheckConfig(), Selection(POOLS), run.id)
    with workspace.store.unit() as db:
        pairs = db.execute(
            """SELECT comparison_id, label FROM pools WHERE pool = 'unverified' AND comparison_id IN
               (SELECT comparison_id FROM origins WHERE source = ?) ORDER BY comparison_id LIMIT 6""",
            [SOURCE],
        ).fetchall()
        ids = [pair[0] for pair in pairs]
        said: list[Literal["A", "B"]] = [pair[1] for pair in pairs]
        other: list[Literal["A", "B"]] = ["B" if label == "A" else "A" for label in said]
        labels: list[Literal["A", "B", "tie"]] = [said[0], said[1], other[2], "tie", said[4], other[5]]
        insert_decisions(
            db,
            [
                Decision(
                    ids[n], "gold" if n < 4 else "silver", labels[n], "people" if n < 4 else "judges_agree", f"r{n}"
                )
                for n in range(6)
            ],
            None,
        )
        judge = insert_annotator(db, "llm", "judge")
        ada = insert_annotator(db, "human", "ada")
        answers: list[Answer] = [said[0], other[1], "tie", said[3], said[4], said[5]]
        judgments = [Judgment(ids[n], judge, answers[n]) for n in range(6)]
        judgments += [Judgment(ids[4], ada, other[4]), Judgment(ids[5], ada, "both_bad")]
        insert_judgments(db, judgments, None)
    return workspace, ids


@pytest.mark.slow
def test_every_comparison_is_in_one_flow(curated: tuple[Workspace, list[str]]) -> None:
    workspace, ids = curated
    with workspace.store.unit() as db:
        found = funnel(db)
        page, total = decided_by(db, "gold", "people", limit=3)
    assert found.comparisons == PAIRS + 1 == sum(flow.comparisons for flow in found.flows)
    counts = {(rule.pool, rule.rule): rule.comparisons for rule in found.rules}
    assert counts == {
        ("unverified", LABELLED): 13,
        ("gold", "people"): 4,
        ("silver", "judges_agree"): 2,
        ("discarded", "near_duplicate"): 1,
        ("discarded", "contamination"): 1,
    }
    assert {rule.rule: rule.reasons for rule in found.rules}["judges_agree"] == ["r4", "r5"]
    assert [(one.rows, one.example) for one in found.rejected] == [(1, f"pairs.jsonl row {PAIRS + 1}")]
    assert (total, [pair.comparison_id for pair in page]) == (4, [ids[3], ids[2], ids[1]])
    assert page[0].label == "tie"
    assert page[0].source_label in ("A", "B")
    assert page[0].sources == [SOURCE]


def test_kinds_of_error(curated: tuple[Workspace, list[str]]) -> None:
    with curated[0].store.unit() as db:
        found = error_types(db)
    assert [(one.name, one.decided, one.flipped, one.tied, one.settled) for one in found.by_rule] == [
        ("gold by people", 4, 1, 1, 0),
        ("silver by judges_agree", 2, 1, 0, 0),
    ]
    judge = next(one for one in found.annotators if one.annotator == "judge")
    assert judge == AnswerErrors("llm", "judge", 4, 1, 1, 1, 1, 1, 0)
    assert not [one for one in found.annotators if one.kind == "human"], "people's votes made that gold"


def test_conflicts_of_parties(curated: tuple[Workspace, list[str]]) -> None:
    workspace, ids = curated
    with workspace.store.unit() as db:
        assert party_agreements(db) == [
            PartyAgreement("source_people", 2, 0, 1, 1),
            PartyAgreement("source_judges", 6, 4, 1, 1),
            PartyAgreement("people_judges", 2, 0, 1, 1),
        ]
        found, total = conflicts_between(db, "people_judges", limit=5)
        with pytest.raises(BadInputError, match="unknown parties"):
            conflicts_between(db, "everybody", limit=5)  # type: ignore[arg-type]
    assert (total, found[0].pair.comparison_id) == (1, ids[4])
    assert {answer.annotator for answer in found[0].answers} == {"ada", "judge", SOURCE}
    assert {found[0].people, found[0].judges} == {"A", "B"}
    assert found[0].source == found[0].judges


def test_the_ledger_has_both_texts(curated: tuple[Workspace, list[str]]) -> None:
    with curated[0].store.unit() as db:
        (bench,) = ledger(db)
        (check,) = bench.checks
        (overlap,), total = evidence(db, check.check_id, limit=10)
    assert (check.hits, check.comparisons, check.discarded, check.stale, total) == (1, 1, 1, False, 1)
    assert overlap.text.split()[:13] == overlap.overlap.split()
    assert overlap.benchmark_text == f"Please: {overlap.text.upper()}!"
    assert [one.pool for one in overlap.comparisons] == ["discarded"]


def test_a_cluster_has_its_members(curated: tuple[Workspace, list[str]]) -> None:
    with curated[0].store.unit() as db:
        (search,) = duplicate_searches(db)
        (cluster,), total = duplicate_clusters(db, search.run_id, limit=10)
    assert (search.clusters, search.members, search.extra, search.opposite, search.discarded) == (1, 2, 1, 1, 1)
    assert (total, cluster.size) == (1, 2)
    kept, gone = cluster.members
    assert (kept.kept_id, gone.kept_id) == (None, kept.item_id)
    assert gone.similarity == cluster.lowest
    assert kept.pair is not None
    assert gone.pair is not None
    assert (kept.pair.sources, gone.pair.sources, gone.pair.pool) == ([SOURCE], ["again"], "discarded")


@pytest.mark.slow
def test_an_estimate_is_the_prices_of_what_would_be_asked(curated: tuple[Workspace, list[str]], tmp_path: Path) -> None:
    entry = {"kind": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m", "max_tokens": 100}
    (tmp_path / "judges.yaml").write_text(
        json.dumps({"judges": [{**entry, "price_in": 2.0, "price_out": 10.0}, {"kind": "verifier"}]})
    )
    config = Stage1Config("first", 1, seed=5, per_iteration=4, judges=str(tmp_path / "judges.yaml"), demonstrations=0,
                          people=PeopleConfig(per_iteration=1, seed=3))  # fmt: skip
    found = estimate_stage1(curated[0], config)
    # 5 of the seed, and 4 less the one for people of the iteration; a call each
    assert [(judge.kind, judge.questions, judge.calls) for judge in found.judges] == [
        ("openai", 8, 8),
        ("verifier", 8, 0),
    ]
    assert (found.people, found.known, found.calls) == (4, False, 8)
    written = 8 * 96
    assert found.cost == pytest.approx(((found.tokens - written) * 2.0 + written * 10.0) / 1e6, rel=0.01)
    (tmp_path / "judges.yaml").write_text(json.dumps({"judges": [entry]}))
    assert estimate_stage1(curated[0], config).cost is None, "no prices are known"
    (tmp_path / "judges.yaml").write_text("judges: 3")
    with pytest.raises(BadInputError, match="at least one judge"):
        estimate_stage1(curated[0], config)


def test_the_funnel_says_what_labels_are_worth(curated: tuple[Workspace, list[str]]) -> None:
    workspace, _ = curated
    with workspace.store.unit() as db:
        worth = {(one.kind, one.name): one for one in funnel(db).reliability}
    source, judge = worth["source", SOURCE], worth["llm", "judge"]
    assert (source.compared, source.right, judge.compared, judge.right) == (3, 2, 2, 1)
    assert source.mean == pytest.approx(3 / 5)  # uniform prior
    assert {source.worth, judge.worth} == {"unmeasured"}
    assert ("human", "ada") not in worth  # who said nothing of gold
