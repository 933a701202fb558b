"""A recipe: one YAML file that says how a policy is trained, read into frozen dataclasses that are the plug-ins.

Covers: the sections, reading them strictly (an unknown key or a value of the wrong type is an error naming the key),
`key=value` overrides, the recipes that ship with the package. Leaves out: what differs from run to run (the policy,
the reward, the prompts), which the command line names.

A section with alternatives carries `kind`: one of the names below, or `package.module:Class` for a plug-in from an
installed package, whose remaining keys are the fields of that dataclass.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml

from assay.errors import BadInputError, NotFoundError
from assay_policy_training.advantages import DrGrpo, Grpo, Rloo
from assay_policy_training.aggregation import Aggregation
from assay_policy_training.kl import KlLoss
from assay_policy_training.objectives import PpoClip, Reinforce
from assay_policy_training.policy import Lora
from assay_policy_training.rewards import Composition, EnoughValid
from assay_policy_training.sampler import Sampling
from assay_policy_training.slots import AdvantageEstimator, PolicyObjective

KINDS: dict[str, dict[str, type[Any]]] = {
    "estimator": {"grpo": Grpo, "dr_grpo": DrGrpo, "rloo": Rloo},
    "objective": {"ppo_clip": PpoClip, "reinforce": Reinforce},
}


@dataclass(frozen=True)
class Optimisation:
    """AdamW and how a batch of rollouts is worked through."""

    lr: float = 1e-6
    warmup_steps: int = 0  #: steps over which lr rises linearly from 0
    weight_decay: float = 0.0
    betas: tuple[float, ...] = (0.9, 0.999)
    max_grad_norm: float = 1.0
    epochs: int = 1  #: passes over each batch of rollouts
    minibatches: int = 1  #: optimiser steps per pass
    micro_batch_rows: int = 8  #: rows per backward pass; bounds memory, changes no gradient
    autocast: bool = False  #: bfloat16 products around float32 weights

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatches", "micro_batch_rows"):
            if getattr(self, name) < 1:
                raise BadInputError(f"must be at least 1, not {getattr(self, name)}", field=f"optimisation.{name}")
        for name in ("lr", "weight_decay", "warmup_steps"):
            if not getattr(self, name) >= 0:
                raise BadInputError(f"must not be negative, not {getattr(self, name)}", field=f"optimisation.{name}")
        if not self.max_grad_norm > 0:
            raise BadInputError(f"must be above 0, not {self.max_grad_norm}", field="optimisation.max_grad_norm")
        if len(self.betas) != 2:
            raise BadInputError("two numbers", field="optimisation.betas")

    @property
    def updates_per_batch(self) -> int:
        return self.epochs * self.minibatches

    def value(self, name: str, step: int) -> float:
        """S13: the learning rate in `step` (1-based)."""
        if name != "lr":
            raise ValueError(f"no schedule for {name!r}")
        return self.lr * min(1.0, step / self.warmup_steps) if self.warmup_steps else self.lr


@dataclass(frozen=True)
class Recipe:
    """A whole recipe. Field names are the YAML's section names."""

    name: str
    estimator: AdvantageEstimator
    objective: PolicyObjective
    aggregation: Aggregation
    kl: KlLoss = field(default_factory=lambda: KlLoss(coefficient=0.0))  #: coefficient 0: no reference is loaded
    reward: Composition = field(default_factory=Composition)
    filter: EnoughValid = field(default_factory=EnoughValid)
    sampling: Sampling = field(default_factory=Sampling)
    optimisation: Optimisation = field(default_factory=Optimisation)
    lora: Lora = field(default_factory=Lora)
    steps: int = 20
    checkpoint_every: int = 20  #: steps; 0 = no checkpoints, the run cannot be resumed
    report_kl: bool = True  #: measure KL to the reference even where the loss does not use it
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 0 or self.checkpoint_every < 0:
            raise BadInputError("steps and checkpoint_every must not be negative", field="steps")
        if isinstance(self.objective, Reinforce) and self.optimisation.updates_per_batch > 1:
            raise BadInputError(
                "reinforce has no ratio, so a batch may have one optimiser step only; use ppo_clip", field="objective"
            )
        if self.sampling.group_size < 2 and isinstance(self.estimator, Grpo | DrGrpo | Rloo):
            raise BadInputError("a group-relative advantage needs at least 2 rows", field="sampling.group_size")

    @property
    def needs_reference(self) -> bool:
        return self.kl.coefficient > 0 or self.report_kl

    @property
    def aggregator(self) -> Aggregation:
        """The aggregation with its constant length filled in."""
        return replace(self.aggregation, max_length=self.aggregation.max_length or self.sampling.max_new_tokens)

    def to_dict(self) -> dict[str, Any]:
        """JSON- and YAML-ready; `recipe_from_dict` is the inverse."""
        sections: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if not is_dataclass(value) or isinstance(value, type):
                sections[f.name] = value
                continue
            section = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(value).items()}
            if f.name in KINDS:
                section = {"kind": _kind_of(f.name, type(value)), **section}
            sections[f.name] = section
        return sections


def shipped_recipes() -> list[str]:
    """Names of the recipes in the package."""
    folder = resources.files("assay_policy_training") / "recipes"
    return sorted(e.name.removesuffix(".yaml") for e in folder.iterdir() if e.name.endswith(".yaml"))


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """A shipped recipe by name, or a YAML file by path, with `section.key=value` overrides.

    Raises NotFoundError for neither, BadInputError naming the key that is wrong.
    """
    path = Path(name).expanduser()
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise NotFoundError(f"no recipe file {path}")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BadInputError("not UTF-8 text", file=path) from error
    elif name in shipped_recipes():
        text = (resources.files("assay_policy_training") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")
    else:
        raise NotFoundError(f"no recipe {name!r}: not a .yaml file, not one of {', '.join(shipped_recipes())}")
    try:
        sections = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInputError(f"not YAML: {' '.join(str(error).split())}", file=path) from error
    if not isinstance(sections, dict):
        raise BadInputError("a recipe is a mapping of sections", file=path)
    for override in overrides:
        _override(sections, override)
    return recipe_from_dict(sections)


def recipe_from_dict(sections: Mapping[str, Any]) -> Recipe:
    """Raises BadInputError naming the key that is unknown, missing or of the wrong type."""
    recipe: Recipe = _build(Recipe, sections, "")
    return recipe


def _override(sections: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    *above, last = key.strip().split(".")
    if not equals or not last:
        raise BadInputError(f"an override is key=value, e.g. optimisation.lr=1e-6, not {override!r}", field="--set")
    target: Any = sections
    for name in above:
        target = target.setdefault(name, {}) if isinstance(target, dict) else None
    if not isinstance(target, dict):
        raise BadInputError("no such key", field=key)
    if last == "kind":  # another plug-in has other fields
        target.clear()
    try:
        target[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInputError(f"not a YAML value: {text!r}", field=key) from error


def _build(cls: type[Any], values: Any, where: str) -> Any:
    """`cls` from a mapping, strictly. `where`: dotted path for messages."""
    if not isinstance(values, Mapping):
        raise BadInputError(f"must be a mapping, not {values!r}", field=where or "recipe")
    hints = get_type_hints(cls)
    known = {f.name: hints[f.name] for f in fields(cls)}
    prefix = f"{where}." if where else ""
    if unknown := sorted(str(key) for key in values if key not in known):
        raise BadInputError(f"unknown key; {where or 'a recipe'} has {', '.join(known)}", field=prefix + unknown[0])
    built = {name: _value(known[name], value, prefix + name) for name, value in values.items()}
    try:
        return cls(**built)
    except TypeError as error:
        missing = [
            f.name
            for f in fields(cls)
            if f.name not in built and f.default is f.default_factory  # both MISSING
        ]
        if not missing:
            raise
        raise BadInputError("missing", field=prefix + missing[0]) from error


def _value(hint: Any, value: Any, where: str) -> Any:
    if where in KINDS:
        section = dict(value) if isinstance(value, Mapping) else {"kind": value}
        return _build(_plugin(where, section.pop("kind", None)), section, where)
    if is_dataclass(hint) and isinstance(hint, type):
        return _build(hint, value, where)
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in get_args(hint):
            return None
        hint = next(option for option in get_args(hint) if option is not type(None))
        return _value(hint, value, where)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_value(get_args(hint)[0], v, where) for v in value)
    if origin is not None and isinstance(value, Mapping):
        return {str(k): _value(get_args(hint)[1], v, f"{where}.{k}") for k, v in value.items()}
    if hint is float and isinstance(value, str):  # YAML reads 1e-6, without a dot, as text
        try:
            return float(value)
        except ValueError as error:
            raise BadInputError(f"must be a number, not {value!r}", field=where) from error
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and isinstance(value, bool) == (hint is bool):
        return value
    raise BadInputError(f"must be {getattr(hint, '__name__', 'of another type')}, not {value!r}", field=where)


def _plugin(slot: str, kind: Any) -> type[Any]:
    if kind in KINDS[slot]:
        return KINDS[slot][kind]
    if isinstance(kind, str) and ":" in kind:
        module, _, name = kind.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise BadInputError(f"no plug-in {kind!r}: {error}", field=f"{slot}.kind") from error
        if isinstance(found, type) and is_dataclass(found):
            return found
        raise BadInputError(f"{kind!r} is not a dataclass", field=f"{slot}.kind")
    raise BadInputError(f"unknown kind {kind!r}; one of {', '.join(KINDS[slot])}, or module:Class", field=slot)


def _kind_of(slot: str, cls: type[Any]) -> str:
    names = {known: name for name, known in KINDS[slot].items()}
    return names.get(cls, f"{cls.__module__}:{cls.__qualname__}")
