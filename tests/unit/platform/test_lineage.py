"""Lineage: from a vote to the rollouts of the policy it helped to train, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from assay import ids
from assay.data.snapshots import Selection, create_snapshot
from assay.domain import Judgment, Message
from assay.errors import NotFoundError
from assay.runs.lineage import lineage
from assay.runs.record import model_of_version, start_run
from assay.score import Score
from assay.store.intake import pair_schema, store_pairs
from assay.store.integrity import dangling
from assay.store.records import (
    Decision,
    Evidence,
    insert_annotator,
    insert_decisions,
    insert_demonstrations,
    insert_judgments,
    insert_responses,
    insert_scores,
)
from assay.workspace import Workspace


@pytest.fixture
def chain(workspace: Workspace, tmp_path: Path) -> dict[str, str]:
    """One thing of each kind, made as the commands make them; name -> id."""
    made: dict[str, str] = {}
    row = {
        "row": 1,
        "messages": [{"role": "user", "content": "q"}],
        "first": "a",
        "second": "b",
        "label": "first",
        "source": "s",
        "record_id": "1",
    }
    with start_run(workspace, "import", {}, inputs={str(tmp_path / "pairs.jsonl"): "file"}) as run:
        made["import"] = run.id
        with workspace.store.unit() as db:
            store_pairs(db, pa.Table.from_pylist([row], schema=pair_schema()), run.id)
            (made["comparison"],) = db.execute("SELECT comparison_id FROM comparisons").fetchall()[0]
    with start_run(workspace, "curate", {}) as run, workspace.store.unit() as db:
        made["curate"] = run.id
        judgment = Judgment(made["comparison"], insert_annotator(db, "human", "ann"), "A")
        insert_judgments(db, [judgment], None)
        made["vote"] = judgment.id
    with workspace.store.unit() as db:
        basis = [Evidence("counted", made["vote"])]
        decision = Decision(made["comparison"], "gold", "A", "majority", "one of one", basis=basis)
        insert_decisions(db, [decision], made["curate"])
    with start_run(workspace, "snapshot", {}) as run:
        made["snapshot"] = create_snapshot(workspace, "train", Selection(pools=("gold",)), run.id).id
    with start_run(workspace, "train", {}, inputs={made["snapshot"]: "snapshot"}) as run:
        made["train"] = run.id
        made["model"] = run.add_artifact(
            "reward_model", "rm", tmp_path / "rm", content_hash="of-the-folder", spec={"version": "hash-of-rm"}
        )
    with start_run(workspace, "rl", {}) as run:
        made["rl"] = run.id
        run.link("input", "model_version", "hash-of-rm")
        score = Score(1.0, "rm", "hash-of-rm", "t", tokens=3, truncated=False)
        with workspace.store.unit() as db:
            (made["rollout"],) = insert_responses(db, [((Message("user", "q"),), "new answer")], run.id)
            insert_scores(
                db, [(made["rollout"], score)], model="rm", version="hash-of-rm", template_hash="t", run_id=run.id
            )
        made["rollouts"] = run.add_artifact("rollouts", "rollouts", tmp_path / "rollouts", content_hash="h2")
    return made


@pytest.mark.slow
def test_a_vote_leads_to_the_rollouts(workspace: Workspace, chain: dict[str, str]) -> None:
    reached = {node.id for node in lineage(workspace, chain["vote"], "down", depth=12).walk()}
    assert {chain[name] for name in ("snapshot", "train", "model", "rl", "rollout", "rollouts")} <= reached
    assert "d-1" in reached


def test_a_decision_rests_on_what_it_counted_and_not_on_what_shares_its_comparison(
    workspace: Workspace, chain: dict[str, str]
) -> None:
    with workspace.store.unit() as db:
        (source,) = db.execute(
            "SELECT judgment_id FROM judgments JOIN annotators USING (annotator_id) WHERE kind = 'source'"
        ).fetchall()[0]
        other = Judgment(chain["comparison"], insert_annotator(db, "human", "late"), "B")
        insert_judgments(db, [other], None)
    decision = lineage(workspace, "d-1", "up", depth=1)
    assert "not recorded" not in decision.about
    relations = {branch.relation: [node.id for node in branch.nodes] for branch in decision.branches}
    assert relations["rests on"] == [chain["vote"]]
    assert {source, other.id}.isdisjoint(node.id for node in decision.walk())
    assert [b.relation for b in lineage(workspace, chain["vote"], "down", depth=1).branches] == ["led to"]
    for uncounted in (source, other.id):
        assert lineage(workspace, uncounted, "down", depth=1).branches == []


def test_an_older_decision_says_that_its_basis_is_not_recorded(workspace: Workspace, chain: dict[str, str]) -> None:
    with workspace.store.unit() as db:
        db.execute("UPDATE decisions SET basis = NULL")
    decision = lineage(workspace, "d-1", "up", depth=1)
    assert decision.about.endswith("(basis not recorded)")
    relations = {branch.relation for branch in decision.branches}
    assert relations == {"on the same comparison (basis not recorded)", "of", "written by"}
    reached = {node.id for node in lineage(workspace, chain["vote"], "down", depth=12).walk()}
    assert chain["rollouts"] in reached, "the walk still leads through it"


@pytest.mark.slow
def test_a_repeat_on_another_basis_is_another_decision(workspace: Workspace, chain: dict[str, str]) -> None:
    same = Decision(
        chain["comparison"], "gold", "A", "majority", "one of one", basis=[Evidence("counted", chain["vote"])]
    )
    other = Decision(chain["comparison"], "gold", "A", "majority", "one of one", basis=[Evidence("counted", "j-other")])
    with workspace.store.unit() as db:
        assert insert_decisions(db, [same], None) == 0
        assert insert_decisions(db, [other, other], None) == 1


@pytest.mark.slow
def test_demonstrations_are_shown_with_the_judgment_and_the_decision(
    workspace: Workspace, chain: dict[str, str]
) -> None:
    rows = [
        {"row": n, "messages": [{"role": "user", "content": f"q{n}"}], "first": "a", "second": "b", "label": "first"}
        | {"source": "s", "record_id": f"x{n}"}
        for n in (1, 2)
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), None)
        others = [c for (c,) in db.execute("SELECT comparison_id FROM comparisons ORDER BY 1").fetchall()]
        examples = [c for c in others if c != chain["comparison"]]
        insert_demonstrations(db, {chain["vote"]: examples})
        insert_demonstrations(db, {chain["vote"]: examples[:1]})  # what a judge was shown stays
    for start in ("d-1", chain["vote"]):
        (branch,) = [b for b in lineage(workspace, start, "up", depth=1).branches if b.relation == "demonstrations"]
        assert [node.id for node in branch.nodes] == examples
    down = lineage(workspace, examples[0], "down", depth=1)
    assert [n.id for b in down.branches if b.relation == "shown to judges for" for n in b.nodes] == [chain["vote"]]


def test_rollouts_lead_back_to_the_vote_and_the_file(
    workspace: Workspace, chain: dict[str, str], tmp_path: Path
) -> None:
    for start in ("rollouts", "rollout"):
        reached = {node.id for node in lineage(workspace, chain[start], "up", depth=12).walk()}
        assert {chain[name] for name in ("model", "train", "snapshot", "comparison", "vote", "import")} <= reached
        assert ids.annotator_id("human", "ann") in reached
        assert str(tmp_path / "pairs.jsonl") in reached


@pytest.mark.slow
def test_a_model_leads_to_what_it_scored(workspace: Workspace, chain: dict[str, str]) -> None:
    scored = {node.id for node in lineage(workspace, "rm", "down", depth=1).walk()}
    assert {chain["rollout"], chain["rl"]} <= scored


@pytest.mark.slow
def test_models_of_equal_weights_are_told_apart(workspace: Workspace, chain: dict[str, str], tmp_path: Path) -> None:
    with start_run(workspace, "train", {}) as run:
        spec = {"version": "hash-of-rm"}
        twin = run.add_artifact("reward_model", "twin", tmp_path / "twin", content_hash="of-the-folder", spec=spec)
    assert model_of_version(workspace, "hash-of-rm", "twin") == {twin: "artifact"}
    assert model_of_version(workspace, "hash-of-rm", "rm") == {chain["model"]: "artifact"}
    assert model_of_version(workspace, "hash-of-rm", "another") == {"hash-of-rm": "model_version"}
    with start_run(workspace, "score", {}, inputs={twin: "artifact", str(tmp_path / "in.jsonl"): "file"}) as run:
        score = Score(1.0, "twin", "hash-of-rm", "t", tokens=3, truncated=False)
        with workspace.store.unit() as db:
            (response,) = insert_responses(db, [((Message("user", "q"),), "of the twin")], run.id)
            insert_scores(db, [(response, score)], model="twin", version="hash-of-rm", template_hash="t", run_id=run.id)
            decision = Decision("c-any", "silver", "A", "stage2", "", basis=[Evidence("scored by", "hash-of-rm")])
            insert_decisions(db, [decision], run.id)

    def neighbours(name: str, direction: Literal["up", "down"], relation: str) -> set[str]:
        branches = lineage(workspace, name, direction, depth=1).branches
        return {node.id for branch in branches if branch.relation == relation for node in branch.nodes}

    assert neighbours(run.id, "up", "read") == {twin, str(tmp_path / "in.jsonl")}
    assert neighbours(run.id, "down", "scored") == {response}
    assert neighbours(response, "up", "scored in") == {run.id}
    assert neighbours(response, "up", "scored by") == neighbours("d-2", "up", "scored by") == {twin}
    assert neighbours(twin, "down", "scored") >= {response} > neighbours("rm", "down", "scored") - {chain["rollout"]}
    both = {twin, chain["model"]}  # the run of these recorded a version only
    assert neighbours(chain["rollout"], "up", "scored by") == both == neighbours(chain["rl"], "up", "read")


def test_a_model_that_is_not_of_the_workspace_is_named(workspace: Workspace) -> None:
    with start_run(workspace, "score", {}, inputs={"someone/model": "model", "3f2a": "model_version"}) as run:
        pass
    [read] = lineage(workspace, run.id, "up").branches
    assert {node.id: node.about for node in read.nodes} == {"someone/model": "model", "3f2a": "version of a model"}
    assert [node.id for node in lineage(workspace, "someone/model", "down").branches[0].nodes] == [run.id]


def test_names_files_and_unknown_ids(workspace: Workspace, chain: dict[str, str], tmp_path: Path) -> None:
    assert lineage(workspace, "train", "up").id == chain["snapshot"]
    assert lineage(workspace, "rm", "up").id == chain["model"]
    file = lineage(workspace, str(tmp_path / "pairs.jsonl"), "down")
    assert chain["import"] in {node.id for node in file.walk()}
    for unknown in ("j-nothing", "nothing", "d-99"):
        with pytest.raises(NotFoundError, match=unknown):
            lineage(workspace, unknown, "up")


def test_width_is_bounded_and_says_what_is_left_out(workspace: Workspace, chain: dict[str, str]) -> None:
    with workspace.store.unit() as db:
        prompt = (Message("user", "q"),)
        insert_responses(db, [(prompt, f"answer {n}") for n in range(20)], None)
    tree = lineage(workspace, ids.prompt_id(prompt), "down", width=3, depth=1)
    answers = next(b for b in tree.branches if b.relation == "answered by")
    assert (len(answers.nodes), answers.more) == (3, 20)
    assert tree.to_dict()["branches"][0]["more"] == 20


@pytest.mark.slow
def test_references_hold_and_broken_ones_are_found(workspace: Workspace, chain: dict[str, str]) -> None:
    with workspace.store.unit() as db:
        assert dangling(db) == {}
        insert_judgments(db, [Judgment("c-nowhere", ids.annotator_id("human", "ann"), "A")], "run-nowhere")
        assert dangling(db) == {"judgments.comparison_id": 1, "judgments.run_id": 1}
