"""The settings of the passes that label the pool anew: by sources (`source_pass`), by a model (`relabelling`).

Apart from the passes, since command-line options derive from them: what runs a pass takes long to import.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Le

from assay.settings import CheckedSettings, Help

Spend: TypeAlias = Literal["uncertain", "contradiction", "random"]
#: What reliability does: weigh labels by 2p - 1, make them soft labels of p, or drop sources.
Use: TypeAlias = Literal["weights", "soft", "drop"]


@dataclass(frozen=True)
class SourcePassConfig(CheckedSettings):
    """`use`: weights = a label's weight is 2p - 1, p what is sure of it (the near end of the interval); soft = its
    `preference` is p; drop = whole labels of sources that are right on at least `least` of gold, and nothing else."""

    use: Annotated[Use, Help("What a source's reliability does: weigh its labels, soften them, or drop sources.")] = (
        "weights"
    )
    least: Annotated[float, Ge(0.5), Le(1), Help("With drop: share right on gold that a source needs.")] = 0.6
    judged: Annotated[int, Ge(0), Help("Comparisons to ask the judges about.")] = 0
    spend: Annotated[Spend, Help("Which: the least certain, where --model contradicts the source, or random.")] = (
        "uncertain"
    )
    seed: Annotated[int, Ge(0), Help("Of what is drawn.")] = 0


@dataclass(frozen=True)
class RelabelConfig(CheckedSettings):
    """`least`: how sure the model must be of its side."""

    least: Annotated[float, Ge(0.5), Le(1), Help("Probability that the model must give its side.")] = 0.5
