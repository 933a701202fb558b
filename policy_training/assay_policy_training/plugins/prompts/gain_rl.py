"""GAIN-RL: prompts ordered by the angle concentration of the policy's hidden states, highest first.

Covers: the score of a prompt, sampling around a centre that moves through the order as the policy solves
prompts. Leaves out: ends of the order: the centre stays at the last prompt.

Source: "Angles Don't Lie", arXiv 2506.02281, code wangqinsi1/GAINRL read. Its reward goes up to 2, so it halves the
mean; here `acc` lies in [0, 1] already.

Angle concentration is the mean cosine between a model's hidden states of a question's tokens. Covers: the states (the
input of the last layer's MLP; the last hidden states where a model has none by that name), the question's own span of
tokens in the rendered conversation, its mean cosine within and with the tokens before it. Source: arXiv 2506.02281,
code wangqinsi1/GAINRL read. Its slice `cos[a:b][a:b]` cuts rows twice and its span assumes a prefix of 110 tokens; here
it is cos[a:b, a:b] with the span found in the rendered text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from annotated_types import Gt
from torch import Tensor

from assay.errors import BadInputError
from assay.ids import prompt_id
from assay_policy_training.core.logprobs import trunk
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.prompts.source import prompts_digest
from assay_policy_training.plugins.protocols import StepReport

if TYPE_CHECKING:
    from assay.models.chat.renderer import Renderer


@dataclass(frozen=True)
class Angles:
    """Mean cosines of one prompt: among the question's tokens, and between them and the tokens before."""

    within: float
    across: float


def concentration(states: Tensor, start: int, end: int) -> Angles:
    """Of hidden states [S,d] whose rows start..end are the question. Without tokens before it `across` is 0."""
    if not 0 <= start < end <= len(states):
        raise ValueError(f"no tokens {start}..{end} among {len(states)}")
    unit = torch.nn.functional.normalize(states.float(), dim=-1)
    cosine = unit @ unit.T
    within = float(cosine[start:end, start:end].mean())
    across = float(cosine[start:end, :start].mean()) if start else 0.0
    return Angles(within, across)


def question_span(renderer: Renderer, item: PromptItem) -> tuple[list[int], int, int]:
    """The prompt's token ids and the span of its last user turn in them.

    Raises BadInputError where the renderer's text does not contain the turn (a template that rewrites it).
    """
    ids = list(renderer.encode(item.prompt).ids)
    text = renderer.render(item.prompt)
    question = renderer.plain(next((m.text for m in reversed(item.prompt) if m.role == "user"), ""))
    offset = text.rfind(question.strip())
    if offset < 0 or not question.strip():
        raise BadInputError("the chat template changes the user's turn: its tokens cannot be found", field="source")
    encoding = renderer.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    last = offset + len(question.strip())
    inside = [n for n, (low, high) in enumerate(encoding["offset_mapping"]) if high > offset and low < last]
    # What `encode` put in front (BOS) or cut off (a prompt too long) moves every place alike.
    moved = len(ids) - len(encoding["input_ids"])
    start, end = max(0, inside[0] + moved), inside[-1] + 1 + moved
    return ids, start, max(end, start + 1)


@torch.no_grad()
def measure_angles(policy: Policy, items: Sequence[PromptItem]) -> list[Angles]:
    """Of each prompt under the policy's present weights; one forward pass a prompt."""
    angles = []
    for item in items:
        ids, start, end = question_span(policy.renderer, item)
        angles.append(concentration(_states(policy, ids), start, min(end, len(ids))))
    return angles


def _states(policy: Policy, ids: Sequence[int]) -> Tensor:
    """[S,d] inputs of the last layer's MLP, else the last hidden states."""
    network: Any = trunk(policy.model)
    mlp = getattr(network.layers[-1], "mlp", None) if hasattr(network, "layers") else None
    seen: list[Tensor] = []
    handle = None if mlp is None else mlp.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))

    def last_hidden() -> Tensor:
        inputs = torch.tensor([list(ids)], device=policy.device)
        hidden: Tensor = network(input_ids=inputs, use_cache=False).last_hidden_state
        return hidden

    try:
        with policy.precision():
            last = policy.parallel.forward(policy.model, last_hidden)
    finally:
        if handle is not None:
            handle.remove()
    states = seen[0] if seen else last
    return states.reshape(-1, states.shape[-1]).float()


def centre_shift(acc: float, angle: float, *, pace: float, alpha: float, beta: float, limit: float) -> float:
    """How far the centre moves after a step: pace (tanh(alpha (acc - beta)) + tanh(alpha angle)), in [0, limit].

    `acc` in [0, 1]: mean verifier result; `angle`: mean cosine inside the step's questions.
    """
    shift = pace * math.tanh(alpha * (acc - beta)) + pace * math.tanh(alpha * angle)
    return min(max(shift, 0.0), limit)


class GainPrompts:
    """S0, opened. `angles`: of each item."""

    def __init__(self, items: Sequence[PromptItem], angles: Sequence[Angles], settings: GainRl, *, seed: int) -> None:
        if not items:
            raise BadInputError("there are no prompts", field="prompts")
        self.items, self.settings, self.seed = list(items), settings, seed
        self.within = {prompt_id(item.prompt): angle.within for item, angle in zip(items, angles, strict=True)}
        scores = [angle.within + settings.cross_weight * angle.across for angle in angles]
        self.order = sorted(range(len(items)), key=lambda row: (-scores[row], row))
        self.centre = 0.0  #: place in `order`
        self.draws = 0

    def next(self, n: int) -> list[PromptItem]:
        """Without repetition as far as there are prompts."""
        places = np.arange(len(self.order))
        distance = (places - self.centre) / self.settings.width
        weights = np.exp(-0.5 * (distance**2 - (distance**2).min()))
        chosen: list[int] = []
        while len(chosen) < n:
            generator = np.random.default_rng([self.seed, self.draws])
            self.draws += 1
            size = min(n - len(chosen), len(places))
            # Exponential keys: the `size` smallest are a draw without replacement by these weights.
            keys = np.log(generator.exponential(size=len(places))) - np.log(np.maximum(weights, 1e-300))
            chosen += np.argsort(keys, kind="stable")[:size].tolist()
        return [self.items[self.order[index]] for index in chosen]

    def observe(self, report: StepReport) -> None:
        """A step without any verifier result leaves the centre where it is."""
        batch, chosen = report.batch, self.settings
        if batch.acc is None or bool(batch.acc.isnan().all()):
            return
        verified = [self.within[name] for item in batch.items if (name := prompt_id(item.prompt)) in self.within]
        angle = sum(verified) / len(verified) if verified else 0.0
        shift = centre_shift(
            float(batch.acc.nanmean()),
            angle,
            pace=chosen.pace,
            alpha=chosen.alpha,
            beta=chosen.beta,
            limit=chosen.limit,
        )
        self.centre = min(self.centre + shift, float(len(self.order) - 1))

    def state_dict(self) -> dict[str, Any]:
        """The order too: the weights that it was measured with are another run's."""
        return {
            "centre": self.centre,
            "draws": self.draws,
            "order": self.order,
            "within": self.within,
            "prompts": prompts_digest(self.items),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises BadInputError when the prompts are not those that the state is about."""
        if state["prompts"] != prompts_digest(self.items):
            raise BadInputError("these are not the prompts that the interrupted run used", field="prompts")
        self.centre, self.draws = float(state["centre"]), int(state["draws"])
        self.order = [int(row) for row in state["order"]]
        self.within = {str(name): float(value) for name, value in state["within"].items()}


class GainRl(RecipeSettings, section="source"):
    """S0. `width`: deviation of the draw; `pace`, `limit`: of the centre; these three in prompts, for sets of
    thousands."""

    width: Annotated[float, Gt(0)] = 1000.0
    pace: Annotated[float, Gt(0)] = 500.0
    alpha: Annotated[float, Gt(0)] = 2.0
    beta: float = 0.5
    limit: Annotated[float, Gt(0)] = 1000.0
    cross_weight: float = 8.0

    def open(self, items: Sequence[PromptItem], *, seed: int, policy: Policy) -> GainPrompts:
        return GainPrompts(items, measure_angles(policy, items), self, seed=seed)
