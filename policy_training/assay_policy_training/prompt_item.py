"""One prompt of a policy run: what the user asks, what a program can check, and what the policy sees of it.

Covers: prompts whose context at generation, or in training, differs from what the reward reads (hints); text that the
policy's turn starts with and that it did not write. Leaves out: where prompts come from (`prompts`), who changes
contexts (`contexts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.domain import Prompt
from assay_serving.verifiers import Constraint

POLICY = "policy"  #: `source` of a rollout that the policy made of the very context that is trained on


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
