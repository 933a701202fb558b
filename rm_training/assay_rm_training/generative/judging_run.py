"""Evaluation of a generative judge (a local model or an endpoint) as a recorded run.

Leaves out: what is measured (`evaluation`). Works without a workspace, and then leaves no run record.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.errors import BadInputError
from assay.models.spec import Judging, RewardModelSpec
from assay.runs.progress_bar import progress_bar
from assay.runs.record import locate_model
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_rm_training.generative.evaluation import JudgeEvaluation, evaluate_judge
from assay_rm_training.generative.judged_rows import JudgedRow, content_free_rows, read_judged
from assay_rm_training.generative.rejective import (
    MetaGuidedWriter,
    SampledJudgments,
    in_drawn_order,
    meta_rewards,
    sample_judgments,
)
from assay_rm_training.run_settings import JudgeEvalConfig
from assay_rm_training.runs.recorded import recorded_run, write_report
from assay_serving.generative.answers import Writer
from assay_serving.generative.engine import with_settings
from assay_serving.generative.pair_ranker import open_writer
from assay_serving.generative.profiles.recognition import UnreadReplies
from assay_serving.generative.remote import RemoteWriter, endpoint_of
from assay_serving.generative.templates import format_named
from assay_serving.model_loader import load_scorer
from assay_serving.model_reference import is_url, known_spec
from assay_serving.scorer import Scorer
from assay_serving.tools.kind import check_called

SEVERAL_TEMPERATURE = 0.7  #: default for several samples


def judging_of(config: JudgeEvalConfig, stored: Judging | None) -> Judging:
    """The settings of the run over the model's own. Raises BadInputError for conflicting ones."""
    if stored is None or (config.format is not None and config.format != stored.format):
        stored = format_named(config.format or "pairwise").judging
    several = (config.samples or stored.samples) > 1 and stored.temperature == 0
    return with_settings(
        stored,
        samples=config.samples,
        temperature=SEVERAL_TEMPERATURE if several and config.temperature is None else config.temperature,
        max_new_tokens=config.max_new_tokens,
        vote=config.vote,
    )


@dataclass(frozen=True)
class JudgeEvaluationRun:
    """`folder`: of evaluation.json and items.jsonl."""

    evaluation: JudgeEvaluation
    judging: Judging
    run_id: str | None
    folder: Path | None
    title: str

    @property
    def unread(self) -> str | None:
        """What happened, where most answers could not be read; their figures are no result."""
        form, replies = format_named(self.judging.format), UnreadReplies(self.evaluation.answers)
        for record in self.evaluation.records:
            for order in record.get("orders", [record]):
                for answer in order["answers"]:
                    if answer["fault"] is not None:
                        replies.add_unread(answer["text"])
        return replies.line(self.evaluation.model.name, form.name, form.responses) if replies.most else None

    def to_dict(self) -> dict[str, Any]:
        run_fields = {"run_id": self.run_id, "folder": str(self.folder) if self.folder else None}
        return {**self.evaluation.to_dict(), "judging": asdict(self.judging), **run_fields}


def evaluate_judge_model(
    workspace: Workspace | None, config: JudgeEvalConfig, *, api_key: str | None = None, out: Path | None = None
) -> JudgeEvaluationRun:
    """Evaluate, with progress on standard error.

    Raises NotFoundError for an unknown judge or data, BadInputError for conflicting settings.
    """
    source, artifact, stored_spec = config.judge, None, None
    if not is_url(config.judge):
        source, artifact = locate_model(workspace, config.judge)
        stored_spec = known_spec(source)
    judging = judging_of(config, stored_spec.judging if stored_spec is not None else None)
    form = format_named(judging.format)
    rows: Sequence[JudgedRow] = read_judged(workspace, config.data, form)[: config.limit or None]
    if config.content_free:
        rows = content_free_rows(rows, form)
    settings = asdict(config) | {"judging": asdict(judging)}
    with recorded_run(workspace, "eval", settings, model=(source, artifact), data=[config.data]) as run:
        writer, spec = _open(workspace, source, config, judging, api_key)
        if config.meta is not None:
            writer = MetaGuidedWriter(writer, _meta(workspace, config))
        with progress_bar("judging", len(rows) * form.responses, unit="questions") as advance:
            evaluation = evaluate_judge(writer, spec, rows, seed=config.seed, advance=advance)
        folder = write_report(evaluation, run, out)
    what = "answers that say nothing" if config.content_free else f"{evaluation.items} rows"
    title = f"{writer.info.name} ({form.name}) on {what} of {Path(config.data).name}"
    return JudgeEvaluationRun(evaluation, judging, run.id if run else None, folder, title)


def sample_judge(
    workspace: Workspace | None,
    config: JudgeEvalConfig,
    accepted: Path,
    trajectories: Path | None,
    pairs: Path | None = None,
    *,
    api_key: str | None,
) -> dict[str, Any]:
    """Sample judgments of the rows and write those accepted, all of them with whether they are right, and pairs of a
    better and a worse one, by the meta judge if there is one; the counts. Raises as `evaluate_judge_model`, and
    BadInputError for one sample, which is all right or all wrong, and for a meta judge without `pairs`."""
    if config.meta is not None and pairs is None:
        raise BadInputError("the meta judge makes pairs of judgments: --pairs FILE", field="--meta")
    source, artifact = (config.judge, None) if is_url(config.judge) else locate_model(workspace, config.judge)
    stored = None if is_url(source) else known_spec(source)
    judging = judging_of(config, stored.judging if stored is not None else None)
    if judging.samples < 2:
        raise BadInputError("several judgments of each row: at least 2", field="samples")
    rows = read_judged(workspace, config.data, format_named(judging.format))[: config.limit or None]
    rows = [in_drawn_order(row) for row in rows]
    with recorded_run(workspace, "judgments", asdict(config), model=(source, artifact), data=[config.data]) as run:
        writer, spec = _open(workspace, source, config, judging, api_key)
        with progress_bar("judging", len(rows), unit="rows") as advance:
            sampled = sample_judgments(writer, spec, rows, seed=config.seed, advance=advance)
        meta = None if config.meta is None else _meta(workspace, config)
        worth = [one.right_or_wrong for one in sampled] if meta is None else meta_rewards(meta, sampled)
        files: list[tuple[str, Path | None, Iterable[list[dict[str, Any]]]]] = [
            ("accepted", accepted, map(SampledJudgments.accepted, sampled)),
            ("trajectories", trajectories, map(SampledJudgments.trajectories, sampled)),
            ("pairs", pairs, map(SampledJudgments.pairs, sampled, worth)),
        ]
        counts: dict[str, Any] = {"rows": len(rows), "asked": len(sampled)}
        counts["too_easy"] = sum(one.too_easy for one in sampled)
        counts["never_right"] = sum(not one.right for one in sampled)
        replies = UnreadReplies()
        replies.add(answer for one in sampled for answer in one.answers)
        counts |= {"replies": replies.replies, "unread": replies.unread}
        counts["without_meta_reward"] = sum(reward is None for row in worth for reward in row)
        for name, path, lines_of_rows in files:
            lines = [json.dumps(line) + "\n" for of_row in lines_of_rows for line in of_row]
            counts[name] = len(lines)
            if path is not None:
                with replacing(path) as temporary:
                    temporary.write_text("".join(lines), encoding="utf-8")
        if run is not None:
            run.metrics.update(counts)
    return counts


def _meta(workspace: Workspace | None, config: JudgeEvalConfig) -> Scorer:
    assert config.meta is not None
    return load_scorer(config.model_config(locate_model(workspace, config.meta)[0], served_as=config.meta))


def _open(
    workspace: Workspace | None, source: str, config: JudgeEvalConfig, judging: Judging, api_key: str | None
) -> tuple[Writer, RewardModelSpec]:
    opened: tuple[Writer, RewardModelSpec]
    if is_url(source):
        media = None if workspace is None else lambda: workspace.media
        endpoint = endpoint_of(source, config.model, api_key=api_key)
        opened = RemoteWriter.open(endpoint, judging, media, tools=config.tools)
    else:
        opened = open_writer(config.model_config(source, served_as=config.judge), judging=judging)
    check_called(config.tools, opened[1].judging.tools if opened[1].judging else ())
    return opened
