"""`assay queue ...`: create, list, status, close, reopen, move, adjudicate, resolve, report, agreement,
recover, rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import JsonOption, WorkspaceOption
from assay.cli.workspace_command import CommandResult, add_commands
from assay.errors import BadInputError
from assay.registry import absolute_name
from assay.runs.progress_bar import progress_bar
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.annotation.question_types.question_type import PAIR, QUESTION_TYPES, TASKS
from assay_pipelines.commands.annotate import annotate_queue
from assay_pipelines.commands.selection import CategoryFilter, PoolOption, SourceFilter, selection_of

if TYPE_CHECKING:
    from assay.statistics.agreement import AgreementCoefficients, CoefficientEstimate
    from assay.statistics.intervals import Interval
    from assay_pipelines.annotation.quality.principle_agreement import PrincipleAgreement
    from assay_pipelines.annotation.recording import Queue
    from assay_pipelines.annotation.tasks import TaskQuestion


_COMPARISONS = {"c-": "comparison"}
_SIDES = {True: "against the reward", False: "with the reward", None: "-"}
QueueArgument = Annotated[str, typer.Argument(help="Name of the queue.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="What people are asked, and what their votes come to.")
    add_commands(group, list_, create, status, close, reopen, move, adjudicate, resolve, report, agreement, recover)
    add_commands(group, from_rollouts, effect)
    app.add_typer(group, name="queue")


def create(
    workspace: Workspace,
    name: QueueArgument,
    pool: PoolOption = None,
    source: SourceFilter = None,
    category: CategoryFilter = None,
    ids: Annotated[
        Path | None,
        typer.Option(
            help="Instead of a selection: a file with one comparison id a line (of a response, or of a prompt to rank)."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many, drawn by hash.")] = None,
    overlap: Annotated[str, typer.Option(help="How many people see each item, or 'all' for everyone.")] = "1",
    gold_checks: Annotated[
        float | None,
        typer.Option(
            help="Share of known answers mixed in: of the gold pool (default 0.1); with --question rating, steps or "
            "ranking what people agreed on in earlier queues, or adjudicated (default none).",
            show_default=False,
        ),
    ] = None,
    guideline: Annotated[str, typer.Option(help="Shown beside every item.")] = "",
    reason: Annotated[str, typer.Option(help="Why these are asked; shown beside every item.")] = "",
    principle: Annotated[
        list[str] | None, typer.Option(help="Ask of both responses whether they fulfil this; repeatable.")
    ] = None,
    question: Annotated[str, typer.Option(help=f"Question type: {QUESTION_TYPES.help()}.")] = PAIR,
    rate: Annotated[
        list[str] | None,
        typer.Option(help="With --question rating: what is rated, NAME or NAME:LOW-HIGH (default 1-5); repeatable."),
    ] = None,
    span_label: Annotated[
        list[str] | None,
        typer.Option(
            help="With --question spans: what a span can be (default `error`); repeatable.", show_default=False
        ),
    ] = None,
    by_turns: Annotated[
        bool, typer.Option("--by-turns", help="With --question steps: the steps are the assistant's turns.")
    ] = False,
    lease: Annotated[float, typer.Option(min=0.1, help="Minutes until an untouched item goes to others.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Seed of every order that is drawn.")] = 0,
    project: Annotated[
        str | None, typer.Option(help="Whose members are asked. Default: the project `default`.", show_default=False)
    ] = None,
) -> CommandResult:
    """Make a queue for people. Run again with the same settings it adds what is missing.

    The items are comparisons; with --question rating, steps or spans single responses, with --question ranking prompts
    whose responses are ranked.

    Example: `assay queue create first-round --pool unverified --limit 200 --overlap 3`
    """
    from assay_pipelines.annotation.items import QueueItem, principle_statements
    from assay_pipelines.annotation.question_types.rating import AnnotationScale
    from assay_pipelines.annotation.queues import create_queue, items_of
    from assay_pipelines.annotation.tasks import TaskQuestion, create_task_queue, named_tasks, tasks_of

    if overlap != "all" and not overlap.isdecimal():
        raise BadInputError(f"--overlap takes a number or 'all', not {overlap!r}")
    if ids is not None and (pool or source or category):
        raise BadInputError("--ids names the comparisons: leave --pool, --source and --category out")
    if rate and question != "rating":
        raise BadInputError("--rate goes with --question rating")
    if span_label and question != "spans":
        raise BadInputError("--span-label goes with --question spans")
    if by_turns and question != "steps":
        raise BadInputError("--by-turns goes with --question steps")
    task = question in TASKS
    if task and principle:
        raise BadInputError(f"--principle asks of two responses: not with --question {question}")
    selection = selection_of(pool or (None if task else ["unverified"]), source, category)
    about: dict[str, Any] = {"reason": reason, "principles": principle_statements(principle or ())}
    asked: TaskQuestion | None = None
    if task:
        scales = tuple(map(AnnotationScale.parse, rate or ("overall",)))
        asked = TaskQuestion(question, scales, tuple(dict.fromkeys(span_label or ("error",))), reason, by_turns)
    else:
        about["question"] = question if question == PAIR else absolute_name(question, Path())
    shared: dict[str, Any] = {
        "overlap": "all" if overlap == "all" else int(overlap),
        "gold_checks": (0.0 if task else 0.1) if gold_checks is None else gold_checks,
        "guideline": guideline,
        "seed": seed,
        "lease_seconds": 60 * lease,
        "project": project,
    }
    settings = {"queue": name, "selection": asdict(selection), "ids": ids, "limit": limit, **about, **shared}
    settings |= {"question": asdict(asked)} if asked is not None else {}
    with (
        start_run(workspace, "queue-create", settings) as run,
        progress_bar("queueing", 1, unit="queue") as advance,
    ):
        if asked is not None:
            if ids is not None:
                kinds = {"r-": "response"} | ({"p-": "prompt"} if question == "ranking" else {})
                tasks = named_tasks(workspace, asked, _read_ids(ids, kinds)[:limit], seed=seed)
            else:  # without a pool also responses that are in no comparison
                tasks = tasks_of(workspace, asked, selection, alone=not pool, limit=limit, seed=seed)
            queue = create_task_queue(workspace, name, tasks, asked, run_id=run.id, **shared)
        else:
            if ids is not None:
                items = [QueueItem(comparison, **about) for comparison in _read_ids(ids)[:limit]]
            else:
                items = items_of(workspace, selection, limit=limit, seed=seed, **about)
            if not items:
                raise BadInputError("no comparison is named: the queue would be empty")
            queue = create_queue(workspace, name, items, run_id=run.id, **shared)
        advance(1)
        run.metrics.update(items=queue.items, checks=queue.checks)
    few = " (no gold pairs to check people with)" if not task and shared["gold_checks"] and not queue.checks else ""
    return CommandResult(
        {"run": run.id, **asdict(queue)},
        f"{_line(queue)}{few}\n{'answer' if task else 'vote'} with: assay annotate {queue.name} --as YOUR-NAME",
    )


def list_(workspace: Workspace) -> CommandResult:
    """All queues, newest first.

    Example: `assay queue list`
    """
    from assay_pipelines.annotation.queues import list_queues

    queues = list_queues(workspace)
    text = "\n".join(_line(queue) for queue in queues) or "no queues yet: assay queue create NAME"
    return CommandResult({"queues": [asdict(queue) for queue in queues]}, text)


def status(workspace: Workspace, queue: QueueArgument) -> CommandResult:
    """How far a queue is, and who has voted how often.

    Example: `assay queue status first-round`
    """
    from assay_pipelines.annotation.queues import get_queue, queue_progress

    record, progress = get_queue(workspace, queue), queue_progress(workspace, queue)
    lines = [
        _line(record),
        f"{progress.done} done, {progress.open} open, {progress.leased} in work, "
        f"{progress.conflicts} without a majority",
        f"{progress.votes} votes and {progress.checked} on gold checks, {progress.passed} times passed on, "
        f"{progress.withdrawn} taken back",
        *(
            f"  {who:<30} {number:>6}" + (f", {passed} passed on" if (passed := progress.passed_by.get(who, 0)) else "")
            for who, number in progress.annotators.items()
        ),
    ]
    payload = {"queue": asdict(record), **asdict(progress), "open": progress.open}
    return CommandResult(payload, "\n".join(lines))


def close(workspace: Workspace, queue: QueueArgument) -> CommandResult:
    """Hand out no more items of a queue. What was voted stays.

    Example: `assay queue close first-round`
    """
    from assay_pipelines.annotation.queues import close_queue

    close_queue(workspace, queue)
    return CommandResult({"queue": queue, "closed": True}, f"closed {queue}")


def reopen(workspace: Workspace, queue: QueueArgument) -> CommandResult:
    """Hand out items of a closed queue again.

    Example: `assay queue reopen first-round`
    """
    from assay_pipelines.annotation.queues import reopen_queue

    reopen_queue(workspace, queue)
    return CommandResult({"queue": queue, "closed": False}, f"reopened {queue}")


def move(
    workspace: Workspace, queue: QueueArgument, project: Annotated[str, typer.Argument(help="The new project.")]
) -> CommandResult:
    """Move a queue into another project: its members see the queue, and others no more. Members: `assay account join`.

    Example: `assay queue move first-round medical`
    """
    from assay_pipelines.annotation.queues import move_queue

    moved = move_queue(workspace, queue, project)
    return CommandResult({"queue": moved.name, "project": moved.project}, f"{moved.name}: project {moved.project}")


def adjudicate(
    queue: QueueArgument,
    name: Annotated[str, typer.Option("--as", help="Who is adjudicating; not somebody who voted on the item.")],
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decide items whose votes have no majority. The votes are shown after your own, or before it with the key v, which
    the records then say.

    Example: `assay queue adjudicate first-round --as dora`
    """
    annotate_queue(queue, name, workspace, adjudicate=True, as_json=as_json)


def resolve(
    workspace: Workspace,
    queue: QueueArgument,
    least_votes: Annotated[
        int | None, typer.Option(min=1, help="Votes that a majority needs. Default: the queue's overlap.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be decided; write nothing.")] = False,
) -> CommandResult:
    """Turn majorities and adjudications into gold decisions; what people cannot decide is discarded, with the reason.
    Rankings are resolved by the pairs of their responses.

    Example: `assay queue resolve first-round --dry-run`
    """
    from assay_pipelines.annotation.resolution import resolve_queue

    with (
        start_run(workspace, "queue-resolve", {"queue": queue, "least_votes": least_votes, "dry_run": dry_run}) as run,
        progress_bar("resolving", 1, unit="queue") as advance,
    ):
        report = resolve_queue(workspace, queue, run.id, least_votes=least_votes, dry_run=dry_run)
        run.metrics.update(asdict(report))
        advance(1)
    extra = f"; {report.overtaken} were decided by something else meanwhile, which stands" if report.overtaken else ""
    extra += f"; {report.revoked} are pending again, since votes were taken back" if report.revoked else ""
    return CommandResult(
        {"run": run.id, **asdict(report)},
        f"{report.items} pairs: {report.gold} gold ({report.ties} ties), {report.discarded} discarded as undecidable, "
        f"{report.adjudicated} of these adjudicated; {report.conflicts} wait for adjudication, "
        f"{report.waiting} for votes"
        f"{extra}; {'nothing written' if dry_run else f'new decisions: {report.new}'}",
    )


def report(workspace: Workspace, queue: QueueArgument) -> CommandResult:
    """Each person's quality: gold checks, agreement with the others, speed, sides, ties, skips, and what to look at.

    Example: `assay queue report first-round`
    """
    from assay_pipelines.annotation.quality.annotators import annotator_quality
    from assay_pipelines.annotation.queues import get_queue
    from assay_pipelines.annotation.recovery import open_ledger
    from assay_pipelines.annotation.votes import queue_votes

    record = get_queue(workspace, queue)
    with open_ledger(workspace) as ledger:
        people = annotator_quality(queue_votes(ledger, record.name))
    lines = [
        f"{'annotator':<20} {'votes':>6} {'gold checks':>20} {'with the others':>20} {'prefers the first':>20} "
        f"{'s':>5} {'ties':>5} {'skips':>5} {'passed on':>9}"
    ]
    for p in people:
        seconds = f"{p.median_seconds:5.1f}" if p.median_seconds is not None else "    -"
        lines.append(
            f"{p.annotator:<20.20} {p.votes:>6} {_share(p.passed, p.checks, p.accuracy):>20} "
            f"{_share(p.agreed, p.compared, p.agreement):>20} {_share(p.first, p.preferred, p.first_rate):>20} "
            f"{seconds} {p.ties:>5} {p.skips:>5} {p.passed_on:>9}"
        )
        lines += [f"  ! {flag}" for flag in p.flags]
    return CommandResult(
        {"queue": record.name, "annotators": [asdict(p) for p in people]},
        "\n".join(lines) if people else "nobody has voted yet",
    )


def agreement(
    workspace: Workspace,
    queue: Annotated[str | None, typer.Argument(help="Name of the queue.", show_default=False)] = None,
    source: Annotated[
        str | None, typer.Option(help="Instead of a queue: all people's votes on this imported source.")
    ] = None,
    resamples: Annotated[int, typer.Option(min=10, help="Of the bootstrap behind the intervals.")] = 1000,
) -> CommandResult:
    """How far people agree: percent, Cohen's and Fleiss' kappa, Krippendorff's alpha, with and without ties; of
    ratings, steps, spans and rankings percent and alpha.

    Example: `assay queue agreement first-round`
    """
    from assay.errors import NotFoundError
    from assay_pipelines.annotation.quality.agreement import agreement_of_votes, label_agreement
    from assay_pipelines.annotation.quality.principle_agreement import principle_agreement
    from assay_pipelines.annotation.question_types.question_type import ANSWERED
    from assay_pipelines.annotation.queues import get_queue
    from assay_pipelines.annotation.recovery import open_ledger
    from assay_pipelines.annotation.votes import queue_votes, source_votes

    if (queue is None) == (source is None):
        raise BadInputError("name a queue, or a source with --source")
    principles: list[PrincipleAgreement] = []
    if queue is not None:
        name = get_queue(workspace, queue).name
        with open_ledger(workspace) as ledger:
            votes = queue_votes(ledger, name)
            principles = principle_agreement(ledger, name)
            by_label = label_agreement(ledger, name, resamples=resamples)
        if by_label:
            lines = [f"{'':<20} {'scale':>9} {'items':>7} {'labels':>7} {'percent':>9} {'alpha':>21}"]
            lines += [
                f"{a.what[:20]:<20} {a.metric:>9} {a.items:>7} {a.labels:>7} "
                f"{'-' if a.percent is None else f'{100 * a.percent:.1f} %':>9} {_estimate(a.alpha):>21}"
                for a in by_label
            ]
            return CommandResult({"queue": name, "labels": [asdict(a) for a in by_label]}, "\n".join(lines))
        if any(vote.answer == ANSWERED for vote in votes):
            return CommandResult({"queue": name, "labels": []}, "nothing was labelled that could be compared")
    else:
        assert source is not None
        votes = source_votes(workspace, source)
        if not votes:
            raise NotFoundError(f"no votes of people on a source {source!r}; see `assay data stats`")
    figures = agreement_of_votes(votes, resamples=resamples)
    rows: list[tuple[str, AgreementCoefficients]] = [
        ("ties counted", figures.with_ties),
        ("ties dropped", figures.ties_dropped),
    ]
    lines = [f"{'':<14} {'items':>7} {'labels':>7} {'percent':>21} {'Cohen':>21} {'Fleiss':>21} {'alpha':>21}"]
    lines += [
        f"{title:<14} {a.items:>7} {a.labels:>7} {_estimate(a.percent):>21} {_estimate(a.cohen):>21} "
        f"{_estimate(a.fleiss):>21} {_estimate(a.alpha):>21}"
        for title, a in rows
    ]
    lines.append(f"{figures.with_ties.annotators} people; {100 * figures.tie_rate:.1f} % of their labels are ties")
    if figures.strength_items:
        lines.append(f"strength, ordinal alpha over {figures.strength_items} items: {_estimate(figures.strength)}")
    if principles:
        lines.append(f"{'answers':>9} {'yes':>7} {'shared':>7} {'percent':>8} {'alpha':>7}  principle")
        lines += [
            f"{p.answers:>9} {100 * p.yes:>5.1f} % {p.items:>7} {_number(p.percent):>8} {_number(p.alpha):>7}  "
            f"{p.principle}"
            for p in principles
        ]
    payload: dict[str, Any] = {"queue": queue, "source": source, **asdict(figures)}
    payload["principles"] = [asdict(p) for p in principles]
    return CommandResult(payload, "\n".join(lines))


def recover(workspace: Workspace) -> CommandResult:
    """Bring into the operational file what it lacks, from the store and the journal; for a file that was lost.

    Example: `assay queue recover`
    """
    from assay_pipelines.annotation.recovery import open_ledger
    from assay_pipelines.annotation.recovery import recover as bring_back

    with open_ledger(workspace) as ledger:
        added = bring_back(workspace, ledger)
    return CommandResult(
        asdict(added),
        f"brought back {added.queues} queues, {added.items} items, {added.votes} votes, {added.withdrawn} withdrawals",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _read_ids(path: Path, kinds: Mapping[str, str] = _COMPARISONS) -> list[str]:
    """`kinds`: what may be named, by the prefix of its ids."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"cannot be read: {error}", file=path) from error
    named = []
    for number, line in enumerate(lines, start=1):
        if not (text := line.strip()):
            continue
        if not text.startswith(tuple(kinds)):
            raise BadInputError(f"not a {' or '.join(kinds.values())} id: {text[:40]!r}", file=path, row=number)
        named.append(text)
    return named


def _line(queue: Queue) -> str:
    people = "everyone labels everything" if queue.overlap == "all" else f"{queue.overlap} people each"
    people = "1 person each" if queue.overlap == 1 else people
    state = ", closed" if queue.closed else ""
    project = "" if queue.project == "default" else f", project {queue.project}"
    return f"{queue.name}: {queue.items} items, {people}, {queue.checks} gold checks{project}{state}"


def _share(part: int, total: int, interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"{part}/{total} ({100 * interval.low:.0f}-{100 * interval.high:.0f} %)"


def _estimate(estimate: CoefficientEstimate) -> str:
    if estimate.value is None:
        return "-"
    if estimate.interval is None:
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} ({estimate.interval.low:.3f}, {estimate.interval.high:.3f})"


def from_rollouts(
    workspace: Workspace,
    run: Annotated[str, typer.Argument(help="Id of a policy run (`assay rl`).")],
    name: Annotated[str, typer.Option(help="Of the queue. Default: rollouts-RUN.", show_default=False)] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="The most doubtful so many. Default: all.")] = None,
    overlap: Annotated[int, typer.Option(min=1, help="How many people see each pair.")] = 1,
    gold_checks: Annotated[float, typer.Option(help="Share of known answers mixed in, from the gold pool.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of every order that is drawn.")] = 0,
) -> CommandResult:
    """Put before people the rollouts that the reward trained on and the held-out reward disagree about; of a run that
    was not watched, those that its reward hardly tells apart, or whose parts disagree.

    Each pair is two responses of the policy to one prompt, an episode with all its turns; the rewards' preferences are
    recorded as their judgments and not shown. Run again it adds what the policy run has found since.

    Example: `assay queue from-rollouts run-20261121-130202-cf034f --limit 100 --overlap 3`
    """
    from assay_pipelines.annotation.rollouts import queue_rollouts

    queue = name or f"rollouts-{run}"
    settings = {"queue": queue, "policy_run": run, "limit": limit, "overlap": overlap, "gold_checks": gold_checks}
    with start_run(workspace, "queue-create", settings | {"seed": seed}, inputs={run: "run"}) as recorded:
        created = queue_rollouts(
            workspace, run, queue, recorded, limit=limit, overlap=overlap, gold_checks=gold_checks, seed=seed
        )
        recorded.metrics.update(suspects=created.suspects, new=created.new)
    return CommandResult(
        {"run": recorded.id, "suspects": created.suspects, "new": created.new, **asdict(created.queue)},
        f"{created.queue.name}: {created.suspects} pairs, {created.new} of them new to the store\n"
        f"vote with: assay annotate {queue} --as YOUR-NAME; then: assay queue resolve {queue}",
    )


def effect(workspace: Workspace, queue: QueueArgument) -> CommandResult:
    """Show where a queue's decisions are now: which labels people overturned, which snapshots and models hold them.

    Example: `assay queue effect rollouts-run-20261121-130202-cf034f`
    """
    from assay_pipelines.annotation.rollouts import effects

    decisions = effects(workspace, queue)
    lines = [
        f"{e.comparison_id}  {e.label or 'undecidable':<11}  "
        + ("rewards disagree" if e.contradictory else _SIDES[e.overturned]).ljust(18)
        + f"  {', '.join(e.snapshots) or 'in no snapshot'}  {', '.join(e.models) or 'in no model'}"
        for e in decisions
    ]
    models = sorted({model for e in decisions for model in e.models})
    overturned = sum(e.overturned is True for e in decisions)
    contradictory = sum(e.contradictory for e in decisions)
    counts = f"{len(decisions)} decisions, {overturned} against the reward trained on"
    counts += f", {contradictory} about which rewards of several runs disagree" if contradictory else ""
    total = f"{counts}; they changed: {', '.join(models) or 'no model yet'}"
    payload = {
        "decisions": [e.to_dict() for e in decisions],
        "overturned": overturned,
        "contradictory": contradictory,
        "models": models,
    }
    return CommandResult(payload, "\n".join([*lines, total]))
