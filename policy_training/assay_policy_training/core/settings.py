"""Settings of a recipe, checked against the ranges and choices that their fields declare, and a plug-in's memory.

    class ClipAdvantage(RecipeSettings, section="modulators"):
        limit: Annotated[float, Gt(0)] = 5.0

Leaves out: conditions on several settings, which a class adds in its `__post_init__`; types, which the recipe reader
checks.
"""

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import Field, dataclass, field, fields
from typing import Annotated, Any, ClassVar, dataclass_transform

from annotated_types import Gt, Lt

from assay.settings import check_settings

Finite = Annotated[float, Gt(-math.inf), Lt(math.inf)]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class RecipeSettings:
    """Base of what a recipe's sections build: every subclass is a dataclass, frozen unless it says `frozen=False`.

    Raises BadInputError for a value outside its declared range or choices; `section` stands before the field's name.
    """

    section: ClassVar[str]

    def __init_subclass__(cls, section: str | None = None, frozen: bool = True, **options: Any) -> None:
        super().__init_subclass__(**options)
        if section is not None:
            cls.section = section
        dataclass(frozen=frozen)(cls)

    @property
    def needs(self) -> frozenset[str]:
        """The tensors that a plug-in reads (`plugins.protocols`): none, unless it names some."""
        return frozenset()

    def __post_init__(self) -> None:
        check_settings(self, f"{self.section}.")


@dataclass_transform(field_specifiers=(field,))
class StatefulSettings(RecipeSettings, frozen=False):
    """Base of a dataclass with memory, which is not frozen. Its state in a checkpoint: the fields that are no settings
    (`init=False`), which must be JSON-ready, without a leading underscore; not those with `compare=False`, such as a
    policy."""

    def __init_subclass__(cls, section: str | None = None, **options: Any) -> None:
        super().__init_subclass__(section, frozen=False, **options)

    def state_dict(self) -> dict[str, Any]:
        return {name.lstrip("_"): deepcopy(getattr(self, name)) for name in self._memory()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in self._memory():
            setattr(self, name, deepcopy(state[name.lstrip("_")]))

    def _memory(self) -> list[str]:
        declared: tuple[Field[Any], ...] = fields(self)
        return [f.name for f in declared if not f.init and f.compare]
