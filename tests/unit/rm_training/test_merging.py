"""WARM: which checkpoints may be averaged, the average itself, the barrier check that decides, ensembles beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pair_files import write_pairs

from assay.domain import Message, PreferencePair
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_scalar_model, load_tokenizer
from assay.models.quiet import quiet_transformers
from assay.models.spec import RewardModelSpec, weights_digest
from assay.runs.lineage import lineage
from assay.score import Score
from assay.statistics.intervals import Interval
from assay.workspace import Workspace
from assay_rm_training.run_settings import EnsembleConfig, MergeConfig
from assay_rm_training.runs.ensemble import build_ensemble
from assay_rm_training.runs.merge import Segment, check_members, merge_models, weighted_weights
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_scorer
from assay_serving.scorer import ScoreItem

PAIRS = [PreferencePair((Message("user", f"q {i}"),), "yes " * (2 + i % 4), "no " * (1 + i % 3)) for i in range(32)]
ITEM = ScoreItem((Message("user", "q"),), "Gold.")
Make = Callable[..., Path]


@pytest.fixture
def make_member(tmp_path: Path) -> Make:
    """A checkpoint of the tiny model; members share most of a head, the rest is drawn by seed."""

    def make(name: str, *, seed: int, sign: float = 1.0, **changes: object) -> Path:
        folder = tmp_path / name
        tokenizer = load_tokenizer("tiny")
        model = load_scalar_model("tiny", tokenizer, dtype=torch.float32, device=torch.device("cpu"), new_head=True)
        with torch.no_grad():
            shape = model.score.weight.shape  # type: ignore[union-attr]
            common, own = (torch.randn(shape, generator=torch.Generator().manual_seed(n)) for n in (100, seed))  # type: ignore[arg-type]
            drawn = common + 0.1 * own
            model.score.weight.copy_(sign * drawn)  # type: ignore[union-attr, operator]
        with quiet_transformers():
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        spec = RewardModelSpec(
            kind="scalar",
            base="tiny",
            template_hash=Renderer(tokenizer, max_length=200).template_hash,
            trained_length=200,
            version=weights_digest(folder),
            parity="passed",
            head_start="zero",
        )
        replace(spec, **changes).write(folder)  # type: ignore[arg-type]
        return folder

    return make


def test_card_A11_a_linear_head_averages_as_its_predictions_do(make_member: Make) -> None:
    """Where only a linear head differs, averaging weights is averaging predictions, as in the card's first example."""
    folders = [make_member(f"m{i}", seed=i) for i in range(3)]
    state = dict(weighted_weights([(folder, 1 / 3) for folder in folders]))
    tokenizer = load_tokenizer(str(folders[0]))
    model = load_scalar_model(str(folders[0]), tokenizer, dtype=torch.float32, device=torch.device("cpu"))
    model.load_state_dict(state)
    from assay_serving.engines.transformers import TransformersScorer

    spec = RewardModelSpec.read(folders[0])
    assert spec is not None
    averaged = TransformersScorer(model, Renderer(tokenizer, max_length=200), spec, name="average").score([ITEM])[0]
    members = [open_scorer(ModelConfig(str(folder), device="cpu")).score([ITEM])[0] for folder in folders]
    assert isinstance(averaged, Score)
    rewards = [score.reward for score in members if isinstance(score, Score)]
    assert averaged.reward == pytest.approx(float(np.mean(rewards)), abs=1e-5)
    assert max(rewards) - min(rewards) > 0.01


def test_card_A11_in_general_the_two_differ() -> None:
    weights = np.array([[1.0, 0.0], [0.0, 2.0], [2.0, 1.0]])
    x = np.array([1.0, 1.0])
    assert float(weights.mean(axis=0) @ x) == pytest.approx(2.0)
    assert float((weights @ x).mean()) == pytest.approx(2.0)
    theta = torch.tensor([-0.5, 0.5])
    assert float(torch.relu(theta.mean())) == 0.0
    assert float(torch.relu(theta).mean()) == pytest.approx(0.25)


def test_the_average_is_taken_in_float32_and_weights_add_up(make_member: Make) -> None:
    first, second = make_member("a", seed=1), make_member("b", seed=2)
    state = dict(weighted_weights([(first, 0.25), (second, 0.75)]))
    one, two = (dict(weighted_weights([(folder, 1.0)])) for folder in (first, second))
    for name, tensor in state.items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, 0.25 * one[name] + 0.75 * two[name])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base": "smollm2"}, "base 'smollm2'"),
        ({"template_hash": "0123"}, "template_hash '0123'"),
        ({"head_start": "normal, seed 3"}, "its head started as 'normal, seed 3'"),
        ({"kind": "principle"}, "scalar ones are averaged"),
        ({"parity": "failed: response 1"}, "parity failed"),
        ({"version": "0123"}, "its spec says 0123"),
    ],
)
def test_what_has_no_meaningful_average_is_refused(make_member: Make, changes: dict[str, str], said: str) -> None:
    folders = [make_member("a", seed=1), make_member("b", seed=2, **changes)]
    with pytest.raises(BadInputError, match=said) as caught:
        check_members(folders)
    assert str(folders[1]) in str(caught.value)


def test_adapters_strangers_and_other_configurations_are_refused(make_member: Make, tmp_path: Path) -> None:
    first, second = make_member("a", seed=1), make_member("b", seed=2)
    adapters = tmp_path / "adapters"
    shutil.copytree(second, adapters)
    (adapters / "adapter_config.json").write_text("{}")
    with pytest.raises(BadInputError, match="holds adapters"):
        check_members([first, adapters])
    stranger = tmp_path / "stranger"
    shutil.copytree(second, stranger, ignore=shutil.ignore_patterns("assay.json"))
    with pytest.raises(BadInputError, match="has no spec"):
        check_members([first, stranger])
    config = (second / "config.json").read_text()
    (second / "config.json").write_text(config.replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 0.001'))
    spec = RewardModelSpec.read(second)
    assert spec is not None
    replace(spec, version=weights_digest(second)).write(second)
    with pytest.raises(BadInputError, match="differs in rms_norm_eps"):
        check_members([first, second])


def test_merged_models_are_saved_with_parity_and_lineage(
    make_member: Make, workspace: Workspace, tmp_path: Path
) -> None:
    members = [make_member(f"m{i}", seed=i) for i in range(3)]
    held_out = tmp_path / "held-out.jsonl"
    write_pairs(held_out, PAIRS)
    config = MergeConfig(tuple(map(str, members)), str(held_out), "warm", points=(0.25, 0.75), device="cpu")
    merged = merge_models(workspace, config)
    assert merged.path == workspace.models / "warm"
    assert merged.pairs == len(PAIRS)
    assert len(merged.segments) == 6  # three pairs of members, two points each
    assert merged.head_start == "zero"
    for segment in merged.segments:
        ends = merged.accuracies[segment.first], merged.accuracies[segment.second]
        assert segment.interpolated == pytest.approx((1 - segment.t) * ends[0] + segment.t * ends[1])
        assert segment.gap == pytest.approx(segment.accuracy - segment.interpolated)
    spec = RewardModelSpec.read(merged.path)
    assert spec is not None
    assert spec.parity == "passed"
    assert (spec.base, spec.run_id, spec.calibration) == ("tiny", merged.run_id, None)
    card = (merged.path / "README.md").read_text()
    assert all(str(member) in card for member in members)
    assert "## Barrier check" in card
    assert "## Parity" in card
    assert merged.artifact_id is not None
    tree = str(lineage(workspace, merged.artifact_id, "up"))
    assert merged.run_id in tree
    assert all(str(member) in tree for member in members)
    with pytest.raises(BadInputError, match="exists"):
        merge_models(workspace, config)


@pytest.mark.slow
def test_a_barrier_saves_nothing_unless_told_to(make_member: Make, workspace: Workspace, tmp_path: Path) -> None:
    """Two opposite heads: at the middle every reward is 0, every pair a tie, and the accuracy falls to 0."""
    members = [make_member("up", seed=1), make_member("down", seed=1, sign=-1.0)]
    held_out = tmp_path / "held-out.jsonl"
    write_pairs(held_out, PAIRS)
    config = MergeConfig(tuple(map(str, members)), str(held_out), "none", device="cpu")
    merged = merge_models(workspace, config)
    [segment] = merged.segments
    assert segment.barrier
    assert segment.gap < -0.3
    assert merged.path is None
    assert not (workspace.models / "none").exists()
    kept = merge_models(workspace, replace(config, allow_barrier=True))
    assert kept.path is not None
    assert "BARRIER" in (kept.path / "README.md").read_text()


def test_a_barrier_is_a_fall_that_chance_does_not_explain() -> None:
    segment = Segment("a", "b", 0.5, 0.6, 0.65, -0.05, Interval(-0.12, 0.02))
    assert not segment.barrier
    assert replace(segment, interval=Interval(-0.12, -0.01)).barrier


@pytest.mark.parametrize(("members", "points"), [(("a", "a"), (0.5,)), (("a", "b"), (0.0,)), (("a", "b"), ())])
def test_wrong_settings(members: tuple[str, ...], points: tuple[float, ...]) -> None:
    with pytest.raises(BadInputError):
        MergeConfig(members, "data", "name", points=points)


def test_an_ensemble_is_made_and_opens_by_its_name(make_member: Make, workspace: Workspace, tmp_path: Path) -> None:
    members = [make_member(f"m{i}", seed=i) for i in range(3)]
    data = tmp_path / "pairs.jsonl"
    write_pairs(data, PAIRS)
    config = EnsembleConfig(
        tuple(map(str, members)), str(data), "ens", combine="uwo", eval_data=str(data), device="cpu"
    )
    made = build_ensemble(workspace, config)
    assert made.responses == 2 * len(PAIRS)
    assert len(made.accuracies) == 4
    assert made.uncertainty is not None
    assert made.uncertainty.pairs == len(PAIRS)
    scorer = open_scorer(
        ModelConfig("ens", device="cpu"),
        workspace=workspace.root,
    )
    assert (scorer.info.name, scorer.info.version) == ("ens", made.version)
    [score] = scorer.score([ITEM])
    assert isinstance(score, Score)
    assert score.uncertainty is not None
    assert score.uncertainty > 0
    with pytest.raises(BadInputError, match="named twice"):
        build_ensemble(workspace, replace(config, members=("a", "a")))
