"""What a plug-in must have to stand in a slot: every shipped one does, and one that does not is refused by name."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from torch import Tensor

from assay.cli.main import main
from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.plugins import protocols
from assay_policy_training.recipe import loading
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


def _required(member: type[Any]) -> bool:
    return any(f.init and f.default is MISSING and f.default_factory is MISSING for f in fields(member))


@pytest.mark.parametrize("slot", sorted(slot for slot, kind in SLOTS.items() if kind.members))
def test_a_file_beside_the_recipe_may_fill_any_slot(slot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that extends a shipped one, named from the recipe's folder; a plan finds it from any other."""
    members = {target: SLOTS[slot].find(name) for name, target in SLOTS[slot].members.items()}
    target, parent = next((target, member) for target, member in members.items() if not _required(member))
    module, name = target.split(":")
    source = f"from {module} import {name}\n\n\nclass Own({name}):\n    pass\n"
    (tmp_path / "own.py").write_text(source, encoding="utf-8")
    reader = loading._Reader(tmp_path)
    plugin = reader._plugin(slot, {"kind": "own.py:Own"}, slot)
    assert isinstance(plugin, parent)
    section = loading._plain(slot, plugin)
    assert section["kind"] == f"{tmp_path / 'own.py'}:Own"
    monkeypatch.chdir("/")
    assert loading._Reader(None)._plugin(slot, section, slot) == plugin


@pytest.mark.slow
def test_packages_bring_members_by_entry_points(tmp_path: Path) -> None:
    """A modulator and a reward function of an installed package, found by their short names in a new process."""
    (tmp_path / "their_package.py").write_text(
        "from dataclasses import dataclass\n\n\n@dataclass(frozen=True)\nclass Third:\n    share: float = 0.3\n"
        "    needs = frozenset()\n\n    def modulate(self, batch):\n        return self.share * batch.adv\n\n\n"
        "def short(prompt, response):\n    return -float(len(response))\n",
        encoding="utf-8",
    )
    metadata = tmp_path / "their_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n", encoding="utf-8")
    points = "[assay.plugins]\nmodulator.third = their_package:Third\nreward.short = their_package:short\n"
    (metadata / "entry_points.txt").write_text(points, encoding="utf-8")
    program = (
        "from contextlib import ExitStack\n"
        "from assay.domain import Message\n"
        "from assay_policy_training.core.prompt import PromptItem\n"
        "from assay_policy_training.recipe.loading import load_recipe, recipe_to_dict\n"
        "from assay_policy_training.rollouts.open_rewards import open_rewards\n"
        "recipe = load_recipe('grpo', ['modulators=[{kind: third, share: 0.2}]'])\n"
        "print(recipe_to_dict(recipe)['modulators'])\n"
        "with ExitStack() as stack:\n"
        "    (source,) = open_rewards(stack, ['short'], [None], wait=0, deadline=1)\n"
        "    print(source.score([PromptItem((Message('user', 'hi'),))], ['abc']).parts['short'].tolist())\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    child = [sys.executable, "-c", program]
    ended = subprocess.run(child, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines() == ["[{'kind': 'third', 'share': 0.2}]", "[-3.0]"], ended.stderr


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
        ("metrics=[{kind: nonsense}]", "no policy_metric is named 'nonsense'"),
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
