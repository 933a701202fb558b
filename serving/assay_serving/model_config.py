"""Which model to open and how, as plain data: what another process, a configuration file or an administrator can send.

Leaves out: what the reference stands for (`model_reference`), opening it (`model_loader`).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self

from annotated_types import Ge

from assay.errors import BadInputError
from assay.models.readings import IMPLICIT, implicit_parts
from assay.settings import CheckedSettings, Help

SECRETS = ("api_key",)  #: engine options that are never shown
HIDDEN = "(hidden)"


@dataclass(frozen=True)
class ModelConfig(CheckedSettings):
    """`reference`: folder, hub id, file of an ensemble or composed reward, or name of an artifact in the workspace.

    `served_as`: the name its scores carry. `max_length`: tokens. `allow_failed_parity`: load it although its spec says
    that it does not give the scores it was trained to. `engine`, `engine_options`: see `assay_serving.engines.engine`.
    `aliases`: other names that requests may use for it; the reference is one (a trainer names a model by its path).
    `tools`: see `assay_serving.tools.kind.granted`. `own_code`: whether a description of several models may name code
    of its own; False in a folder, which may come from anywhere, and in all that it names.

    float32 by default even where bfloat16 is faster: bfloat16 moves scores by about 5 % of their spread.
    """

    reference: str
    served_as: str | None = None
    device: Annotated[str, Help("auto, cpu, cuda, cuda:1, mps.")] = "auto"
    dtype: Annotated[str, Help("float32, bfloat16, float16 or auto.")] = "float32"
    token_budget: Annotated[
        int | None, Ge(1), Help("Positions of one forward pass at most (default: 8192, judges 16384).")
    ] = None
    max_length: Annotated[
        int | None, Ge(1), Help("Tokens of a conversation. Default: the length that the model was trained with.")
    ] = None
    kind: Annotated[str | None, Help("Of a model from elsewhere: scalar (default), principle or generative.")] = None
    adapter: Annotated[
        str | None,
        Help("Form of a published reward model that its files do not tell; or file.py:Name.", metavar="FORM"),
    ] = None
    question: Annotated[
        str | None, Help("Wording that a principle model from elsewhere was trained with, {principle} in it.")
    ] = None
    judge_profile: Annotated[
        str | None,
        Help("How a generative model from elsewhere is asked and read: `assay plugins judge_profile`, or a YAML file."),
    ] = None
    tools: Annotated[
        tuple[str, ...],
        Help(
            "Tool of your own, or with a file, that a judge may call, as file.py:Name or search?file=F; repeatable.",
            "--tool",
            metavar="TOOL",
        ),
    ] = ()
    allow_failed_parity: Annotated[
        bool, Help("Load a model even if it fails its parity checks.", "--allow-failed-parity")
    ] = False
    correct: Annotated[
        str | None, Help("Length correction of the model to take off its rewards.", metavar="NAME[:DOMAIN]")
    ] = None
    engine: Annotated[str, Help("What runs the model.")] = "transformers"
    engine_options: Annotated[
        Mapping[str, Any],
        Help("Option of that engine, e.g. url=http://gpu:8000; repeatable.", "--engine-option", metavar="KEY=VALUE"),
    ] = field(default_factory=dict)
    own_code: bool = True
    aliases: tuple[str, ...] = ()
    policy_templates: Annotated[
        tuple[str, ...],
        Help(
            "Policy whose rendered texts are scored, by its tokenizer's chat template; repeatable.",
            "--policy-template",
            metavar="MODEL",
        ),
    ] = ()

    @property
    def name(self) -> str:
        """The name it is served under."""
        return self.served_as or default_name(self.reference)

    def length(self, trained: int, longest: int = 0) -> int:
        """Tokens of a conversation, for a model that was trained with `trained` and can read `longest` (0: unknown)."""
        return min(self.max_length or trained, max(trained, longest))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def public_settings(self) -> dict[str, Any]:
        """As `to_dict`, for people and replies: without the keys of the servers that engines call."""
        hidden = {name: HIDDEN for name in SECRETS if self.engine_options.get(name) is not None}
        return self.to_dict() | {"engine_options": {**self.engine_options, **hidden}}

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`. Raises BadInputError for an unknown field, and without `reference`."""
        unknown = sorted(set(payload) - set(cls.__dataclass_fields__))
        if unknown:
            raise BadInputError(f"no such field; there are {', '.join(cls.__dataclass_fields__)}", field=unknown[0])
        if "reference" not in payload:
            raise BadInputError("is missing", field="reference")
        lists = {name: tuple(payload[name]) for name in ("aliases", "policy_templates", "tools") if name in payload}
        return cls(**{**payload, **lists})

    def part(self, reference: str, *, kind: str | None = None, question: str | None = None) -> Self:
        """How a model that is a part of this one is opened: on the same device, with the same limits."""
        return replace(
            self,
            reference=reference,
            served_as=None,
            kind=kind,
            adapter=None,
            question=question,
            judge_profile=None,
            correct=None,
            aliases=(),
            policy_templates=(),
        )

    def answers_to(self, name: str) -> bool:
        """Whether requests may use this name, besides the one that it is served under."""
        return name == self.reference or name in self.aliases


def default_name(reference: str) -> str:
    """The name of a model without `served_as`: that of its folder or description, or the hub id as it is."""
    if (parts := implicit_parts(reference)) is not None:
        return IMPLICIT + "@".join(default_name(part) for part in parts if part is not None)
    path = Path(reference).expanduser()
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return path.stem
    return path.resolve().name if path.is_dir() else reference
