"""Whether a judge's analysis leads to its verdict, as a second judge reads it: R1-Reward's consistency.

Source: "R1-Reward: Training Multimodal Reward Model Through Stable Reinforcement Learning", arXiv 2505.02835, official
code (`get_gpt_reward`, `verify_conflict`). The second judge sees the last three lines of the analysis and the verdict
in words, not the question. Where it cannot be asked or read the check is missing (there 0, after three attempts).
Leaves out: what the check is worth (`stable_reinforce` of the reward's composition).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.domain import Message
from assay.score import Score, ScoreFailure
from assay_serving.generative.engine import GenerativeScorer
from assay_serving.generative.local import LocalWriter
from assay_serving.generative.remote import RemoteWriter, endpoint_of
from assay_serving.generative.templates import format_named
from assay_serving.model_config import ModelConfig
from assay_serving.model_reference import is_url
from assay_serving.scorer import ScoreItem

PROFILE = "r1-reward-consistency"
LINES = 3  #: of the analysis, its last ones


@dataclass(frozen=True)
class ReasoningCheck:
    """`judge`: reads the profile `PROFILE`."""

    judge: GenerativeScorer

    @classmethod
    def open(cls, reference: str, model: str | None, *, device: str) -> "ReasoningCheck":
        """A language model here, or the model of an OpenAI-compatible endpoint. Raises as their writers, and
        BadInputError for an endpoint without a model."""
        judging = format_named(PROFILE).judging
        if is_url(reference):
            return cls(GenerativeScorer(*RemoteWriter.open(endpoint_of(reference, model), judging)))
        return cls(GenerativeScorer(*LocalWriter.load(ModelConfig(reference, device=device), judging=judging)))

    def of(self, analyses: Sequence[str], labels: Sequence[str]) -> list[float | ScoreFailure]:
        """For each analysis and the label of its verdict: 1 where the one leads to the other, -1 where it does not, a
        failure where the second judge could not be asked or read."""
        items = [
            ScoreItem((Message("user", ";".join(text.strip().split("\n")[-LINES:])),), worded(label))
            for text, label in zip(analyses, labels, strict=True)
        ]
        return [result.reward if isinstance(result, Score) else result for result in self.judge.score(items)]


def worded(label: str) -> str:
    return f"response {label} is better" if label in ("A", "B") else f"the verdict is {label}"
