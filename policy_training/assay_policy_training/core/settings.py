"""Settings of a recipe, checked against the ranges and choices that their fields declare.

    @dataclass(frozen=True)
    class ClipAdvantage(RecipeSettings, section="modulators"):
        limit: Annotated[float, Gt(0)] = 5.0

Leaves out: conditions on several settings, which a class adds in its `__post_init__`; types, which the recipe reader
checks.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from annotated_types import Gt, Lt

from assay.settings import check_settings

Finite = Annotated[float, Gt(-math.inf), Lt(math.inf)]


class RecipeSettings:
    """Base of the dataclasses that a recipe's sections build.

    Raises BadInputError for a value outside its declared range or choices; `section` stands before the field's name.
    """

    section: ClassVar[str]

    def __init_subclass__(cls, section: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if section is not None:
            cls.section = section

    def __post_init__(self) -> None:
        check_settings(self, f"{self.section}.")
