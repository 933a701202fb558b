"""What a served model does with principles, as `/v1/principles` tells it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PrincipleUse:
    """`use`: required, optional or refused. `question`: the wording the model was trained with, where it is known.
    `examples`: principles it was trained with, empty with a `reason` where there is nothing to tell."""

    model: str
    version: str
    kind: str
    use: str
    question: str | None
    examples: tuple[str, ...]
    reason: str | None

    @classmethod
    def from_dict(cls, payload: dict[str, Any]) -> "PrincipleUse":
        """Unknown fields are ignored."""
        fields = {name: payload[name] for name in cls.__dataclass_fields__}
        return cls(**(fields | {"examples": tuple(fields["examples"])}))
