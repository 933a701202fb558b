"""What a plug-in must have to stand in a slot: every shipped one does, and one that does not is refused by name."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
from torch import Tensor

from assay.cli.main import main
from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.plugins import protocols as slots
from assay_policy_training.plugins.registry import MEMBERS, SLOTS, plugin_class
from assay_policy_training.recipe.loading import load_recipe

PROTOCOLS = {
    "source": slots.PromptOrder,
    "contexts": slots.ContextPolicy,
    "sampler": slots.SamplerPlan,
    "reward": slots.RewardComposition,
    "filters": slots.GroupFilter,
    "shaping": slots.RewardShaper,
    "critic": slots.CriticPlan,
    "estimator": slots.AdvantageEstimator,
    "modulators": slots.AdvantageModulator,
    "corrections": slots.BehaviourCorrection,
    "replay": slots.Replay,
    "token_weights": slots.TokenWeight,
    "aggregation": slots.LossAggregator,
    "auxiliary": slots.AuxLoss,
    "schedules": slots.Schedule,
    "metrics": slots.Metrics,
    "stop": slots.StopRule,
}


@dataclass(frozen=True)
class Halved:
    """A modulator."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def modulate(self, batch: RolloutBatch) -> Tensor:
        assert batch.adv is not None
        return 0.5 * batch.adv


@dataclass(frozen=True)
class Nothing:
    """No plug-in at all."""

    factor: float = 1.0


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("own_plugins")
    made.__dict__.update(Halved=Halved, Nothing=Nothing)
    monkeypatch.setitem(sys.modules, "own_plugins", made)


@pytest.mark.parametrize("slot", sorted(PROTOCOLS))
def test_members_are_the_protocols(slot: str) -> None:
    own = {name for name in vars(PROTOCOLS[slot]) if not name.startswith("_") or name == "__call__"}
    assert set(MEMBERS[slot]) == own


def test_every_shipped_plug_in_is_taken() -> None:
    assert set(MEMBERS) == set(SLOTS)
    for slot, kinds in SLOTS.items():
        for kind in kinds:
            assert plugin_class(slot, kind, slot)


def test_plug_in_in_its_own_slot() -> None:
    assert load_recipe("grpo", ["modulators=[{kind: 'own_plugins:Halved'}]"]).modulators


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        (
            "modulators=[{kind: 'own_plugins:Nothing'}]",
            "'own_plugins:Nothing' cannot be a plug-in of modulators: it has no needs and no modulate",
        ),
        ("estimator.kind=own_plugins:Halved", "cannot be a plug-in of estimator: it has no __call__"),
        ("metrics=[{kind: nonsense}]", "unknown kind 'nonsense'; none ships: module:Class"),
    ],
)
def test_plug_in_in_the_wrong_slot_is_refused_at_the_start(override: str, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        load_recipe("grpo", [override])


def test_broken_file_is_one_line_wherever_it_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nestimator: {kind: rloo\n", encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        main(["recipes", str(path)])
    assert end.value.code == 2
    assert "mine.yaml: not YAML" in capsys.readouterr().err
