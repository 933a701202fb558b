"""verl's formulas beside ours on the same random tensors: the largest difference of each, values and gradients."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo import core_algos as verl
from verl.workers.config.actor import ActorConfig, PolicyLossConfig

from assay_policy_training.core.aggregation import aggregate, count
from assay_policy_training.core.batch import rloo
from assay_policy_training.core.ratios import kl_estimate
from assay_policy_training.plugins.critics.heads import clipped_value_loss
from assay_policy_training.plugins.estimators.gae import gae, returns_to_go
from assay_policy_training.plugins.estimators.group_relative import grpo, opo, pass_at_k
from assay_policy_training.plugins.objectives.kl_cov import KlCov, kl_cov_loss
from assay_policy_training.plugins.objectives.ratio_clip import Dro, PpoClip, Sapo
from assay_policy_training.plugins.objectives.sequence_ratio import Gmpo, Gspo
from assay_policy_training.plugins.objectives.truncated_ratio import Cispo
from assay_policy_training.plugins.token_weights.covariance import covariance, top_tokens

LOW, HIGH, ROWS, TOKENS, GROUP = 0.2, 0.28, 12, 7, 4
MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean")


def largest(ours: Tensor, theirs: Tensor) -> float:
    return float((ours.double() - theirs.double()).abs().max())


class Batch:
    """Rows of several lengths in groups of one prompt, log-probs whose ratios pass the bounds, rewards at the end."""

    def __init__(self, seed: int) -> None:
        noise = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, TOKENS + 1, (ROWS,), generator=noise)
        self.mask = torch.arange(TOKENS)[None] < lengths[:, None]
        self.old = -torch.rand(ROWS, TOKENS, generator=noise, dtype=torch.float64) * 2
        self.logp = self.old + 0.4 * torch.randn(ROWS, TOKENS, generator=noise, dtype=torch.float64)
        self.reward = torch.randn(ROWS, generator=noise, dtype=torch.float64)
        self.group = torch.arange(ROWS) // GROUP
        self.index = self.group.numpy().astype(str).astype(object)
        self.values = torch.randn(ROWS, TOKENS, generator=noise, dtype=torch.float64) * self.mask
        self.target = torch.randn(ROWS, TOKENS, generator=noise, dtype=torch.float64)
        ends = torch.arange(TOKENS)[None] == lengths[:, None] - 1
        self.token_reward = ends * self.reward[:, None]
        self.advantage = (self.reward[:, None] * self.mask).clone()  # one a row, as GMPO has it
        self.config = ActorConfig(
            strategy="fsdp",
            rollout_n=GROUP,
            ppo_micro_batch_size_per_gpu=1,
            clip_ratio=LOW,
            clip_ratio_low=LOW,
            clip_ratio_high=HIGH,
            clip_ratio_c=3.0,
            policy_loss=PolicyLossConfig(kl_cov_ratio=0.1, ppo_kl_coef=1.0, dro_beta=0.1),
        )

    def losses(self) -> dict[str, float]:
        """Of each objective's loss and of its gradient, with the aggregation that the method has in verl."""
        vanilla = verl.compute_policy_loss_vanilla
        objectives: dict[str, tuple[Any, Callable[..., Any], str]] = {
            "ppo_clip": (PpoClip(clip_low=LOW, clip_high=HIGH, dual_clip=3.0), vanilla, "token-mean"),
            "gspo": (Gspo(clip_low=LOW, clip_high=HIGH), verl.compute_policy_loss_gspo, "seq-mean-token-mean"),
            "gmpo": (Gmpo(clip_low=LOW, clip_high=HIGH), verl.compute_policy_loss_geo_mean, "seq-mean-token-mean"),
            "sapo": (Sapo(), verl.compute_policy_loss_sapo, "seq-mean-token-mean"),
            "cispo": (Cispo(eps_low=LOW, eps_high=HIGH), verl.compute_policy_loss_cispo, "token-mean"),
            "dro": (Dro(beta=0.1), verl.compute_policy_loss_dro, "token-mean"),
        }
        differences = {}
        for name, (objective, theirs, mode) in objectives.items():
            context = SimpleNamespace(
                adv=self.advantage, mask=self.mask, loss_mask=self.mask, logp_old=self.old, logp_mu=self.old, extras={}
            )
            ours = self.compared(lambda logp, o=objective, c=context: o.loss(logp, c)[0], theirs, mode)
            differences[name] = ours
        kl_cov = KlCov(share=0.1)
        held = self.held(kl_cov.share)
        differences["kl_cov"] = self.compared(
            lambda logp: kl_cov_loss(logp - self.old, self.advantage, held, kl_cov.coefficient),
            verl.compute_policy_loss_kl_cov,
            "token-mean",
        )
        return differences

    def held(self, share: float) -> Tensor:
        return top_tokens(covariance(self.advantage, self.logp, self.mask), self.mask, share)

    def compared(self, ours: Callable[[Tensor], Tensor], theirs: Callable[..., Any], mode: str) -> float:
        results = []
        for compute in (
            lambda logp: aggregate(ours(logp), self.mask, count(self.mask), mode),
            lambda logp: theirs(self.old, logp, self.advantage, self.mask.double(), mode, self.config)[0],
        ):
            logp = self.logp.clone().requires_grad_()
            loss = compute(logp)
            (gradient,) = torch.autograd.grad(loss, logp)
            results.append(torch.cat([loss.detach()[None], gradient.flatten()]))
        return largest(*results)

    def advantages(self) -> dict[str, float]:
        mask, rows = self.mask.double(), self.mask.any(1)
        assert bool(rows.all())
        first = self.mask.double()

        def over_tokens(advantage: Tensor) -> Tensor:
            return advantage[:, None] * first

        theirs = {
            "grpo": verl.compute_grpo_outcome_advantage(self.token_reward, mask, self.index)[0],
            "rloo": verl.compute_rloo_outcome_advantage(self.token_reward, mask, self.index)[0],
            "opo": verl.compute_opo_outcome_advantage(self.token_reward.clone(), mask, self.index)[0],
            "pass_at_k": verl.compute_grpo_passk_outcome_advantage(
                self.token_reward, mask, self.index, config={"norm_adv_by_std_in_grpo": True}
            )[0],
        }
        ours = {
            "grpo": grpo(self.reward, self.group),
            "rloo": rloo(self.reward, self.group),
            "opo": opo(self.reward, self.mask.sum(1), self.group),
            "pass_at_k": pass_at_k(self.reward, self.group, by_std=True),
        }
        return {name: largest(over_tokens(ours[name]), theirs[name]) for name in ours}

    def critics(self) -> dict[str, float]:
        mask = self.mask.double()
        _, returns = verl.compute_gae_advantage_return(self.token_reward, self.values, mask, gamma=0.97, lam=0.9)
        own = gae(self.token_reward, self.values, self.mask, gamma=0.97, lam=0.9)
        config = SimpleNamespace(gamma=0.97)
        _, to_go = verl.compute_reinforce_plus_plus_outcome_advantage(self.token_reward, mask, config=config)
        loss, _ = verl.compute_value_loss(self.target * 0.5, self.target, self.values, mask, 0.2, "token-mean")
        value, _ = clipped_value_loss(self.target * 0.5, self.values, self.target, clip=0.2)
        return {
            "gae": largest(own * mask, (returns - self.values) * mask),
            "returns_to_go": largest(returns_to_go(self.token_reward, self.mask, gamma=0.97), to_go),
            "value loss": largest(aggregate(value, self.mask, count(self.mask), "token-mean"), loss),
        }

    def aggregations(self) -> dict[str, float]:
        mask, counts = self.mask.double(), count(self.mask)
        differences = {
            mode: largest(aggregate(self.target, self.mask, counts, mode), verl.agg_loss(self.target, mask, mode))
            for mode in MODES
        }
        norm = "seq-mean-token-sum-norm"
        own = aggregate(self.target, self.mask, counts, norm, max_length=TOKENS)
        return differences | {norm: largest(own, verl.agg_loss(self.target, mask, norm, loss_scale_factor=TOKENS))}

    def divergences(self) -> dict[str, float]:
        kinds = ("k1", "k2", "k3", "abs")
        theirs = {kind: verl.kl_penalty_forward(self.logp, self.old, kind) for kind in kinds}
        return {f"KL {kind}": largest(kl_estimate(kind, self.logp, self.old), theirs[kind]) for kind in kinds}


np.random.seed(0)
worst: dict[str, float] = {}
for number in range(20):
    batch = Batch(number)
    parts = (batch.losses(), batch.advantages(), batch.critics(), batch.aggregations(), batch.divergences())
    for name, difference in (item for part in parts for item in part.items()):
        worst[name] = max(worst.get(name, 0.0), difference)
print(json.dumps(worst))
