"""`assay annotate`: votes on a queue's items, in a terminal."""

from dataclasses import asdict
from typing import Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit


def register(app: typer.Typer) -> None:
    app.command("annotate")(annotate)


def annotate(
    queue: Annotated[str, typer.Argument(help="Name of the queue.")],
    name: Annotated[str, typer.Option("--as", help="Who is voting.")],
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two responses at a time; one key per decision, and every vote is stored before the next item.

    Keys: a or b is better, t tie, g both good, x both bad, s skip, 0-3 strength, r rationale, u undo, q quit. Several
    people may work at once, also while an import runs. Over a pipe the keys are read from standard input.

    Example: `assay annotate first-round --as ann`
    """
    annotate_queue(queue, name, workspace, adjudicate=False, as_json=as_json)


def annotate_queue(queue: str, name: str, workspace: WorkspaceOption, *, adjudicate: bool, as_json: bool) -> None:
    """A session of an annotator or an adjudicator. No run is recorded: the votes belong to the queue's run, and a run
    could not be recorded while an import holds the store."""
    import sys

    from rich.console import Console

    from assay.workspace import Workspace
    from assay_pipelines.annotation.service import AnnotationService
    from assay_pipelines.annotation.terminal.session import TerminalSession, open_keys

    here = Workspace.find(workspace)
    console = Console(stderr=as_json, highlight=False)
    with AnnotationService(here) as service:
        clear = sys.stdin.isatty() and console.is_terminal
        session = TerminalSession(service, queue, name, console, open_keys(), adjudicate=adjudicate, clear=clear)
        try:
            session.run()
        finally:
            folded = service.fold()
            done = session.counts
            progress = service.progress(queue)
            counts = [f"{done.votes} {'adjudication' if adjudicate else 'vote'}{'' if done.votes == 1 else 's'}"]
            counts += [
                f"{number} {name}" for name, number in (("skipped", done.skipped), ("undone", done.undone)) if number
            ]
            if len(counts) > 1 or done.votes:
                counts.append(
                    "in the store" if folded else "in the journal, since the store is busy: it takes them later"
                )
            end = "nothing is left for you" if done.finished else "the item before you went back to the queue"
            emit(
                {"queue": queue, "annotator": name, **asdict(done), "done": progress.done, "items": progress.items},
                f"{', '.join(counts)}; {end}; {progress.done} of {progress.items} items are done",
                as_json=as_json,
            )
