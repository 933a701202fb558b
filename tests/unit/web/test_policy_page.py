"""The page of a policy training: parts of the reward, missing ones, a held-out reward that falls behind, rollouts."""

from __future__ import annotations

from typing import Any

from assay_web.report.content import LineChart, Report, Samples, Section, Table, Text
from assay_web.report.pages.policy import policy_sections
from assay_web.report.render import render


def row(step: int, **more: Any) -> dict[str, Any]:
    return {
        "step": step,
        "reward_mean": 0.1 * step,
        "reward_std": 0.2,
        "reward_rm_mean": 0.3,
        "reward_length_mean": -0.1,
        "rollouts": 8,
        "rollouts_trained": 6,
        "rewards_missing": 1,
        "kl_k3": 0.01 * step,
        "seconds": 2.0,
        "seconds_sample": 1.0,
        "seconds_update": 1.0,
        "tokens_per_second": 50.0,
        **more,
    }


def rollout(step: int, number: int, reward: float | None) -> dict[str, Any]:
    return {
        "step": step,
        "uid": f"{step}.{number}",
        "prompt": [{"role": "user", "content": "say <hi>"}],
        "response": f"answer {number}",
        "reward": reward,
        "parts": {"rm": reward},
        "advantage": 0.5,
        "tokens": 7,
        "truncated": number == 0,
        "trained": reward is not None,
        "failures": [] if reward is not None else [{"code": "timeout", "message": "late"}],
    }


def section(sections: list[Section], title: str) -> Section:
    return next(s for s in sections if s.title == title)


def charts(found: Section) -> dict[str, LineChart]:
    return {block.title: block for block in found.blocks if isinstance(block, LineChart)}


def test_parts_missing_rewards_and_rollouts() -> None:
    rollouts = [rollout(1, 0, 9.0), *(rollout(2, n, 0.1 * n) for n in range(20)), rollout(2, 20, None)]
    sections = policy_sections([row(1), row(2)], rollouts)
    rewards = charts(section(sections, "Reward"))
    assert [series.name for series in rewards["Parts of the reward"].series] == ["rm", "length"]
    assert list(rewards["Rollouts without a reward"].series[0].y) == [1, 1]
    (table, samples) = section(sections, "Rollouts").blocks
    assert isinstance(table, Table)
    assert isinstance(samples, Samples)
    assert {cells[1] for cells in table.rows} >= {0.1 * 19, 0.0, None}, "best, worst and one without a reward"
    assert 9.0 not in {cells[1] for cells in table.rows}, "of another step"
    assert ["not trained on", "timeout"] in [list(sample.tags) for sample in samples.samples]
    assert "say &lt;hi&gt;" in render(Report("run", sections))


def test_over_optimisation_is_shown_where_it_was_watched() -> None:
    plain = policy_sections([row(1)], [])
    assert "Over-optimisation" not in [s.title for s in plain]
    rows = [row(n, held_out_reward_mean=1.0 - 0.1 * n, overoptimised=float(n >= 3)) for n in range(1, 5)]
    watched = section(policy_sections(rows, []), "Over-optimisation")
    verdict = watched.blocks[0]
    assert isinstance(verdict, Text)
    assert "from step 3 on" in verdict.text
    by_distance = charts(watched)["The same by distance"]
    assert list(by_distance.series[1].x or ()) == [0.01, 0.02, 0.03, 0.04]


def test_a_run_that_has_just_begun() -> None:
    assert "nothing was measured yet" in render(Report("run", policy_sections([], [])))


def test_curves_of_a_critic_go_by_the_names_it_measures_them_by() -> None:
    rows = [row(n, loss=0.1, grad_norm=0.5, value_loss=0.2, value_grad_norm=0.3) for n in (1, 2)]
    drawn = charts(section(policy_sections(rows, []), "Optimiser"))
    assert {s.name: list(s.y) for s in drawn["Loss"].series} == {"policy": [0.1, 0.1], "critic": [0.2, 0.2]}
    assert {s.name: list(s.y) for s in drawn["Gradient norm"].series} == {"policy": [0.5, 0.5], "critic": [0.3, 0.3]}
