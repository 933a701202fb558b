"""Selection by source and score: the reference numbers of Skywork-Reward's selection, on pairs of a workspace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.cli.main import main
from assay.errors import BadInputError
from assay.score import Score
from assay.store.records import insert_scores
from assay.workspace import Workspace
from assay_pipelines.hygiene.top_scored import read_rules

SCORES = [0.10, 0.12, 0.14, 0.11, 0.15, 0.13, 0.09, 0.16, 0.17, 0.08]  # pairs a to j
GENERATORS = "UAUPAPUAPU"
SOURCE = {"U": "magpie_ultra", "A": "magpie_air", "P": "magpie_pro"}


def test_the_best_of_a_category_less_the_sources_offsets_stay(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pool.jsonl"
    with path.open("w") as stream:

        def write(name: str, source: str, category: str, scores: list[float] | None) -> None:
            ratings = {"gold": "A"} | ({"scores": scores} if scores is not None else {})
            row = {"prompt": [{"role": "user", "content": f"pair {name}"}], "responses": [f"{name} 1", f"{name} 2"]}
            stream.write(
                json.dumps({**row, "id": name, "source": source, "category": category, "ratings": ratings}) + "\n"
            )

        for name, score, generator in zip("abcdefghij", SCORES, GENERATORS, strict=True):
            write(name, SOURCE[generator], "Math", [score + 0.02, score - 0.02])
        for number in range(10):
            write(f"chat {number}", "magpie_ultra", "Advice", [0.1 * number + 0.01, 0.1 * number - 0.01])
        write("helpful", "helpsteer2", "Math", None)
        for name in ("safe", "unsafe", "unscored"):
            write(name, "wildguard", "Safety", [0.9, 0.1])

    def run(*arguments: str) -> tuple[str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main([*arguments, "-w", str(workspace.root), "--json"])
        return capsys.readouterr()

    run("data", "import", str(path))
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{sources: {helpster2: 0}}]")
    assert "of a named source; there are helpsteer2, magpie_air" in run("curate", "select", str(rules))[1]
    assert "No such file" in run("curate", "select", "skywork-80")[1]
    assert (
        "no response of wildguard has rewards of the model 'skywork-first'" in run("curate", "select", "skywork-80k")[1]
    )
    with workspace.store.unit() as db:
        rewards = {"safe 1": 1.0, "safe 2": -1.0, "unsafe 1": -1.0, "unsafe 2": 1.0}
        assert db.execute("SELECT count(*) FROM decisions").fetchone() == (0,)
        texts = dict(db.execute("SELECT content, response_id FROM responses").fetchall())
        for version, sign in (("old", -1), ("new", 1)):  # only the last version counts
            scores = [(texts[t], Score(sign * r, "skywork-first", version, "t", 1, False)) for t, r in rewards.items()]
            insert_scores(db, scores, model="skywork-first", version=version, template_hash="t", run_id=None)
    report, again = (json.loads(run("curate", "select", "skywork-80k")[0]) for _ in range(2))
    assert again["sources"] == report["sources"], "the same rules again change nothing"
    with workspace.store.unit() as db:
        rows = db.execute(
            "SELECT q.messages[1].content, p.pool, p.reason FROM pools p JOIN prompts q USING (prompt_id)"
        ).fetchall()
    kept = {text.removeprefix("pair ") for text, pool, _ in rows if pool != "discarded"}
    # Adjusted .10 .02 .14 .06 .05 .08 .09 .06 .12 .08: three of ten in maths, one of ten elsewhere; helpsteer2 whole.
    assert kept == {"c", "i", "a", "chat 9", "helpful", "safe"}
    reasons = {text.removeprefix("pair "): reason for text, _, reason in rows}
    assert reasons["b"] == "score 0.02 is not among the best 30 % of Math"
    assert reasons["unsafe"] == "skywork-first does not prefer the chosen response"
    assert reasons["unscored"] == "a response has no reward of skywork-first"
    assert report["sources"]["helpsteer2"] == {"before": 1, "kept": 1}
    assert sum(report["published"].values()) == 81_973  # the rows of the published set


def test_rules_that_say_nothing_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    for text, message in (
        ("rules: [{sources: {a: 0}, top: 0.1}]", "rating and score"),
        ("rules: [{sources: {a: 0}, top: 2, score: m}]", "at most 1"),
        ("rules: [{source: a}]", "not rules"),
        ("rules: [{sources: [a], top: 0.1, score: m}]", "are tables"),
        ("rules: [{sources: {a: much}}]", "not a number: 'much'"),
        ("rules: [{sources: {a: 0}}, {sources: {a: 0}, agrees: m}]", "more than one rule names a"),
        ("- 1", "needs a list of rules"),
        ("", "needs a list of rules"),
    ):
        path.write_text(text)
        with pytest.raises(BadInputError, match=message):
            read_rules(str(path))
