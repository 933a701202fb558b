"""The YAML file of a composed reward: its parts, their shaping, their combination.

Covers: the frozen description, strict reading, the digest of everything that changes rewards. Leaves out: loading the
parts (`part_loader`), scoring (`composed`).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from assay.errors import BadInputError, NotFoundError, plain_reason
from assay.registry import absolute_name
from assay_serving.composition.combining import AnyCombination, WeightedSum
from assay_serving.composition.shaping import AnyShape, LengthPenalty, Relative
from assay_serving.engines.ensemble import digest
from assay_serving.verifiers import Constraint, constraint_from_dict

T = TypeVar("T")
FILE = "composed.yaml"
KIND = "composed"
REWARD = "combine"  #: the reward's name among those of parts and steps
STRICT: dict[str, object] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
OF_MODELS = ("served", "api_key_env", "correct", "model_kind", "question", "principle", "version")


@dataclass(frozen=True)
class PartSpec:
    """One part: a model, or constraints that a program checks.

    `model`: folder, hub id, artifact of the workspace, file of an ensemble or of another composed reward (relative to
    this file), or the URL of a reward server, of which `served` names the model and `api_key_env` the environment
    variable that holds the key. `correct`, `model_kind`, `question`: as the options of `assay score`. `principle`: what
    to judge by, instead of the item's own. `version`: the only accepted one: fixed references, means and
    deviations are of one checkpoint.

    `constraints`: fixed ones, or "label": those in the item's label. `measure`: the share of them that hold, or 1 where
    all hold and 0 where not. `programs`: whether labels may ask for tests of programs, which run a client's code here.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    name: str
    model: str | None = None
    constraints: Literal["label"] | tuple[dict[str, Any], ...] | None = None
    shaping: tuple[Annotated[AnyShape, Field(discriminator="kind")], ...] = ()
    served: str | None = None
    api_key_env: str | None = None
    correct: str | None = None
    model_kind: str | None = None
    question: str | None = None
    principle: str | None = None
    version: str | None = None
    measure: Literal["fraction", "passed"] = "fraction"
    programs: bool = False

    def __post_init__(self) -> None:
        if not self.name or not self.name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"{self.name!r} is no name: letters, digits, - and _")
        if (self.model is None) == (self.constraints is None):
            raise ValueError("needs exactly one of model and constraints")
        if self.constraints is not None and (extra := [name for name in OF_MODELS if getattr(self, name) is not None]):
            raise ValueError(f"{extra[0]} is for models, and this part is constraints")
        if self.constraints == ():
            raise ValueError("constraints: needs at least one, or label")
        if self.model is not None and self.measure != "fraction":
            raise ValueError("measure is for constraints, and this part is a model")
        if self.programs and self.constraints != "label":
            raise ValueError("programs is for constraints: label")
        try:
            for constraint in self.fixed:
                if ":" not in str(constraint.get("kind")):
                    constraint_from_dict(constraint)
        except BadInputError as error:
            raise ValueError(f"constraints: {error}") from error

    @property
    def fixed(self) -> tuple[dict[str, Any], ...]:
        return self.constraints if isinstance(self.constraints, tuple) else ()

    def checks(self) -> tuple[Constraint, ...]:
        """The fixed constraints, for which code that they name is run: not when the file is read. Raises BadInputError
        for an invalid one."""
        return tuple(constraint_from_dict(constraint, allow_code=True) for constraint in self.fixed)

    @property
    def code(self) -> list[str]:
        """What it names by module or file, not by a registered name."""
        names = [self.model_kind, *(constraint.get("kind") for constraint in self.fixed)]
        return [str(name) for name in names if ":" in str(name)]

    def meaning(self, version: str) -> dict[str, Any]:
        """All that changes its rewards, independent of where its model is."""
        fields = asdict(self)
        for name in ("model", "served", "api_key_env", "model_kind", "version"):
            del fields[name]
        return fields | {"of": version}

    @property
    def compares(self) -> bool:
        """Whether it reads the item's own references."""
        return any(isinstance(shape, Relative) and shape.references == "item" for shape in self.shaping)

    @property
    def counts_tokens(self) -> bool:
        """Whether it needs the model's own tokenizer here."""
        return any(isinstance(shape, LengthPenalty) and shape.unit == "tokens" for shape in self.shaping)


@dataclass(frozen=True)
class ComposedSpec:
    """`steps`: named intermediate results, each of parts and of steps above it. `combine`: the reward; a single part
    without it is the reward itself."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    parts: tuple[PartSpec, ...]
    combine: Annotated[AnyCombination, Field(discriminator="kind")] | None = None
    steps: dict[str, Annotated[AnyCombination, Field(discriminator="kind")]] = field(default_factory=dict)
    kind: Literal["composed"] = "composed"

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if not names:
            raise ValueError("parts: needs at least one")
        if duplicate := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"parts: two are named {duplicate!r}")
        if clash := [name for name in self.steps if name in names]:
            raise ValueError(f"steps: {clash[0]!r} is a part's name")
        if REWARD in [*names, *self.steps]:
            raise ValueError(f"{REWARD!r} is the name of the reward itself")
        if self.combine is None and (len(names) > 1 or self.steps):
            raise ValueError("combine: missing; several parts need a combination")
        defined, used = list(names), set()
        for path, combination in self.combinations():
            for name in combination.operands:
                if name not in defined:
                    raise ValueError(f"{path}: {name!r} is no part and no step above; there are {', '.join(defined)}")
                used.add(name)
            defined.append(path.removeprefix("steps."))
        if self.combine is not None and (idle := [n for n in [*names, *self.steps] if n not in used]):
            raise ValueError(f"{idle[0]!r} is used nowhere; a part to be watched only may have weight 0")

    def combinations(self) -> Iterator[tuple[str, AnyCombination]]:
        """Each combination with its path in the file; those that others use come first."""
        yield from ((f"steps.{name}", step) for name, step in self.steps.items())
        if self.combine is not None:
            yield REWARD, self.combine

    @property
    def weights(self) -> dict[str, float]:
        """Of the parts that exactly one weighted sum uses."""
        by_part: dict[str, list[float]] = {}
        for _, combination in self.combinations():
            for name in combination.operands:
                weight = combination.effective[name] if isinstance(combination, WeightedSum) else None
                by_part.setdefault(name, []).extend([] if weight is None else [weight])
        return {part.name: by_part[part.name][0] for part in self.parts if len(by_part.get(part.name, ())) == 1}

    def digest(self, versions: Mapping[str, str]) -> str:
        """Identity of this function with parts of these versions, independent of their location."""
        meaning = asdict(self)
        meaning["parts"] = [part.meaning(versions[part.name]) for part in self.parts]
        return digest(meaning)

    @classmethod
    def read(cls, path: Path) -> "ComposedSpec":
        """Raises NotFoundError where there is no such file, BadInputError naming the file and the field of what is
        wrong."""
        return cls.from_dict(read_description(path, KIND, "a composed reward"), file=path)

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any], *, file: Path | None = None) -> "ComposedSpec":
        """From a file's YAML content. Raises BadInputError naming the field, and the file where there is one."""
        return validated(_ADAPTER, payload, "a composed reward", file=file)


_ADAPTER = TypeAdapter(ComposedSpec)


def read_description(path: Path, kind: str, what: str) -> dict[str, Any]:
    """The content of a YAML file that says `kind: kind`. Errors as of `ComposedSpec.read`."""
    try:
        payload = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)  # a SafeLoader
        if not isinstance(payload, dict) or payload.get("kind") != kind:
            raise BadInputError(f"not {what}: it must say `kind: {kind}`", file=path)
        content: dict[str, Any] = _absolute_kinds(payload, path.absolute().parent)
    except FileNotFoundError as error:
        raise NotFoundError(f"no such file: {path}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"not {what}: {' '.join(str(error).split())}", file=path) from error
    return content


def validated(
    adapter: TypeAdapter[T], payload: Any, what: str, *, file: Path | None = None, within: str | None = None
) -> T:
    """The payload as the adapter's type. Raises BadInputError naming the field, below `within`, and the file."""
    try:
        return adapter.validate_json(json.dumps(payload))
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(filter(None, (within, _field_path(payload, first["loc"]))))
        raise BadInputError(_message_of(first), file=file, field=path or None) from error
    except BadInputError as error:
        raise BadInputError(str(error), file=file) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"not {what}: {error}", file=file) from error


class _UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that raises for duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if duplicate := next((key for key in keys if keys.count(key) > 1), None):
            raise ValueError(f"line {node.start_mark.line + 1}: {duplicate!r} is given twice")
        return super().construct_mapping(node, deep)


def _absolute_kinds(payload: Any, folder: Path) -> Any:
    """The payload with the files of `kind: file.py:Name` made absolute, wherever it names a constraint."""
    if isinstance(payload, dict):
        return {
            key: absolute_name(value, folder) if key == "kind" else _absolute_kinds(value, folder)
            for key, value in payload.items()
        }
    return [_absolute_kinds(member, folder) for member in payload] if isinstance(payload, list) else payload


def _field_path(payload: Any, loc: tuple[str | int, ...]) -> str:
    """The path of the field in the file, without pydantic's tags of unions."""
    path: list[str] = []
    here = payload
    for step in loc:
        if isinstance(here, list) and isinstance(step, int) and step < len(here):
            here = here[step]
            label = here.get("name") if isinstance(here, dict) else None
            path.append(str(label) if isinstance(label, str) else str(step))
        elif isinstance(here, dict) and step in here:
            here = here[step]
            path.append(str(step))
        elif isinstance(here, dict) and step != here.get("kind"):
            path.append(str(step))
            here = None
    return ".".join(path)


def _message_of(error: Mapping[str, Any]) -> str:
    kind, input_value = error["type"], error.get("input")
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        return "unknown key"
    if kind == "union_tag_not_found":
        return "its `kind` is missing"
    if kind == "union_tag_invalid":
        return f"its kind must be one of {error['ctx']['expected_tags']}"
    if isinstance(input_value, str) and _is_number(input_value):
        return f"{plain_reason(error)}: YAML reads 1e-6 as a text, write 1.0e-6"
    return plain_reason(error)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
