"""What a plan proposes where the training does not fit: fewer tokens a pass before all else."""

from dataclasses import dataclass, replace

import pytest

from assay.planning.cards import GIB, Card
from assay.planning.fake_step import ACTIVATIONS, OPTIMISER, PARAMETERS, StepCost
from assay.planning.plan import MeasuredStep, make_plan
from assay.planning.request import plan_progress

CARD = Card("small", 8 * GIB, {"float32": 1e11}, 1e10, kernels="cpu")


@dataclass(frozen=True)
class WholeItems:
    """A training of items of 86 tokens: `fixed` GiB and one for each item of a pass."""

    fixed: int
    setting: str
    sizes: tuple[int, int] = (86, 1024)
    ranks: int = 1

    def measure(self, size: int) -> MeasuredStep:
        peak = {PARAMETERS: self.fixed * GIB, OPTIMISER: 0, ACTIVATIONS: size // 86 * GIB}
        return MeasuredStep(StepCost(peak), size, 1, size)

    def changes(self) -> list[list[tuple[str, "WholeItems"]]]:
        return [[("--lora 16", replace(self, fixed=1))]]


@pytest.mark.parametrize("memory", [8, 12])
@pytest.mark.parametrize("setting", ["--micro-batch-tokens ", "--set optimisation.micro_batch_tokens="])
def test_fewer_tokens_are_the_first_change(setting: str, memory: int) -> None:
    steps: list[int] = []
    card = replace(CARD, memory=memory * GIB)
    plan = make_plan(WholeItems(2, setting[:-1]), card, changes=True, advance=steps.append)
    assert not plan.fits
    assert len(steps) >= 5  # each size that is measured, of the changes too
    (change, fewer), (other, _) = plan.alternatives
    assert change == f"{setting}{plan.largest}"
    assert fewer.fits
    assert plan.largest == fewer.size == (memory - 2) * 86
    assert other == "--lora 16"
    assert f"{setting}1024 (at most {plan.largest})" in plan.line


def test_where_one_item_is_too_much_they_are_no_change() -> None:
    plan = make_plan(WholeItems(8, "--micro-batch-tokens"), CARD, changes=True)
    assert plan.largest == 0
    assert [change for change, _ in plan.alternatives] == ["--lora 16"]


def test_planning_says_what_it_does_before_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with plan_progress() as advance:
        assert "planning: the training's step is run without its numbers" in capsys.readouterr().err
        make_plan(WholeItems(2, "--micro-batch-tokens"), CARD, changes=False, advance=advance)
    assert "planning: 2 measured sizes in" in capsys.readouterr().err


@dataclass(frozen=True)
class OnePass(WholeItems):
    """A training whose step fits one pass of any size, but for 50 bytes of rounding."""

    def measure(self, size: int) -> MeasuredStep:
        return MeasuredStep(StepCost({PARAMETERS: GIB, OPTIMISER: 0, ACTIVATIONS: 50 * (size > 86)}), 86, 1, 86)


def test_a_step_that_fits_one_pass_has_no_larger_one() -> None:
    assert make_plan(OnePass(1, "--micro-batch-tokens"), CARD, changes=False).largest == 1024
