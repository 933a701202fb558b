"""Scoring with process reward models: one reward for the response by the spec's aggregation, and log-odds of each step.

Covers: responses given in steps, whole texts, which the spec's separator cuts into steps, and responses in turns, whose
steps are the assistant's turns; a score's parts are the log-odds that each step is right. Leaves out: training
(`assay_rm_training.methods.process_reward`). The checkpoint is a stock sequence classifier: any other engine's score
of a whole response is its last step's reward.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.errors import BadInputError
from assay.models.chat.renderer import Encoded
from assay.models.chat.step_reader import read_steps, read_turns
from assay.models.spec import RewardModelSpec, Stepwise
from assay.score import STEP, ScoreFailure, ScorePart
from assay_serving.engines.token import Reading
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.scorer import ScoreItem

if TYPE_CHECKING:
    import torch


class StepScorer(TransformersScorer):
    """Scores responses by their steps."""

    @classmethod
    def labels(cls, name: str, spec: RewardModelSpec) -> int:
        if spec.stepwise is None:
            raise BadInputError(f"{name} was not trained on steps")
        return super().labels(name, spec)

    @property
    def reading(self) -> Stepwise:
        assert self.spec.stepwise is not None  # checked
        return self.spec.stepwise

    def read(self, item: ScoreItem) -> Reading | ScoreFailure:
        spoken = self.spoken(item)
        reading = spoken if isinstance(spoken, ScoreFailure) else super().read(spoken)  # the stock engine's checks
        if isinstance(reading, ScoreFailure) or isinstance(spoken, ScoreFailure):
            return reading
        if reading.conversation.truncated and item.rendered is not None and item.rendered.keep is None:
            return self.failure("too_long", f"the text does not fit in {self.renderer.max_length} tokens")
        try:
            if isinstance(spoken.response, str):
                separator = self.reading.separator
                read = read_steps(self.renderer, spoken.prompt, self.steps_of(spoken), separator=separator)
            else:
                read = read_turns(self.renderer, spoken.prompt, spoken.response)
        except BadInputError as error:
            return self.failure("bad_input", str(error))
        return Reading(Encoded(read.ids, 0, read.truncated), read.places)

    def reward(self, outputs: "torch.Tensor") -> float:
        return self.reading.aggregate(outputs[:, 0].tolist())

    def parts(self, outputs: "torch.Tensor") -> tuple[ScorePart, ...]:
        rewards = outputs[:, 0].tolist()
        return tuple(ScorePart(f"{STEP}{n}", reward=r, value=r) for n, r in enumerate(rewards, start=1))

    def steps_of(self, item: ScoreItem) -> Sequence[str]:
        """The response's steps: as given, else its text, cut."""
        return self.reading.split(str(item.response)) if item.steps is None else item.steps
