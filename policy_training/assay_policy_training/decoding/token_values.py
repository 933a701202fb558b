"""The value model of a frozen policy: what reward a response that begins so is expected to get if the policy ends it.

Covers: fitting a critic (`plugins.critics`) to the TD(lambda) returns of samples, the last state of a response (after
its end token, or where it was cut) included; how well it predicts the rewards of prompts held out; storing it by what
determines it. Leaves out: steering by it (`value_augmented`).

Source: Value Augmented Sampling, arXiv 2405.06639 (squared error to the lambda-return, lambda 0.95).
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay.errors import BadInputError
from assay.system.atomic_files import replacing
from assay.system.name_lock import locked_name
from assay_policy_training.core.batch import RolloutBatch, merge_batches
from assay_policy_training.core.policy import Lora
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import derived_seed, group_seeds
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.decoding.best_of_n import sampled_texts
from assay_policy_training.decoding.kind import DecodingInputs
from assay_policy_training.plugins.critics.value_model import ValueCritic, ValueModel, value_fit
from assay_policy_training.plugins.estimators.gae import Gae
from assay_policy_training.plugins.samplers.transformers import TransformersSampler

HELD_OUT_EVERY = 5  #: of the training prompts one in five is not fitted on, to measure the fit
log = logging.getLogger(__name__)


class ValueTraining(RecipeSettings, section="decoder"):
    """`samples`: responses to each training prompt; `lam`: 1 = Monte Carlo; `lora_rank` 0: all weights
    of the critic, a copy of the policy, learn."""

    samples: Annotated[int, Ge(1)] = 8
    lam: Annotated[float, Ge(0), Le(1)] = 0.95
    epochs: Annotated[int, Ge(1)] = 4
    batch_rows: Annotated[int, Ge(1)] = 32
    micro_batch_tokens: Annotated[int, Ge(0)] = 0  #: of one pass; bounds memory
    micro_batch_rows: Annotated[int, Ge(0)] = 0
    lr: Annotated[float, Gt(0)] = 5e-5
    lora_rank: Annotated[int, Ge(0)] = 0

    def critic(self, inputs: DecodingInputs, rows: int) -> ValueCritic:
        """Untrained."""
        plan = ValueModel(
            lr=self.lr,
            clip=None,
            lora=Lora(self.lora_rank),
            minibatches=-(-rows // self.batch_rows),
            micro_batch_tokens=self.micro_batch_tokens,
            micro_batch_rows=self.micro_batch_rows,
        )
        return plan.open(inputs.policy)


def value_critic(training: ValueTraining, inputs: DecodingInputs) -> tuple[ValueCritic, dict[str, Any]]:
    """The critic and the figures of its training; it is trained once for equal weights, prompts, rewards and settings,
    where no reward failed.

    Raises BadInputError where no sample has a reward, and where another process is training the same.
    """
    items = list(inputs.training_items())
    critic = training.critic(inputs, len(items) * training.samples)
    content = [
        inputs.policy.version,
        inputs.policy.renderer.template_hash,
        inputs.reward_key,
        inputs.seed,
        asdict(inputs.sampling),
        asdict(training),
    ]
    key = hashlib.sha256(json.dumps([*content, [i.to_dict() for i in items]], default=str).encode()).hexdigest()[:24]
    path = inputs.folder / f"values-{key}.pt"
    with locked_name(path, hint="wait for it: it is then read"):
        if path.is_file():
            stored = torch.load(path, map_location="cpu", weights_only=True)
            with torch.no_grad():
                for name, parameter in critic.parameters.items():
                    parameter.copy_(stored["parameters"][name])
            return critic, stored["figures"]
        figures = {"key": key, **_trained(critic, training, inputs, items)}
        if not figures["rewards_missing"]:  # else they are trained again, as the rewards are asked for again
            with replacing(path) as temporary:
                torch.save({"parameters": critic.tensors()["parameters"], "figures": figures}, temporary)
    return critic, figures


def _trained(
    critic: ValueCritic, training: ValueTraining, inputs: DecodingInputs, items: Sequence[PromptItem]
) -> dict[str, Any]:
    seed = derived_seed(inputs.seed, "values")
    sampler, seeds = TransformersSampler(inputs.policy, inputs.sampling), group_seeds(seed, len(items))
    at_once = max(1, inputs.sampling.rows_at_once // training.samples)
    parts = [
        sampler.rollout(items[s : s + at_once], training.samples, seed=seeds[s : s + at_once], version=0)
        for s in range(0, len(items), at_once)
    ]
    batch = merge_batches([part.with_(uid=tuple(f"{n}.{uid}" for uid in part.uid)) for n, part in enumerate(parts)])
    rewards = [text.reward for text in inputs.rewarded(batch.items, sampled_texts(batch))]
    batch = with_last_states(batch.with_(reward=torch.tensor(rewards, dtype=torch.float64)))
    fitted = batch.group % HELD_OUT_EVERY != HELD_OUT_EVERY - 1
    if not bool((batch.valid & fitted).any()):
        raise BadInputError("no sample has a reward: there is nothing to learn values from", field="--reward")
    held_out = batch.select((batch.valid & ~fitted).nonzero().squeeze(1))
    batch = batch.select((batch.valid & fitted).nonzero().squeeze(1))
    estimate = Gae(lam=training.lam, bootstrap="none")
    figures: dict[str, Any] = {"prompts": len(items), "rows": len(batch), "rewards_missing": len(rewards)}
    figures["rewards_missing"] -= len(batch) + len(held_out)
    figures["generated_tokens"] = int(sum(int(part.lengths.sum()) for part in parts))
    for epoch in range(training.epochs):
        with_values = batch.with_(values=critic.values(batch))
        returns = estimate(with_values)[1]
        metrics = critic.update(with_values.with_(returns=returns), step=epoch, seed=derived_seed(seed, epoch))
        log.info("values, epoch %d: loss %.4g", epoch + 1, metrics["value_loss"])
        figures["loss"] = metrics["value_loss"]
    if len(held_out):
        outcome = torch.where(held_out.mask, held_out.scored_reward[:, None], 0.0)
        fit = value_fit(held_out.with_(values=critic.values(held_out), returns=outcome))
        figures |= {"held_out_rows": len(held_out), "explained_variance": fit.get("explained_variance")}
    return figures


def with_last_states(batch: RolloutBatch) -> RolloutBatch:
    """The batch with one more token a row, a padding whose state is the one after the row's last token: there the
    value is the reward itself."""

    def wider(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values, (0, 1))

    mask = torch.nn.functional.pad(batch.mask, (1, 0), value=True)
    columns = {name: wider(getattr(batch, name)) for name in ("tokens", "logp_mu", "token_version")}
    return batch.with_(mask=mask, loss_mask=mask, **columns)
