"""Building the parts of a loop (judges, annotators, models, encoder) from its configuration."""

from collections.abc import Sequence
from pathlib import Path

from assay.compute.executor import Executor
from assay.errors import BadInputError
from assay.models.loading import resolve_model
from assay.workspace import Workspace
from assay_pipelines.attributes.extraction import AttributeExtractor, extract_attributes
from assay_pipelines.attributes.preverification import CorrectnessChecker, preverify
from assay_pipelines.curation.loop.config import Stage1Config
from assay_pipelines.curation.loop.parts import Describe, Parts, Preverify
from assay_pipelines.curation.loop.people import JudgedPeople, People, QueuedPeople
from assay_pipelines.curation.loop.reward_models import open_models
from assay_pipelines.curation.loop.state import RUN_KIND, PausedError
from assay_pipelines.embedding.encoder_loader import open_encoder
from assay_pipelines.judging.config import load_judges
from assay_pipelines.judging.judge import Judge
from assay_pipelines.judging.local import LocalJudge
from assay_pipelines.judging.openai_compatible import LlmJudge
from assay_pipelines.llm.budget import Budget, Spending
from assay_pipelines.llm.calls import fold_calls
from assay_pipelines.llm.questions import Question, load_questions


def build_parts(workspace: Workspace, config: Stage1Config, executor: Executor | None = None) -> Parts:
    """`executor`: where the pool is embedded; None: in this process.

    Raises what each part raises when it is opened: a missing model, a judge file that is wrong, a key not set."""
    judges = _judges(workspace, config.judges, "judges")
    resolve_model(config.model.base)  # a wrong name is reported before annotators are asked
    # the budget is the loop's: what its earlier runs spent is spent
    spending = Spending(Budget(cost=config.max_cost), cost=spent_by(workspace, config.name))
    return Parts(
        workspace=workspace,
        models=open_models(workspace, config.model, config.waivers),
        people=_people(workspace, config, spending),
        encoder=open_encoder(config.encoder, config.model.device),
        judges=judges,
        describe=_describer(workspace, judges, spending) if config.attributes else None,
        preverify=_preverifier(workspace, judges, spending) if config.preverify else None,
        spending=spending,
        embed_responses=config.embed_responses,
        executor=executor,
        encoder_name=config.encoder,
        device=config.model.device,
    )


def _describer(workspace: Workspace, judges: Sequence[Judge], spending: Spending) -> Describe:
    settings = _language_model(judges, "attributes").settings
    extractor = AttributeExtractor(settings.endpoint, prompts=settings.prompts)

    def describe(comparison_ids: Sequence[str], run_id: str) -> None:
        questions = load_questions(workspace, comparison_ids)
        report = extract_attributes(workspace, extractor, questions, run_id, budget=spending)
        if report.stopped:
            raise PausedError(stopped=report.stopped)

    return describe


def _preverifier(workspace: Workspace, judges: Sequence[Judge], spending: Spending) -> Preverify:
    settings = _language_model(judges, "preverify").settings
    checker = CorrectnessChecker(settings.endpoint, prompts=settings.prompts)

    def check(questions: Sequence[Question], run_id: str) -> None:
        report = preverify(workspace, checker, questions, run_id, budget=spending)
        if report.stopped:
            raise PausedError(stopped=report.stopped)

    return check


def _language_model(judges: Sequence[Judge], field: str) -> LlmJudge:
    for judge in judges:
        if isinstance(judge, LocalJudge):
            judge.start()  # its endpoint has an address only then
        if isinstance(judge, LlmJudge):
            return judge
    raise BadInputError("needs a language model among the judges (kind: openai or local)", field=field)


def spent_by(workspace: Workspace, loop: str) -> float:
    """What all runs of the loop have spent on calls of models, those of processes that were killed included."""
    fold_calls(workspace)
    with workspace.store.unit() as db:
        row = db.execute(
            """SELECT coalesce(sum(c.cost), 0) FROM model_calls c JOIN runs r USING (run_id)
               WHERE r.kind = $kind AND r.config->>'name' = $loop""",
            {"kind": RUN_KIND, "loop": loop},
        ).fetchone()
    return float(row[0]) if row else 0.0


def _people(workspace: Workspace, config: Stage1Config, spending: Spending) -> People:
    people = config.people
    if people.queue:
        return QueuedPeople(workspace, people.overlap, people.gold_checks, config.random_seed)
    return JudgedPeople(workspace, _judges(workspace, people.judges, "people.judges"), spending)


def _judges(workspace: Workspace, path: str | None, field: str) -> Sequence[Judge]:
    if path is None:
        return ()
    judges = load_judges(Path(path), workspace)
    if not judges:
        raise BadInputError("names no judge", file=path, field=field)
    return judges
