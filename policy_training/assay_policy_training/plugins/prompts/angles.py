"""Angle concentration: the mean cosine between a model's hidden states of a question's tokens.

Covers: the states (the input of the last layer's MLP; the last hidden states where a model has none by that name), the
question's own span of tokens in the rendered conversation, its mean cosine within and with the tokens before it.
Leaves out: its use (`gain_rl`).

Source: arXiv 2506.02281, code wangqinsi1/GAINRL read. Its slice `cos[a:b][a:b]` cuts rows twice and its span assumes a
prefix of 110 tokens; here it is cos[a:b, a:b] with the span found in the rendered text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.logprobs import trunk
from assay_policy_training.core.prompt import PromptItem

if TYPE_CHECKING:
    from assay.models.chat.renderer import Renderer
    from assay_policy_training.core.policy import Policy


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
    question = renderer.plain(next((m.content for m in reversed(item.prompt) if m.role == "user"), ""))
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
    try:
        with policy.precision():
            last = network(input_ids=torch.tensor([list(ids)], device=policy.device), use_cache=False).last_hidden_state
    finally:
        if handle is not None:
            handle.remove()
    states = seen[0] if seen else last
    return states.reshape(-1, states.shape[-1]).float()
