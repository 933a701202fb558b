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
from assay_policy_training.plugins import protocols
from assay_policy_training.recipe.loading import load_recipe, recipe_from_dict, recipe_to_dict
from assay_policy_training.recipe.slots import SLOTS

PROTOCOLS = {
    "source": protocols.PromptOrder,
    "contexts": protocols.ContextPolicy,
    "sampler": protocols.SamplerPlan,
    "reward": protocols.RewardComposition,
    "filters": protocols.GroupFilter,
    "shaping": protocols.RewardShaper,
    "critic": protocols.CriticPlan,
    "estimator": protocols.AdvantageEstimator,
    "modulators": protocols.AdvantageModulator,
    "corrections": protocols.BehaviourCorrection,
    "replay": protocols.Replay,
    "token_weights": protocols.TokenWeight,
    "aggregation": protocols.LossAggregator,
    "auxiliary": protocols.AuxiliaryLoss,
    "schedules": protocols.Schedule,
    "metrics": protocols.StepMetrics,
    "stop": protocols.StopRule,
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
    members = {name for name in vars(PROTOCOLS[slot]) if not name.startswith("_") or name == "__call__"}
    assert set(SLOTS[slot].requires) == members


def test_every_shipped_plug_in_is_accepted_and_named() -> None:
    for kind in SLOTS.values():
        for name in kind.members:
            assert kind.name_of(kind.find(name)) == name


def test_plug_in_from_a_file_beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    source = "from dataclasses import dataclass\n\n\n@dataclass(frozen=True)\nclass Third:\n    share: float = 0.3\n"
    source += "    needs = frozenset()\n\n    def modulate(self, batch):\n        return self.share * batch.adv\n"
    (tmp_path / "mine" / "thirds.py").write_text(source, encoding="utf-8")
    text = "name: mine\nestimator: {kind: grpo}\nobjective: {kind: ppo_clip}\n"
    text += "modulators: [{kind: 'thirds.py:Third', share: 0.2}]\n"
    (tmp_path / "mine" / "mine.yaml").write_text(text, encoding="utf-8")
    recipe = load_recipe(str(tmp_path / "mine" / "mine.yaml"))
    (section,) = recipe_to_dict(recipe)["modulators"]
    assert section == {"kind": f"{tmp_path / 'mine' / 'thirds.py'}:Third", "share": 0.2}
    monkeypatch.chdir(tmp_path)  # a resumed run finds it from any folder
    assert recipe_from_dict(recipe_to_dict(recipe)) == recipe


def test_plug_in_in_its_own_slot() -> None:
    assert load_recipe("grpo", ["modulators=[{kind: 'own_plugins:Halved'}]"]).modulators


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        (
            "modulators=[{kind: 'own_plugins:Nothing'}]",
            "'own_plugins:Nothing' is no modulator: it has no needs and no modulate",
        ),
        ("estimator.kind=own_plugins:Halved", "is no estimator: it has no __call__"),
        ("metrics=[{kind: nonsense}]", "no policy_metric is named 'nonsense'; none is installed"),
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
