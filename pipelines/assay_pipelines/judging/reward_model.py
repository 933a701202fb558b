"""A reward model as judge: the better response is the one with the higher reward, as sure as its calibration says.

Covers: any scorer (loaded here, behind a server), its calibration. Leaves out: scoring, training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.domain import AnnotatorKind, Answer
from assay.models.spec import Calibration
from assay.score import ScoreFailure
from assay.workspace import Workspace
from assay_pipelines.judging.judge import JudgeFailure, JudgeResult, OnResult, Opinion, Vote
from assay_pipelines.judging.verifier import metas_of
from assay_pipelines.llm.questions import Question
from assay_serving.model_config import ModelConfig
from assay_serving.rubrics.rubric import RUBRIC, with_rubric
from assay_serving.scorer import READS_LABEL, ScoreItem, Scorer

UNCALIBRATED = Calibration(temperature=1.0, reference=0.0, fitted_on="nothing", pairs=0)
PAGE = 64  #: comparisons scored before their results are handed on


@dataclass(frozen=True)
class RewardModelJudge:
    """`calibration` turns a difference of rewards into P(A beats B). `workspace`: where the constraints and the rubric
    of a comparison's `meta` are, for a composed or rubric reward."""

    scorer: Scorer
    calibration: Calibration = UNCALIBRATED
    workspace: Workspace | None = None
    kind: AnnotatorKind = "reward_model"

    @property
    def name(self) -> str:
        return f"{self.scorer.info.name}@{self.scorer.info.version}"

    @property
    def config(self) -> Mapping[str, Any]:
        return asdict(self.calibration)

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        labelled = self.workspace is not None and self.scorer.info.kind in READS_LABEL
        for start in range(0, len(questions), PAGE):
            page = questions[start : start + PAGE]
            metas = metas_of(self.workspace, page) if labelled and self.workspace is not None else {}
            labels = {comparison: _label(meta) for comparison, meta in metas.items()}
            items = [
                ScoreItem(q.prompt, text, label=labels.get(q.comparison_id))
                for q in page
                for text in (q.response_a, q.response_b)
            ]
            scores = self.scorer.score(items)
            for index, (a, b) in enumerate(zip(scores[::2], scores[1::2], strict=True), start=start):
                on_result(index, self._result(a, b))

    def _result(self, a: Any, b: Any) -> JudgeResult:
        for side in (a, b):
            if isinstance(side, ScoreFailure):
                return JudgeFailure(side.code, side.message)
        answer, confidence = opinion_of(self.calibration, a.reward, b.reward)
        return Opinion(answer, confidence, (Vote(answer, confidence=confidence),))


def _label(meta: Any) -> str | None:
    """The label of both responses; constraints that are no list are a column of that name with other content."""
    fields = meta if isinstance(meta, Mapping) else {}
    constraints = fields.get("constraints")
    return with_rubric(constraints if isinstance(constraints, list) else None, fields.get(RUBRIC))


def opinion_of(calibration: Calibration, reward_a: float, reward_b: float) -> tuple[Answer, float]:
    """Answer and its probability; a tie at exactly equal rewards."""
    p = calibration.pair_probability(reward_a, reward_b)
    return ("A", p) if p > 0.5 else ("B", 1 - p) if p < 0.5 else ("tie", 0.5)


def load_reward_model(
    model: str,
    *,
    device: str = "auto",
    workspace: Path | None = None,
    profile: str | None = None,
    tools: tuple[str, ...] = (),
) -> RewardModelJudge:
    """A model of any kind that scores, with the calibration of its spec (else none). float32 scores. `workspace`: of
    the names in a composed reward. A URL is a reward server's; its calibration is not read."""
    from assay_serving.model_loader import load_scorer, server_config
    from assay_serving.model_reference import is_url, known_spec

    here = Workspace.open(workspace) if workspace is not None else None
    if is_url(model):
        return RewardModelJudge(load_scorer(server_config(model, deadline=60.0)), workspace=here)

    spec = known_spec(model)
    calibration = spec.calibration if spec is not None else None
    config = ModelConfig(model, device=device, judge_profile=profile, tools=tools)
    return RewardModelJudge(load_scorer(config, workspace), calibration or UNCALIBRATED, here)
