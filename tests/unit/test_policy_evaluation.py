"""What an evaluation measures is of the distribution that its rollouts were drawn from."""

from __future__ import annotations

import pytest
import torch

from assay.domain import Message
from assay_policy_training.evaluation import evaluate_policy
from assay_policy_training.policy import Policy
from assay_policy_training.rewards import VerifierReward
from assay_policy_training.samplers.sampling import Sampling
from assay_policy_training.samplers.transformers_sampler import TransformersSampler
from assay_policy_training.slots import PromptItem
from assay_serving.verifiers import NoCommas


@pytest.mark.parametrize("cut", [None, -0.05])
def test_entropy_is_of_the_cut_vocabulary(cut: float | None) -> None:
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=32, with_reference=True)
    items = [PromptItem((Message("user", f"Say {word}."),), (NoCommas(),)) for word in ("hi", "no")]
    sampling = Sampling(max_new_tokens=6, temperature=0.7, prune_log_ratio=cut)
    found = evaluate_policy(policy, items, [VerifierReward()], sampling=sampling, samples=3, seed=1)
    rows = TransformersSampler(policy, sampling).rollout(items, 3, seed=1, version=0)
    with torch.no_grad():
        entropy = policy.scores(rows, temperature=0.7, prune_log_ratio=cut).entropy[rows.mask]
        whole = policy.scores(rows, temperature=0.7).entropy[rows.mask]
    assert found.entropy == pytest.approx(float(entropy.mean()), abs=1e-5)
    assert cut is None or found.entropy < float(whole.mean()) - 0.1, "the cut changes something"
    assert found.kl_k3 == pytest.approx(0.0, abs=1e-6)
