"""A critic: a copy of the base model with a head that reads a value from the state before every token.

Covers: values without padding where the model allows, fitting them to the returns with its own optimiser, steps
in which only the critic learns, checkpoints. It is fitted on the rows that have a reward: one that continues in a later
step is learnt from when it ends. It is divided among processes as the policy is. Leaves out: where returns come from
(`estimators`), heads (`heads`).

Memory: a second copy of the weights below the vocabulary head, their gradient and AdamW's two moments; with `lora` only
adapters are trained, and the copy has no gradient.
"""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from assay.errors import BackendError, BadInputError
from assay.models import config_only
from assay.models.attention.packing import can_pack
from assay.models.devices import read_values, to_device
from assay.models.frozen_weights import loading_device
from assay.models.heads import head_outputs
from assay.models.loading import load_causal_lm, load_tokenizer
from assay.models.memory_options import OptimizerName
from assay.models.optimisers import make_optimiser, optimised, publish
from assay.models.parallelism.strategy import SingleProcess, scatter_optimizer
from assay_policy_training.core.aggregation import count
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.logprobs import response_states
from assay_policy_training.core.metrics import TokenMeans
from assay_policy_training.core.micro_batches import MicroBatch, PassLimits, process_micro_batches
from assay_policy_training.core.policy import Lora, Policy, with_adapter
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.critics.heads import HlGauss, Scalar, ValueHead


class ValueCritic:
    """S12: see the module. In eval mode, like the policy: dropout would move values between two readings."""

    def __init__(self, plan: "ValueModel", policy: Policy) -> None:
        self.plan, self.policy = plan, policy
        self.head = plan.value_head
        base, width = body(plan.base, plan.lora, policy)
        with torch.random.fork_rng(devices=[]):  # opening a critic leaves the run's own random state alone
            torch.manual_seed(0)
            self.model: Any = base
            if plan.lora.rank:
                self.model = with_adapter(base, plan.lora, policy.device, autocast=policy.autocast)
        # At first every value is 0 (of bins, the middle): no noise of a random head in the first advantages.
        self.score = torch.nn.Linear(width, self.head.outputs, device=policy.device, dtype=torch.float32)
        torch.nn.init.zeros_(self.score.weight)
        torch.nn.init.zeros_(self.score.bias)
        self.model.add_module("score", self.score)
        policy.parallel.shard(self.model)
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        groups = [{"params": list(trained.values()), "weight_decay": plan.weight_decay}]
        half = self.model if policy.autocast and not plan.lora.rank else None
        self.optimiser = make_optimiser(plan.optimizer, groups, lr=plan.lr, betas=(0.9, 0.999), model=half)
        self.parameters = optimised(self.optimiser, trained)  #: what the optimiser changes
        self.updates = 0
        self.steps = 0  #: of the run, in which there was something to learn from

    def warming(self, step: int) -> bool:
        """Counts steps with at least one completed row: unfinished rows have no return yet."""
        return self.steps < self.plan.warmup_steps

    @torch.no_grad()
    def values(self, batch: RolloutBatch) -> Tensor:
        """[B,T] float32 on the CPU. Raises BackendError where no process computed a row's."""
        all_values = torch.zeros(batch.mask.shape)
        computed: list[tuple[Tensor, Tensor]] = []
        parts = [(piece, batch.select(piece.rows)) for piece in self._pieces(batch, torch.arange(len(batch)))]
        measured = [self.head.value(self._raw(part)) for _, part in parts]
        on_host = torch.split(torch.cat(measured).cpu(), [len(values) for values in measured]) if parts else ()
        for (piece, part), present_values in zip(parts, on_host, strict=True):
            values = torch.zeros(part.mask.shape)
            values[part.present] = present_values
            if piece.counts:
                computed.append((piece.rows, torch.where(part.mask, values, 0.0)))
        missing = torch.ones(len(batch), dtype=torch.bool)
        for rows, values in [piece for share in self._parallel.gather(computed) for piece in share]:
            all_values[rows], missing[rows] = values, False
        if config_only.active() is None and missing.any():  # in a plan the other processes have what this one has
            raise BackendError(f"no process computed the values of {int(missing.sum())} of {len(batch)} rows")
        return all_values

    def update(self, batch: RolloutBatch, *, step: int, seed: int) -> dict[str, float]:
        """Fit to the returns of the rows with a reward. Raises BadInputError where the estimator gave none."""
        if batch.returns is None:
            raise BadInputError("a critic needs an estimator that gives returns, such as gae", field="estimator")
        chosen = (batch.valid & batch.mask.any(1)).nonzero().squeeze(1)
        if not len(chosen):
            return {}
        batch = batch.select(chosen)
        if batch.values is None:
            batch = batch.with_(values=self.values(batch))
        generator = torch.Generator().manual_seed(seed)
        means, losses, norms, parallel = TokenMeans(), [], [], self._parallel
        for _ in range(self.plan.epochs):
            order = torch.randperm(len(batch), generator=generator)
            for rows in order.tensor_split(min(self.plan.minibatches, len(batch))):
                losses.append(self.accumulate(batch, rows, means))
                norm = parallel.clip(list(self.parameters.values()), self.plan.max_grad_norm)
                norms.append(norm)
                if math.isfinite(norm):
                    self.optimiser.step()
                    self.updates += 1
                self.optimiser.zero_grad(set_to_none=True)
        self.steps += 1
        means = TokenMeans.joined(parallel.gather(means.read()))
        losses = [sum(parts) for parts in zip(*parallel.gather(losses), strict=True)]
        metrics = {"value_loss": sum(losses) / len(losses), "value_grad_norm": sum(norms) / len(norms)}
        metrics |= {"value_updates_skipped": sum(not math.isfinite(norm) for norm in norms), "value_rows": len(batch)}
        return metrics | value_fit(batch) | means.to_dict()

    def accumulate(self, batch: RolloutBatch, rows: Tensor, means: TokenMeans | None = None) -> float:
        """Add the gradient of the minibatch `rows`, mean over its tokens; returns this process's part of its loss."""
        tokens, shares = count(batch.mask[rows]).tokens, list[Tensor]()
        device = self.policy.device
        for piece in self._pieces(batch, rows):
            micro, part = piece.rows, batch.select(piece.rows)
            generated = part.mask[part.present]
            raw = self._raw(part).index_select(0, to_device(generated.nonzero().squeeze(1), device))
            if not piece.counts:
                self._parallel.backward(0.0 * raw.sum())
                continue
            columns = batch.critic_values, batch.estimated_returns
            old, target = (to_device(column[micro][part.mask], device) for column in columns)
            loss, limited = self.head.loss(raw, old, target)
            if means is not None:
                means.add(self._limit, limited.float(), torch.ones_like(limited))
            share = loss.sum() / max(1, tokens)
            self._parallel.backward(share)
            shares.append(share.detach())
        self._parallel.reduce(list(self.parameters.values()))
        return sum(value for (value,) in read_values(shares))

    @property
    def _parallel(self) -> SingleProcess:
        return self.policy.parallel

    @property
    def _limit(self) -> str:
        return "value_clip_fraction" if isinstance(self.head, Scalar) else "returns_outside_fraction"

    def _raw(self, part: RolloutBatch) -> Tensor:
        """[tokens present, outputs] float32, in row order."""

        def computed() -> Tensor:
            ids, seen = part.train_input_ids, part.train_mask
            return head_outputs(self.score, response_states(self.model, ids, seen, part.tokens, part.present))

        with self.policy.precision():
            return self._parallel.forward(self.model, computed)

    def _pieces(self, batch: RolloutBatch, rows: Tensor) -> list[MicroBatch]:
        limits, shared = PassLimits.of(self.plan, self.policy.device), can_pack(self.model)
        return process_micro_batches(batch, rows, limits=limits, shared=shared, parallel=self._parallel)

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.updates, self.steps = int(state["updates"]), int(state["steps"])

    def tensors(self) -> dict[str, Any]:
        parameters = {name: p.detach() for name, p in self.parameters.items()}
        return {"parameters": parameters, "optimiser": self.optimiser.state_dict()}

    def load_tensors(self, state: Mapping[str, Any]) -> None:
        """Raises BadInputError for the weights of another critic."""
        saved = state["parameters"]
        if {name: p.shape for name, p in self.parameters.items()} != {name: p.shape for name, p in saved.items()}:
            raise BadInputError("the checkpoint has another critic", field="critic")
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(self._parallel.scatter(saved[name], parameter))
        scatter_optimizer(state["optimiser"], self.optimiser, self._parallel)
        publish(self.optimiser)


def body(name: str | None, lora: Lora, policy: Policy) -> tuple[Any, int]:
    """A critic's base without its vocabulary head, and the width of its states; None: the policy's own. Raises
    BadInputError for another vocabulary than the policy's."""
    name = name or policy.name
    tokenizer = load_tokenizer(name)
    device = loading_device(lora.base_weights, policy.device) if lora.rank else policy.device
    with policy.parallel.loading():
        base: Any = load_causal_lm(name, tokenizer, dtype=next(policy.model.parameters()).dtype, device=device)
    if tokenizer.get_vocab() != policy.tokenizer.get_vocab():
        raise BadInputError(f"{name} does not have the policy's vocabulary", field="critic.base")
    base.set_output_embeddings(torch.nn.Identity())
    return base, int(base.get_input_embeddings().embedding_dim)


def value_fit(batch: RolloutBatch) -> dict[str, float]:
    """How well `values` predict `returns`, over the tokens of `mask`.

    `explained_variance` = 1 - var(R - V) / var(R), left out where all returns are equal.
    """
    returns, values = batch.estimated_returns[batch.mask].double(), batch.critic_values[batch.mask].double()
    metrics = {"value_mean": float(values.mean()), "return_mean": float(returns.mean())}
    spread = float(returns.var(correction=0))
    if spread > 1e-12:
        metrics["explained_variance"] = 1 - float((returns - values).var(correction=0)) / spread
    return metrics


class ValueModel(RecipeSettings, section="critic"):
    """S12: a value model. `clip` is for the scalar head (None = off); `bins`, `low`, `high` are for `hl_gauss`."""

    lr: Annotated[float, Ge(0)] = 1e-5
    optimizer: OptimizerName = "adamw"  #: as the policy's
    head: Literal["scalar", "hl_gauss"] = "scalar"
    clip: float | None = 0.2
    bins: Annotated[int, Ge(2)] = 51
    low: float = 0.0
    high: float = 1.0
    sigma_bins: float = 0.75
    base: str | None = None  #: what the critic starts from: a folder, a hub id; None = the policy's base
    lora: Lora = field(default_factory=Lora)  #: of the critic; rank 0 = all its weights learn
    warmup_steps: Annotated[int, Ge(0)] = 0  #: the critic's first steps, in which it alone learns
    epochs: Annotated[int, Ge(1)] = 1
    minibatches: Annotated[int, Ge(1)] = 1
    micro_batch_tokens: Annotated[int, Ge(0)] = 0
    micro_batch_rows: Annotated[int, Ge(0)] = 0
    max_grad_norm: Annotated[float, Gt(0)] = 1.0
    weight_decay: Annotated[float, Ge(0)] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head == "hl_gauss" and self.clip is not None:
            raise BadInputError(
                "value clipping means nothing for a categorical critic; set it to null", field="critic.clip"
            )
        _ = self.value_head

    @property
    def value_head(self) -> ValueHead:
        """Raises BadInputError for settings out of range."""
        if self.head == "scalar":
            return Scalar(clip=self.clip)
        return HlGauss(self.bins, self.low, self.high, self.sigma_bins)

    def open(self, policy: Policy) -> ValueCritic:
        return ValueCritic(self, policy)
