"""Scoring with several named ratings: the checkpoint keeps one output per rating, because its aggregation is not linear
(the minimum, a gate) or because the ratings are wanted as parts of the score; the spec holds the aggregation.

Leaves out: linear aggregations that were folded when the model was saved and need no engine of their own; training
(`assay_rm_training.methods.multi_objective`). Other engines load the checkpoint as a stock classifier of several
labels, and give the ratings.
"""

from typing import TYPE_CHECKING

from assay.errors import BadInputError
from assay.models.spec import RatingHeads, RewardModelSpec
from assay.score import ScorePart
from assay_serving.engines.transformers import TransformersScorer

if TYPE_CHECKING:
    import torch


class RatingsScorer(TransformersScorer):
    """Scores by the aggregate of the model's ratings, in the ratings' own units."""

    @classmethod
    def labels(cls, name: str, spec: RewardModelSpec) -> int:
        if spec.ratings is None:
            raise BadInputError(f"{name} has no named ratings")
        return len(spec.ratings.names)

    @property
    def ratings(self) -> RatingHeads:
        assert self.spec.ratings is not None  # checked
        return self.spec.ratings

    def reward(self, outputs: "torch.Tensor") -> float:
        return self.ratings.reward(outputs[0].tolist())

    def parts(self, outputs: "torch.Tensor") -> tuple[ScorePart, ...]:
        """The ratings by name, in their own units."""
        ratings = self.ratings.ratings(outputs[0].tolist())
        return tuple(ScorePart(name, value, value) for name, value in zip(self.ratings.names, ratings, strict=True))
