"""`assay eval --on`: the figures of one process, nothing scored twice after an interruption, what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from assay_command import Run

from assay.compute.local import LocalExecutor
from assay.compute.stage import FOLDER
from assay.conversation.message import response_of
from assay.domain import Message
from assay.errors import BackendError
from assay.models.readings import Stepwise
from assay.models.spec import RewardModelSpec
from assay.workspace import Workspace
from assay_rm_training.benchmarks.item import BenchmarkItem
from assay_rm_training.benchmarks.scoring import score_items
from assay_serving import sharded_scorer
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem
from assay_serving.sharded_scorer import ItemScoring, ShardedScorer


def items() -> list[ScoreItem]:
    texts = [" ".join(["word"] * n) for n in range(1, 7)]
    turns = [("assistant", "one"), ("user", "more"), ("assistant", "two")]
    typed = response_of([{"role": role, "content": content} for role, content in turns])
    return [ScoreItem((Message("user", f"Ümlaut {n} 漢字"),), text) for n, text in enumerate([*texts, typed])]


def test_scores_are_those_of_one_process_and_none_is_made_twice(
    workspace: Workspace, rule_reward: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded_scorer, "SHARD", 3)
    config, mapped, plain_map = ModelConfig(str(rule_reward)), list[int](), ItemScoring.map

    def breaks_at_the_second(self: ItemScoring, shard: pa.Table) -> pa.Table:
        if mapped:
            raise BackendError("the machine went away")
        mapped.append(shard.num_rows)
        return plain_map(self, shard)

    monkeypatch.setattr(ItemScoring, "map", breaks_at_the_second)
    with pytest.raises(BackendError, match="went away"):
        ShardedScorer(workspace, config, LocalExecutor()).score(items())

    def counted(self: ItemScoring, shard: pa.Table) -> pa.Table:
        mapped.append(shard.num_rows)
        return plain_map(self, shard)

    monkeypatch.setattr(ItemScoring, "map", counted)
    steps: list[int] = []
    scorer = ShardedScorer(workspace, config, LocalExecutor())
    results = scorer.score(items(), steps.append)
    alone = load_scorer(config)
    assert results == alone.score(items())
    assert scorer.info == alone.info
    assert (mapped, steps) == ([3, 3, 1], [3, 3, 1])
    assert not any((workspace.root / FOLDER).iterdir())


def test_a_process_reward_model_reads_solutions_once_there_too(
    workspace: Workspace, tiny_reward_model: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_reward_model, tmp_path / "prm"))
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    replace(spec, stepwise=Stepwise("\n", "product")).write(folder)
    config, steps = ModelConfig(str(folder), device="cpu"), (("a", "b"), ("c",))
    item = BenchmarkItem("1", (Message("user", "p"),), ("a", "a\n\nb", "c"), (1.0, 1.0, 0.0), steps=steps)
    sharded = score_items(ShardedScorer(workspace, config, LocalExecutor()), [item])
    assert sharded == score_items(load_scorer(config), [item])
    assert len(sharded[0].scores or ()) == 3


def assert_close(one: Any, other: Any) -> None:
    """Equal, figures within rounding: batches of other sizes add up in another order."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_close(one[name], other[name])
    elif isinstance(one, list):
        for mine, theirs in zip(one, other, strict=True):
            assert_close(mine, theirs)
    else:
        assert one == (pytest.approx(other, rel=1e-4, abs=1e-6) if isinstance(one, float) else other)


@pytest.mark.slow
def test_figures_are_those_of_one_process(
    workspace: Workspace, tiny_reward_model: Path, tmp_path: Path, assay: Run
) -> None:
    pairs, bench = tmp_path / "pairs.jsonl", tmp_path / "bench.jsonl"
    pairs.write_text(
        "".join(json.dumps({"prompt": f"Say {n}.", "chosen": f"{n} " * 3, "rejected": "no"}) + "\n" for n in range(12))
    )
    rows = [
        {"pair_id": f"u-{n}", "source": "livebench-math", "question": f"Question {n}?", "response_model": "m"}
        | {"response_A": "+" * n, "response_B": "-", "label": "A>B"}
        for n in range(1, 9)
    ]
    bench.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for command in (("--data", pairs), ("--bench", "judgebench", "--path", bench)):
        told: list[dict[str, Any]] = []
        for on in ("local", "local:1"):
            arguments = ("--model", tiny_reward_model, *command, "--on", on, "--json", "-w", workspace.root)
            code, out, err = assay("eval", *arguments)
            assert code == 0, err
            told.append({name: value for name, value in json.loads(out).items() if name not in ("run_id", "folder")})
        assert_close(*told)


def test_what_cannot_be_scored_elsewhere_is_one_line(
    workspace: Workspace, tiny_principle_model: Path, rule_reward: Path, tmp_path: Path, assay: Run
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"prompt": "Say it.", "chosen": "yes", "rejected": "no"}) + "\n")
    here = ("-w", workspace.root)
    for arguments, complaint in (
        (("--model", tiny_principle_model, "--data", pairs, *here), "judged responses are scored here"),
        (("--model", "http://127.0.0.1:9", "--bench", "pairs", "--path", pairs, *here), "a reward server scores where"),
    ):
        code, _, err = assay("eval", *arguments, "--on", "local:1")
        assert (code, complaint in err) == (2, True), err
    assert not (workspace.root / FOLDER).exists()
