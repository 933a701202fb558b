"""One prompt of a policy run: what the user asks, what a program can check, and what the policy sees of it.

Covers: prompts whose context at generation, or in training, differs from what the reward reads (hints); text that the
policy's turn starts with and that it did not write. Leaves out: where prompts come from (`prompts`), who changes
contexts (`contexts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.domain import Prompt, prompt_of
from assay_serving.verifiers import Constraint, constraint_from_dict

POLICY = "policy"  #: `source` of a rollout that the policy generated from the context that is trained on


@dataclass(frozen=True, slots=True)
class PromptItem:
    """One prompt, with the constraints a verifier can check (empty: `acc` is missing for its rows)."""

    prompt: Prompt  #: what the user asked: what rewards and verifiers read
    constraints: tuple[Constraint, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)  #: e.g. principle, references, answer, solution, source
    generate_from: Prompt | None = None  #: context of generation where it differs, e.g. with a hint
    train_on: Prompt | None = None  #: context of training where it differs from `prompt`
    forced: str = ""  #: start of the policy's turn that is given, not generated: no reward gradient there
    source: str = POLICY  #: tag of its rows: objectives and corrections may treat other sources otherwise

    @property
    def generation_context(self) -> Prompt:
        return self.prompt if self.generate_from is None else self.generate_from

    @property
    def training_context(self) -> Prompt:
        return self.prompt if self.train_on is None else self.train_on

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready where `meta` is; `item_from_dict` is the inverse."""

        def turns(prompt: Prompt | None) -> list[dict[str, str]] | None:
            return None if prompt is None else [message.to_dict() for message in prompt]

        return {
            "prompt": turns(self.prompt),
            "constraints": [constraint.to_dict() for constraint in self.constraints],
            "meta": dict(self.meta),
            "generate_from": turns(self.generate_from),
            "train_on": turns(self.train_on),
            "forced": self.forced,
            "source": self.source,
        }


def item_from_dict(payload: Mapping[str, Any]) -> PromptItem:
    """Inverse of `PromptItem.to_dict`."""
    contexts = {name: payload[name] for name in ("generate_from", "train_on")}
    return PromptItem(
        prompt_of(payload["prompt"]),
        tuple(constraint_from_dict(constraint) for constraint in payload["constraints"]),
        payload["meta"],
        **{name: None if turns is None else prompt_of(turns) for name, turns in contexts.items()},
        forced=payload["forced"],
        source=payload["source"],
    )
