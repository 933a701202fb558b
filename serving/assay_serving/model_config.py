"""Which model to open and how, as plain data: what another process, a configuration file or an administrator can send.

Leaves out: opening it (`assay_serving.model_loader`, which this calls).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from assay.errors import BadInputError

if TYPE_CHECKING:
    from assay_serving.scorer import Scorer

SECRETS = ("api_key",)  #: engine options that nobody is shown
HIDDEN = "(hidden)"


@dataclass(frozen=True)
class ModelConfig:
    """`reference`: folder, hub id, or name of an artifact in the workspace. Others: see `opening.load_engine`.

    `aliases`: other names that requests may use for it; the reference is one (a trainer names a model by its path).
    `policy_templates`: tokenizers whose chat templates rendered texts may be written in.
    """

    reference: str
    served_as: str | None = None
    device: str = "auto"
    dtype: str = "float32"
    token_budget: int | None = None
    max_length: int | None = None
    kind: str | None = None
    question: str | None = None
    allow_failed_parity: bool = False
    correct: str | None = None
    engine: str = "transformers"
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    policy_templates: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def shown(self) -> dict[str, Any]:
        """As `to_dict`, for people and replies: no key of the server that an engine asks is in it."""
        hidden = {name: HIDDEN for name in SECRETS if self.engine_options.get(name) is not None}
        return self.to_dict() | {"engine_options": {**self.engine_options, **hidden}}

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`. Raises BadInputError for a field that there is not, or none of `reference`."""
        unknown = sorted(set(payload) - set(cls.__dataclass_fields__))
        if unknown:
            raise BadInputError(f"no such field; there are {', '.join(cls.__dataclass_fields__)}", field=unknown[0])
        if "reference" not in payload:
            raise BadInputError("is missing", field="reference")
        lists = {name: tuple(payload[name]) for name in ("aliases", "policy_templates") if name in payload}
        return cls(**{**payload, **lists})

    def located(self, workspace: Path | None = None) -> tuple[str, str]:
        """Folder or hub id that the reference stands for, and the name to serve it under.

        Raises NotFoundError for a name that stands for nothing. Another engine may know names that nobody here knows.
        """
        from assay.runs.record import locate_model
        from assay_serving.engines.packed import default_name
        from assay_serving.model_loader import find_workspace, located

        if self.engine == "transformers":
            folder = located(self.reference, workspace)
        else:
            folder = locate_model(find_workspace(workspace), self.reference)[0]
        return folder, self.served_as or (self.reference if folder != self.reference else default_name(folder))

    def open(self, workspace: Path | None = None) -> Scorer:
        """Load it. Raises what `opening.load_engine` raises, BadInputError for an unknown engine."""
        from assay_serving.model_loader import kind_of, load_engine
        from assay_serving.scorer import ReadsRendered

        folder, name = self.located(workspace)
        kind = self.kind if kind_of(folder) == "scalar" else None  # what its own spec says counts first
        scorer = load_engine(
            folder,
            served_as=name,
            device=self.device,
            dtype=self.dtype,
            token_budget=self.token_budget,
            max_length=self.max_length,
            kind=kind,
            question=self.question if kind == "principle" else None,
            allow_failed_parity=self.allow_failed_parity,
            correct=self.correct,
            workspace=workspace,
            engine=self.engine,
            engine_options=self.engine_options,
        )
        if self.policy_templates:
            from assay.models.chat.rendered_text import PolicyTemplate

            if not isinstance(scorer, ReadsRendered):
                raise BadInputError(f"{name} reads no rendered texts of other templates", field="policy_templates")
            scorer.expect([PolicyTemplate(policy) for policy in self.policy_templates])
        return scorer

    def answers_to(self, name: str) -> bool:
        """Whether requests may call it so, besides the name that it is served under."""
        return name == self.reference or name in self.aliases
