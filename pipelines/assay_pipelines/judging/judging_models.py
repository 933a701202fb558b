"""The reward models among judges, recorded with the run in which they judge: their versions and what they carry.

Leaves out: judges whose model is unknown here (endpoints), votes that were recorded elsewhere.
"""

from collections.abc import Iterable
from dataclasses import asdict

from assay.models.contamination import KEY, union
from assay.runs.record import Run
from assay_pipelines.judging.generative import GenerativeJudge
from assay_pipelines.judging.judge import Judge
from assay_pipelines.judging.reward_model import RewardModelJudge
from assay_serving.scorer import ModelInfo


def record_judges(run: Run, judges: Iterable[Judge]) -> None:
    """The reward models among the judges, see `record_models`."""
    infos = [
        judge.scorer.info if isinstance(judge, RewardModelJudge) else judge.pairwise.info
        for judge in judges
        if isinstance(judge, RewardModelJudge | GenerativeJudge)
    ]
    record_models(run, infos)


def record_models(run: Run, infos: Iterable[ModelInfo]) -> None:
    """Each as an input of the run, and the benchmarks that they carry: models trained on the labels inherit them."""
    listed = list(infos)
    for info in listed:
        run.link("input", "model_version", info.version)
    if uses := union(*(info.contamination for info in listed)):
        run.metrics[KEY] = [*run.metrics.get(KEY, []), *(asdict(use) for use in uses)]
