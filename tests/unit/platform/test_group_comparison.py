"""What the settings of a group are chosen by."""

from dataclasses import dataclass

import pytest

from assay.runs.sweep import GroupMember, GroupRun, compare_group


@dataclass(frozen=True)
class NamedPlan:
    name: str
    group: str = "g"
    force: bool = False


@pytest.mark.parametrize(
    ("figures", "prefer", "metric", "best"),
    [
        (("length", "kl"), "reward", None, None),  # neither longer nor nearer is better
        (("length", "kl"), "kl", "kl", "low"),
        (("length", "kl", "pass"), "reward", "pass", "high"),
        (("length", "reward", "pass"), "reward", "reward", "high"),
    ],
)
def test_a_group_is_chosen_by_a_figure_of_which_one_side_is_better(
    figures: tuple[str, ...], prefer: str, metric: str | None, best: str | None
) -> None:
    runs = [
        GroupRun(GroupMember({"side": side}, 0, NamedPlan(side)), "run", dict.fromkeys(figures, value), {})
        for side, value in (("low", 0.1), ("high", 0.9))
    ]
    result = compare_group(
        runs, prefer=prefer, lower=["kl"], neither=["kl", "length"], data="dev", final_data=None, other_data="more"
    )
    assert result.metric == metric
    assert (result.best and result.best.settings["side"]) == best
    assert ("nothing to choose by" in result.rule) == (metric is None)
