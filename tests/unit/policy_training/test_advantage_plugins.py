"""Estimators and modulators on whole batches: blind to order and padding, to rows without a reward, to `loss_mask`;
what they remember survives a restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from rollout_rows import rollouts
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.plugins.auxiliary.entropy import Magic
from assay_policy_training.plugins.estimators.canon import Canon
from assay_policy_training.plugins.estimators.gdpo import Gdpo
from assay_policy_training.plugins.estimators.group_relative import LitePpo, Ngrpo, Opo, PassAtK
from assay_policy_training.plugins.estimators.optimal_token_baseline import OptimalTokenBaseline
from assay_policy_training.plugins.estimators.signed import Signed
from assay_policy_training.plugins.modulators.effective_rank import EffectiveRank, prefix_ranks
from assay_policy_training.plugins.modulators.exploration import Exploration
from assay_policy_training.plugins.modulators.future_kl import FutureKl
from assay_policy_training.plugins.modulators.steps import Empg
from assay_policy_training.plugins.protocols import StepReport

#: Groups lie about: rows of one group are never side by side.
UID = ["a", "b", "c", "a", "b", "c", "a", "b", "a", "c", "b"]
LENGTHS = [7, 3, 5, 9, 1, 6, 4, 8, 2, 9, 5]
MISSING = 6


def batch() -> RolloutBatch:
    """11 rows of 3 groups, one of them without a reward, with everything that a plug-in here reads."""
    draw = torch.Generator().manual_seed(1)
    rows, width = len(LENGTHS), max(LENGTHS)

    def noise(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=draw)

    acc = (noise(rows) > 0.5).double()
    style = noise(rows).double()
    reward = 0.7 * acc + 0.3 * style
    reward[MISSING] = torch.nan
    made = rollouts(
        LENGTHS,
        uid=UID,
        reward=reward,
        acc=acc,
        r_parts={"verifier": acc, "style": style},
        responses=tuple(f"response {row}" for row in range(rows)),
    )
    mask = made.mask
    segment = (torch.arange(width) // 3).expand(rows, width)
    return made.with_(
        segment=segment,
        logp_old=-3 * noise(rows, width) * mask,
        entropy=2 * noise(rows, width) * mask,
        adv=(noise(rows, 1) - 0.5) * mask * made.valid[:, None],
        extras={
            "sum_pi_sq": noise(rows, width) * mask,
            "hidden": noise(rows, width, 6) * mask[..., None],
            "teacher_kl": noise(rows, width) * mask,
        },
    )


def warm(plugin: EffectiveRank) -> EffectiveRank:
    plugin.running = {"er": 2.0, "erv": 0.2, "era": 0.0, "reward": 0.5}
    return plugin


PLUGINS: dict[str, Any] = {
    "optimal_token_baseline": OptimalTokenBaseline(),
    "optimal_token_baseline with its tail": OptimalTokenBaseline(zero_tail=False),
    "ngrpo": Ngrpo(),
    "canon by entropy": Canon(),
    "canon by length": Canon(metric="length", alpha=0.8, mu=0.3),
    "canon by accuracy": Canon(schedule="accuracy"),
    "signed": Signed(),
    "opo": Opo(),
    "pass_at_k": PassAtK(by_std=True),
    "gdpo": Gdpo({"verifier": 1.0, "style": 0.5}),
    "gdpo over rows": Gdpo(over="rows"),
    "lite_ppo": LitePpo(),
    "empg": Empg(),
    "effective_rank": warm(EffectiveRank(stride=2)),
    "exploration": Exploration(),
    "future_kl": FutureKl(),
}


def advantage(name: str, of: RolloutBatch) -> Tensor:
    plugin = deepcopy(PLUGINS[name])
    if hasattr(plugin, "modulate"):
        found: Tensor = plugin.modulate(of)
        return found
    found, returns = plugin(of)
    assert returns is None
    return found


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


@pytest.fixture(params=PLUGINS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_off_the_mask_and_without_a_reward_there_is_nothing(name: str) -> None:
    whole = batch()
    found = advantage(name, whole)
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert not found[~whole.mask].any()
    assert not found[MISSING].any()
    assert found.abs().max() > 0.05


def test_the_order_of_rows_plays_no_part(name: str) -> None:
    whole = batch()
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(3))
    close(advantage(name, whole.select(order)), advantage(name, whole)[order])


def test_names_of_groups_play_no_part(name: str) -> None:
    whole = batch()
    renamed = whole.with_(uid=tuple({"a": "9.1", "b": "z", "c": "0"}[uid] for uid in whole.uid))
    close(advantage(name, renamed), advantage(name, whole))


def test_padding_plays_no_part(name: str) -> None:
    whole = batch()

    def wider(values: Tensor) -> Tensor:
        return torch.cat([values, torch.zeros_like(values[:, :4])], 1)

    padded = whole.with_(
        **{
            field: wider(getattr(whole, field))
            for field in ("tokens", "mask", "loss_mask", "logp_mu", "token_version", "logp_old", "entropy", "adv")
        },
        segment=wider(whole.segment) if whole.segment is not None else None,
        extras={key: wider(values) for key, values in whole.extras.items()},
    )
    found = advantage(name, padded)
    close(found[:, : whole.mask.shape[1]], advantage(name, whole))
    assert not found[:, whole.mask.shape[1] :].any()


def test_a_missing_reward_changes_nothing_for_the_others(name: str) -> None:
    whole = batch()
    others = [row for row in range(len(whole)) if row != MISSING]
    close(advantage(name, whole)[others], advantage(name, whole.select(others)))


def test_a_narrowed_loss_mask_changes_no_statistic(name: str) -> None:
    """Released code let rejected tokens out of its statistics, because it had one mask for both."""
    whole = batch()
    narrow = whole.with_(loss_mask=whole.loss_mask & (torch.arange(whole.mask.shape[1]) % 2 == 0))
    close(advantage(name, narrow), advantage(name, whole))


GROUP_RELATIVE = [key for key, plugin in PLUGINS.items() if getattr(plugin, "group_relative", False)]


@pytest.mark.parametrize("name", GROUP_RELATIVE)
def test_a_row_alone_in_its_group_gets_nothing(name: str) -> None:
    """Released code gives it its reward, or divides by a deviation of 1."""
    whole = batch()
    alone = whole.with_(uid=tuple("d" if row == 3 else uid for row, uid in enumerate(whole.uid)))
    assert not advantage(name, alone)[3].any()
    assert advantage(name, whole)[3].any() or name.startswith("pass_at_k")


def test_signed_needs_no_group() -> None:
    whole = batch().with_(uid=tuple(str(row) for row in range(len(UID))))
    found = advantage("signed", whole)
    assert whole.acc is not None
    first = found[:, 0]
    correct = first[whole.valid & (whole.acc == 1)]
    assert correct.tolist() == pytest.approx([0.1] * len(correct))
    assert len(correct) > 0
    assert set(first[whole.valid & (whole.acc == 0)].tolist()) == {-1.0}


def test_signed_reads_the_reward_only_without_a_verifier() -> None:
    whole = batch().with_(acc=torch.tensor([1.0, torch.nan] + [0.0] * 9, dtype=torch.float64))
    whole = whole.with_(reward=torch.tensor([0.1, 0.9] + [0.9] * 9, dtype=torch.float64))
    alone = whole.with_(uid=tuple(str(row) for row in range(len(UID))))
    assert advantage("signed", alone)[:3, 0].tolist() == pytest.approx([0.1, 0.1, -1.0])
    assert advantage("signed", whole)[1, 0] == 0, "its check came to no verdict: others of the group have one"


def test_weights_of_a_correction_enter_the_baseline_squared() -> None:
    whole = batch()
    weight = torch.rand(whole.mask.shape, generator=torch.Generator().manual_seed(9)) + 0.5
    found = advantage("optimal_token_baseline", whole.with_(is_weight=weight))
    assert whole.logp_old is not None
    energy = 1 - 2 * whole.logp_old.exp() + whole.extras["sum_pi_sq"]
    scaled = (energy.clamp(min=0) * weight**2 - 1 + 2 * whole.logp_old.exp()) * whole.mask
    close(found, advantage("optimal_token_baseline", whole.with_(extras={"sum_pi_sq": scaled})))
    assert (found - advantage("optimal_token_baseline", whole)).abs().max() > 1e-3


def test_dense_rewards_count_from_their_token_on() -> None:
    whole = batch()
    dense = torch.zeros(whole.mask.shape, dtype=torch.float64)
    dense[3, 2] = 5.0
    change = advantage("optimal_token_baseline", whole.with_(dense=dense)) - advantage("optimal_token_baseline", whole)
    assert (change[3, :3] > 0.1).all()
    assert not change[3, 3:].any()


def test_canon_breaks_ties_by_what_was_said() -> None:
    """Rows of equal length are common; which half they are in must not follow from where they lie in the batch."""
    reward = torch.tensor([1.0, 0.0, 0.2, 0.7], dtype=torch.float64)
    tied = rollouts([4, 4, 4, 4], uid=["a"] * 4, reward=reward, responses=("d", "a", "c", "b"))
    found, _ = Canon(metric="length", mu=1.0)(tied)
    assert found[:, 0].tolist() == pytest.approx([1 - 0.35, 0 - 0.6, 0.2 - 0.35, 0.7 - 0.6])
    order = [2, 0, 3, 1]
    again, _ = Canon(metric="length", mu=1.0)(tied.select(order))
    assert again[:, 0].tolist() == pytest.approx(found[order, 0].tolist())


def test_canon_follows_accuracy() -> None:
    whole = batch()
    assert whole.acc is not None
    assert Canon(schedule="accuracy").mixed(whole) == pytest.approx(float(whole.acc[whole.valid].mean()))
    assert Canon(mu=0.2).mixed(whole) == 0.2
    assert Canon().needs == {"entropy"}
    assert Canon(metric="length").needs == frozenset()


def test_ngrpo_refuses_a_reward_above_the_largest() -> None:
    with pytest.raises(BadInputError, match="r_max"):
        Ngrpo(r_max=0.5)(batch())


def test_gdpo_refuses_an_unknown_part() -> None:
    with pytest.raises(BadInputError, match="no reward part 'tone'; the sources give style, verifier"):
        Gdpo({"tone": 1.0})(batch())


def test_gdpo_leaves_out_rows_whose_part_is_missing() -> None:
    whole = batch()
    parts = dict(whole.r_parts)
    parts["style"] = parts["style"].clone()
    parts["style"][0] = torch.nan
    found, _ = Gdpo({"verifier": 1.0, "style": 0.5})(whole.with_(r_parts=parts))
    assert not found[0].any()
    assert found.isfinite().all()
    unread, _ = Gdpo({"verifier": 1.0, "style": 0.0})(whole.with_(r_parts=parts))
    assert unread[0].any()


def test_velocity_is_not_cut_off_by_a_low_rank_approximation() -> None:
    """Released code takes differences of ranks that are at most 6."""
    states = torch.randn(80, 64, generator=torch.Generator().manual_seed(0))
    ranks = prefix_ranks(states, stride=40)
    assert len(ranks) == 2
    assert ranks[1] > ranks[0] > 20
    assert EffectiveRank().ema == 0.3


def test_the_last_piece_of_a_row_counts() -> None:
    states = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    assert len(prefix_ranks(states, stride=40)) == 3
    assert len(prefix_ranks(states[:81], stride=40)) == 2
    assert prefix_ranks(states[:30], stride=40) == []


def test_no_bonus_in_the_first_step_and_never_a_flipped_sign() -> None:
    whole = batch()
    assert whole.adv is not None
    plugin = EffectiveRank(stride=2)
    assert torch.equal(plugin.modulate(whole), whole.adv)
    assert set(plugin.running) == {"er", "erv", "era", "reward"}
    other = whole.with_(extras={"hidden": whole.extras["hidden"] ** 3})
    found = plugin.modulate(other)
    assert not torch.equal(found, whole.adv)
    assert torch.equal(found.sign(), whole.adv.sign())
    assert ((found - whole.adv) >= 0).all()


def test_the_future_kl_of_another_source_can_be_off() -> None:
    whole = batch()
    assert whole.adv is not None
    close(FutureKl(gamma=0.0).modulate(whole), whole.adv)
    close(FutureKl(coefficient=0.0).modulate(whole), whole.adv)


def test_exploration_of_named_sources_only() -> None:
    whole = batch().with_(source=("expert",) + ("policy",) * 10)
    assert whole.adv is not None
    found = Exploration(sources=("expert",)).modulate(whole)
    assert torch.equal(found[1:], whole.adv[1:])
    assert (found[0].abs() <= whole.adv[0].abs()).all()
    assert not torch.equal(found[0], whole.adv[0])


def _through_json(plugin: Any, fresh: Any) -> Any:
    fresh.load_state_dict(json.loads(json.dumps(plugin.state_dict())))
    return fresh


def _step(number: int) -> StepReport:
    return StepReport(number, {}, batch())


@pytest.mark.parametrize(
    ("make", "drive", "measure"),
    [
        (
            lambda: Canon(schedule="cosine"),
            lambda plugin, number: plugin.observe(_step(number)),
            lambda plugin: plugin(batch())[0],
        ),
        (
            lambda: EffectiveRank(stride=2, scale_by_reward=True),
            lambda plugin, number: plugin.modulate(
                batch().with_(extras={"hidden": batch().extras["hidden"] ** (number + 1)})
            ),
            lambda plugin: deepcopy(plugin).modulate(batch()),
        ),
        (
            lambda: Magic(target=5.0, delta=1e-3),
            lambda plugin, number: plugin.steer(batch()),
            lambda plugin: torch.tensor(sorted(deepcopy(plugin).steer(batch()).values())),
        ),
    ],
    ids=["canon", "effective_rank", "magic"],
)
def test_memory_survives_a_restart(
    make: Callable[[], Any], drive: Callable[[Any, int], object], measure: Callable[[Any], Tensor]
) -> None:
    """Controllers without state start again at nothing, in silence: theirs must be in the checkpoint."""
    plugin = make()
    for number in (1, 2, 3):
        drive(plugin, number)
    assert torch.equal(measure(_through_json(plugin, make())), measure(plugin))
    assert not torch.equal(measure(make()), measure(plugin)), "the memory matters"


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Canon(metric="colour"), "estimator.metric"),  # type: ignore[arg-type]
        (lambda: Canon(schedule="never"), "estimator.schedule"),  # type: ignore[arg-type]
        (lambda: Canon(mu=1.5), "estimator.mu"),
        (lambda: Canon(cycle=0), "estimator.cycle"),
        (lambda: OptimalTokenBaseline(eps=0.0), "estimator.eps"),
        (lambda: Ngrpo(eps=-1.0), "estimator.eps"),
        (lambda: Gdpo(eps=-1.0), "estimator.eps"),
        (lambda: Signed(positive=-1.0), "estimator.positive"),
        (lambda: Signed(positive=0.0, negative=0.0), "nothing is learnt"),
        (lambda: PassAtK(ddof=2), "estimator.ddof"),
        (lambda: LitePpo(ddof=3), "estimator.ddof"),
        (lambda: Gdpo(over="letters"), "estimator.over"),  # type: ignore[arg-type]
        (lambda: Gdpo({"a": 0.0}), "estimator.weights"),
        (lambda: Empg(k=-1.0), "modulators.k"),
        (lambda: EffectiveRank(kappa=1.0), "modulators.kappa"),
        (lambda: EffectiveRank(ema=0.0), "modulators.ema"),
        (lambda: EffectiveRank(stride=0), "modulators.stride"),
        (lambda: Exploration(gamma=-1.0), "modulators.gamma"),
        (lambda: FutureKl(coefficient=-0.1), "modulators.coefficient"),
        (lambda: FutureKl(gamma=1.1), "modulators.gamma"),
        (lambda: Magic(start=1.0), "auxiliary.start"),
        (lambda: Magic(delta=0.0), "auxiliary.delta"),
    ],
)
def test_wrong_settings_are_named(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        make()
