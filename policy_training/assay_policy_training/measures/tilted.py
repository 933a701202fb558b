"""How far a policy is from the best one at its KL coefficient, on tasks whose responses can be enumerated.

With reward r and coefficient beta on the KL to the reference, the optimum is reference * exp(r / beta) / Z (Korbak,
Perez and Buckley 2022, RL with KL penalties is better viewed as Bayesian inference, arXiv 2205.11275). Covers: the
target, distances to it, probabilities of the responses that a prompt's row lists. Leaves out: all other responses; the
probabilities are those within the list.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from assay.errors import BadInputError
from assay.ids import prompt_id
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PLACE, RECORD, RESPONSES, PromptItem, records_of
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.measures.capability import mean_of
from assay_policy_training.measures.kind import Measured, Reads, require_pair
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.plugins.protocols import RewardSource
from assay_policy_training.plugins.samplers.recorded import RecordedSampler
from assay_policy_training.rollouts.rewards import composed, gather_rewards

Distribution: TypeAlias = npt.NDArray[np.float64]
LONGEST = 4096  #: tokens of a listed response


@dataclass(frozen=True)
class Choices:
    """The listed responses to one prompt: log-probs under a policy [C], their mass, rewards [C] (NaN = missing)."""

    prompt_id: str
    texts: tuple[str, ...]
    logp: Distribution
    rewards: Distribution


def tilted(reference: Distribution, rewards: Distribution, beta: float) -> Distribution:
    """reference * exp(rewards / beta) / Z, all [C]; from log-probs it is the same without overflow."""
    with np.errstate(divide="ignore"):
        return normalised(np.log(reference) + rewards / beta)


def normalised(logits: Distribution) -> Distribution:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum(), dtype=float)


def divergence(p: Distribution, q: Distribution) -> float:
    """KL(p || q) in nats; infinite where q is 0 and p is not."""
    used = p > 0
    with np.errstate(divide="ignore"):
        return float((p[used] * (np.log(p[used]) - np.log(q[used]))).sum())


@dataclass(frozen=True)
class TiltedDistance:
    """Distances of each policy from reference * exp(r / beta) / Z, the first policy being the reference: KL both ways
    (nats) and total variation, mean over prompts; beside them reward and KL to the reference. A prompt with a missing
    reward is left out. `beta`: the KL coefficient of the training.
    """

    reads: ClassVar[Reads] = "choices"

    beta: float = 0.1

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise BadInputError("must be above 0", field="beta")

    def measure(self, policies: Mapping[str, Sequence[Choices]]) -> Measured:
        base = require_pair(policies, "tilted")
        used = [index for index, group in enumerate(policies[base]) if np.isfinite(group.rewards).all()]
        if not used:
            raise BadInputError("no prompt has the reward of all its responses")
        table: list[dict[str, Any]] = []
        listed: list[dict[str, Any]] = []
        for label, groups in policies.items():
            figures: list[dict[str, float]] = []
            for index in used:
                reference, rewards = normalised(policies[base][index].logp), policies[base][index].rewards
                target, p = tilted(reference, rewards, self.beta), normalised(groups[index].logp)
                figures.append(
                    {
                        "kl_to_target": divergence(p, target),
                        "kl_from_target": divergence(target, p),
                        "total_variation": float(np.abs(p - target).sum() / 2),
                        "reward": float(p @ rewards),
                        "target_reward": float(target @ rewards),
                        "kl_to_reference": divergence(p, reference),
                        "mass": float(np.exp(groups[index].logp).sum()),
                    }
                )
                for index_of_text, text in enumerate(groups[index].texts):
                    row: dict[str, Any] = {"policy": label, "prompt_id": groups[index].prompt_id, "response": text}
                    listed.append(
                        row | {"probability": float(p[index_of_text]), "target": float(target[index_of_text])}
                    )
            means = {name: _finite(mean_of([row[name] for row in figures])) for name in figures[0]}
            table.append({"policy": label, **means, "prompts": len(used), "left_out": len(groups) - len(used)})
        return Measured(table, {"base": base, "beta": self.beta, "responses": listed})


@torch.no_grad()
def enumerated(policy: Policy, items: Sequence[PromptItem], rewards: Sequence[RewardSource]) -> list[Choices]:
    """Of each prompt its listed responses. Raises BadInputError for under two of them, or one that is too long."""
    choices = []
    for item in items:
        # Without the log-probs that a record may have: they are of the policy that it was drawn from.
        records = [{**record, "logprobs": None} for record in records_of(item, {})]
        if len(records) < 2:
            raise BadInputError(f"a list of two or more, for {item.prompt[-1].content[:60]!r}", field="responses")
        sampler = RecordedSampler(policy, Sampling(max_new_tokens=LONGEST), {})
        batch = sampler.rollout(
            [replace(item, meta={**item.meta, RESPONSES: records})], len(records), seed=0, version=0
        )
        if int(batch.lengths.max()) >= LONGEST:
            raise BadInputError(f"one has {LONGEST} tokens or more", field="responses")
        order = sorted(range(len(batch)), key=lambda row: batch.items[row].meta[RECORD][PLACE])
        rows = [batch.items[row] for row in order]
        texts = [batch.items[row].meta[RECORD].get("text") or batch.responses[row] for row in order]
        logp = (batch.logp_mu * batch.mask).double().sum(1)[order].numpy()
        reward = composed(Composition(), gather_rewards(rewards, rows, texts)).numpy()
        choices.append(Choices(prompt_id(item.prompt), tuple(texts), logp, reward))
    return choices


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
