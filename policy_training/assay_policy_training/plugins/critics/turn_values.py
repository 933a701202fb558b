"""ArCHer's critic: values of utterances, learnt off-policy, for a policy of tokens.

Covers: twin values of states and of the utterances that follow them, read by one causal model from the state before an
agent's turn and from that after its last token; temporal differences over turns on episodes of this and earlier steps,
with target networks; the value of a state from an utterance that the policy draws there now. Leaves out: the policy's
loss (`estimators.turn_advantage` gives its advantages).

Source: arXiv 2402.19446; YifeiZhou02/ArCHer read. Q_i(s,a) is fitted to r + gamma (1 - d) V_i'(s') and V_i(s) to
Q_i'(s,a'), a' drawn by the policy, by squared errors; targets follow by tau after each of the critic's `epochs` updates
a step (its 20 Questions: gamma .9, tau .1, 20 updates, 20 steps of the critic alone). Departures: a causal model that
reads state and utterance in one pass takes the place of an encoder that reads them apart; one hidden layer a head; the
policy learns from its newest episodes, whose utterances are its own, where the code draws new ones in states of the
memory.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.logprobs import response_states
from assay_policy_training.core.policy import Lora, Policy, with_adapter
from assay_policy_training.core.sampling import Sampling, group_uniforms
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.critics.value_model import ValueCritic, body
from assay_policy_training.plugins.samplers.assembly import pad_left
from assay_policy_training.plugins.samplers.transformers import TransformersSampler


@dataclass(frozen=True)
class StoredEpisode:
    """`context` and `tokens` [n] int64; of each turn its first token, the one after its last, and what it earned."""

    context: Tensor
    tokens: Tensor
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    earned: tuple[float, ...]


class DoubleHeads(torch.nn.Module):
    """States [n,d] to Q1, Q2, V1, V2 [n,4] float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
            for _ in range(4)
        )

    def forward(self, states: Tensor) -> Tensor:
        with torch.autocast(device_type=states.device.type, enabled=False):
            return torch.cat([head(states.float()) for head in self.heads], 1)


class TurnCritic(ValueCritic):
    """S12: see the module."""

    def __init__(self, plan: "TurnValues", policy: Policy) -> None:
        if policy.parallel.world > 1:
            raise BadInputError("learns in one process", field="critic.kind")
        self.turn_plan, self.policy = plan, policy
        base, width = body(plan.base, plan.lora, policy)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = base
            if plan.lora.rank:
                self.model = with_adapter(base, plan.lora, policy.device, autocast=policy.autocast)
            self.heads = DoubleHeads(width).to(policy.device)
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.parameters = trained | {f"heads.{name}": p for name, p in self.heads.named_parameters()}
        self.target = deepcopy((self.model, self.heads))
        self.optimiser = torch.optim.AdamW(list(self.parameters.values()), lr=plan.lr, weight_decay=0.0)
        self.memory: list[StoredEpisode] = []
        self.updates = self.steps = 0
        sampling = Sampling(max_new_tokens=plan.turn_tokens, temperature=plan.temperature)
        self.sampler = TransformersSampler(policy, sampling)

    def warming(self, step: int) -> bool:
        return self.steps < self.turn_plan.warmup_steps

    def values(self, batch: RolloutBatch) -> Tensor:
        return self._by_token(batch, after=False)

    def action_values(self, batch: RolloutBatch) -> Tensor:
        """[B,T] float32: of the turns, of the form of `values`."""
        return self._by_token(batch, after=True)

    def update(self, batch: RolloutBatch, *, step: int, seed: int) -> dict[str, float]:
        """Remember the rows that have a reward, and learn from what is remembered."""
        rows = (batch.valid & batch.mask.any(1)).nonzero().squeeze(1).tolist()
        self.memory = [*self.memory, *(stored_episode(batch, row) for row in rows)][-self.turn_plan.capacity :]
        if not self.memory:
            return {}
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(self.memory), generator=generator)[: self.turn_plan.rows].tolist()
        episodes = [self.memory[number] for number in chosen]
        turns = [int(torch.randint(len(episode.starts), (1,), generator=generator)) for episode in episodes]
        drawn = self._with_new_turns(episodes, turns, int(torch.randint(1 << 31, (1,), generator=generator)))
        losses = []
        for _ in range(self.turn_plan.epochs):
            losses.append(self._learn(episodes, turns, drawn))
            self.updates += 1
            self._follow()
        self.steps += 1
        q_loss, v_loss = (sum(column) / len(losses) for column in zip(*losses, strict=True))
        return {"turn_q_loss": q_loss, "turn_v_loss": v_loss, "turn_episodes": len(self.memory)}

    @torch.no_grad()
    def td_targets(self, episodes: Sequence[StoredEpisode], drawn: Sequence[StoredEpisode]) -> tuple[Tensor, Tensor]:
        """Of Q [turns,2], and of V [drawn,2] from the utterances in `drawn`, by the target networks."""
        before = self._heads(episodes, self.target)[0][:, 2:]
        following = torch.zeros_like(before)
        following[:-1] = before[1:]
        last = torch.tensor([number + 1 == len(e.starts) for e in episodes for number in range(len(e.starts))])
        following[last.to(before.device)] = 0.0
        earned = torch.tensor([value for episode in episodes for value in episode.earned]).to(before)
        return earned[:, None] + self.turn_plan.gamma * following, self._heads(drawn, self.target)[1][:, :2]

    def _learn(
        self, episodes: Sequence[StoredEpisode], turns: Sequence[int], drawn: Sequence[StoredEpisode]
    ) -> tuple[float, float]:
        """One update; the losses of Q and V, both twins' sums, means over turns."""
        q_target, v_target = self.td_targets(episodes, drawn)
        before, after = self._heads(episodes, (self.model, self.heads))
        offsets = [0, *accumulate(len(episode.starts) for episode in episodes)]
        at = [offset + turn for offset, turn in zip(offsets, turns, strict=False)]
        q_loss = ((after[:, :2] - q_target) ** 2).mean(0).sum()
        v_loss = ((before[at, 2:] - v_target) ** 2).mean(0).sum()
        (q_loss + v_loss).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), self.turn_plan.max_grad_norm)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return float(q_loss.detach()), float(v_loss.detach())

    @torch.no_grad()
    def _follow(self) -> None:
        for target, module in zip(self.target, (self.model, self.heads), strict=True):
            for slow, fast in zip(target.parameters(), module.parameters(), strict=True):
                slow.lerp_(fast.to(slow.dtype), self.turn_plan.tau)

    def _with_new_turns(
        self, episodes: Sequence[StoredEpisode], turns: Sequence[int], seed: int
    ) -> list[StoredEpisode]:
        """Of each episode, the state before this turn and an utterance that the policy draws now."""
        contexts = [
            torch.cat([episode.context, episode.tokens[: episode.starts[turn]]]).tolist()
            for episode, turn in zip(episodes, turns, strict=True)
        ]
        ids, seen = pad_left(contexts, int(self.policy.tokenizer.pad_token_id))
        uniforms = group_uniforms([seed + number for number in range(len(ids))], 1, self.turn_plan.turn_tokens)
        tokens, drawn, _ = self.sampler.generate(ids, seen, 1, uniforms)
        lengths = drawn.sum(1).tolist()
        return [
            StoredEpisode(torch.tensor(context), row[:length].cpu(), (0,), (length,), (0.0,))
            for context, row, length in zip(contexts, tokens, lengths, strict=True)
        ]

    @torch.no_grad()
    def _by_token(self, batch: RolloutBatch, *, after: bool) -> Tensor:
        """[B,T] float32 on the CPU: the smaller twin before each turn, or after it, on the turn's tokens."""
        out = torch.zeros(batch.mask.shape)
        rows = batch.mask.any(1).nonzero().squeeze(1).tolist()
        for start in range(0, len(rows), self.turn_plan.rows):
            part = rows[start : start + self.turn_plan.rows]
            episodes = [stored_episode(batch, row) for row in part]
            states = self._heads(episodes, (self.model, self.heads))[int(after)]
            smaller = (states[:, :2] if after else states[:, 2:]).amin(1).cpu()
            for row, of_row in zip(part, torch.split(smaller, [len(e.starts) for e in episodes]), strict=True):
                out[row] = of_row[_turn_numbers(batch, row)] * batch.mask[row]
        return out

    def _heads(self, episodes: Sequence[StoredEpisode], networks: tuple[Any, Any]) -> tuple[Tensor, Tensor]:
        """[turns,4] in the states before turns and after them, in order."""
        model, heads = networks
        pad = int(self.policy.tokenizer.pad_token_id)
        contexts, seen = pad_left([episode.context.tolist() for episode in episodes], pad)
        lengths = torch.tensor([len(episode.tokens) + 1 for episode in episodes])  # what is behind the last is not read
        tokens = torch.full((len(episodes), int(lengths.max())), pad)
        for row, episode in enumerate(episodes):
            tokens[row, : len(episode.tokens)] = episode.tokens
        present = torch.arange(tokens.shape[1]) < lengths[:, None]
        with self.policy.precision():
            states = response_states(model, contexts, seen, tokens, present)
        offsets = (lengths.cumsum(0) - lengths).tolist()
        starts = [at + offset for episode, offset in zip(episodes, offsets, strict=True) for at in episode.starts]
        ends = [at + offset for episode, offset in zip(episodes, offsets, strict=True) for at in episode.ends]
        return heads(states[starts]), heads(states[ends])

    def tensors(self) -> dict[str, Any]:
        target = [{name: p.detach() for name, p in module.named_parameters()} for module in self.target]
        memory = [asdict(episode) for episode in self.memory]
        return {**super().tensors(), "target": target, "memory": memory}

    def load_tensors(self, state: Any) -> None:
        """Raises BadInputError for the weights of another critic."""
        super().load_tensors(state)
        with torch.no_grad():
            for module, saved in zip(self.target, state["target"], strict=True):
                for name, parameter in module.named_parameters():
                    parameter.copy_(saved[name])
        self.memory = [StoredEpisode(**entry) for entry in state["memory"]]


def _turn_numbers(batch: RolloutBatch, row: int) -> Tensor:
    """[T] int64: the number of a token's turn; without segments, a row is one turn."""
    return torch.zeros(batch.mask.shape[1], dtype=torch.long) if batch.segment is None else batch.segment[row]


def stored_episode(batch: RolloutBatch, row: int) -> StoredEpisode:
    """Row `row` with what its turns earned."""
    turns, mask = _turn_numbers(batch, row), batch.mask[row]
    number = int(turns[mask].max()) + 1
    by_turn = [(mask & (turns == turn)).nonzero().squeeze(1) for turn in range(number)]
    earned = batch.token_reward[row] if batch.reward is not None else torch.zeros(mask.shape, dtype=torch.float64)
    return StoredEpisode(
        batch.train_input_ids[row][batch.train_mask[row]],
        batch.tokens[row][batch.present[row]],
        tuple(int(tokens[0]) for tokens in by_turn),
        tuple(int(tokens[-1]) + 1 for tokens in by_turn),
        tuple(float(earned[tokens].sum()) for tokens in by_turn),
    )


class TurnValues(RecipeSettings, section="critic"):
    """S12: twin values of utterances. `capacity`: episodes remembered; `rows`: of them learnt from in a step, in each
    of its `epochs` updates, V at one turn of each; `turn_tokens` and `temperature`: of the utterances drawn for the
    value of a state, as in the rollouts."""

    lr: Annotated[float, Ge(0)] = 1e-5
    gamma: Annotated[float, Ge(0), Le(1)] = 0.9
    tau: Annotated[float, Gt(0), Le(1)] = 0.1
    epochs: Annotated[int, Ge(1)] = 20
    rows: Annotated[int, Ge(1)] = 64
    capacity: Annotated[int, Ge(1)] = 2048
    warmup_steps: Annotated[int, Ge(0)] = 0  #: the critic's first steps, in which it alone learns
    turn_tokens: Annotated[int, Ge(1)] = 64
    temperature: Annotated[float, Gt(0)] = 1.0
    base: str | None = None  #: what the critic starts from; None = the policy's base
    lora: Lora = field(default_factory=Lora)
    max_grad_norm: Annotated[float, Gt(0)] = 1.0

    def open(self, policy: Policy) -> TurnCritic:
        return TurnCritic(self, policy)
