"""An item drawn for a terminal: prompt, the two responses side by side where the width allows, and what helps to judge.

Control characters in texts, which could control the terminal, are shown by their codes; nothing is read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from assay.domain import Prompt, ShownOrder
from assay_pipelines.annotation.assignment import Assignment
from assay_pipelines.annotation.items import ShownItem, ShownOpinion
from assay_pipelines.annotation.question_types.pair import STRENGTHS, placed
from assay_pipelines.annotation.queues import QueueProgress
from assay_pipelines.annotation.votes import QueueVote

SIDE_BY_SIDE = 96  #: columns from which the two responses stand beside each other


def draw_item(
    console: Console,
    assignment: Assignment,
    progress: QueueProgress,
    *,
    number: int,
    guideline: str = "",
    undone: bool = False,
) -> None:
    """`number`: of the annotator's items in this session, from 1."""
    console.print(_header(assignment, progress, number, undone))
    for part in _context(assignment.content, guideline):
        console.print(part)
    console.print(_prompt(assignment.content.prompt))
    checked = assignment.content.pre_verification or ("", "")
    first = _response("A", assignment.content.first, checked[0])
    second = _response("B", assignment.content.second, checked[1])
    if console.width >= SIDE_BY_SIDE:
        grid = Table.grid(expand=True, padding=(0, 0))
        grid.add_column(ratio=1, overflow="fold")
        grid.add_column(ratio=1, overflow="fold")
        grid.add_row(first, second)
        console.print(grid)
    else:
        console.print(first)
        console.print(second)


def draw_keys(console: Console, keys: Sequence[tuple[str, str]], notes: Sequence[str]) -> None:
    """The keys under an item, with what has been set before the decision."""
    _print_keys(console, keys)
    for note in notes:
        console.print(Text(plain(note), style="cyan"))


def draw_options(console: Console, title: str, options: Sequence[tuple[str, str]]) -> None:
    console.print(Text(title, style="bold"))
    for option in options:
        _print_keys(console, [option])
    console.print(Text("any other key: back to the item", style="dim"))


def draw_votes(console: Console, votes: Sequence[QueueVote], order: ShownOrder) -> None:
    """Others' votes, in the letters that this annotator sees."""
    for vote in votes:
        words = answer_words(vote.answer, order)
        if vote.strength is not None and vote.answer in ("A", "B"):
            words += f" ({STRENGTHS[vote.strength]})"
        _draw_answer(console, vote.annotator, words, vote.rationale)


def draw_opinions(console: Console, opinions: Sequence[ShownOpinion], order: ShownOrder) -> None:
    for opinion in opinions:
        _draw_answer(console, opinion.judge, answer_words(opinion.answer, order), opinion.rationale)


def _draw_answer(console: Console, by: str, words: str, rationale: str | None) -> None:
    reason = f": {plain(rationale)}" if rationale else ""
    console.print(Text(f"  {plain(by)} said {words}{reason}", style="magenta"))


def _print_keys(console: Console, keys: Sequence[tuple[str, str]]) -> None:
    """As many as fit on a line, a key never parted from its meaning."""
    line = Text()
    for key, meaning in keys:
        part = Text(f" {key} ", style="bold reverse").append(f" {meaning}  ", style="not bold not reverse")
        if line and line.cell_len + part.cell_len > console.width + 2:
            console.print(line)
            line = Text()
        line.append_text(part)
    line.rstrip()
    console.print(line)


def answer_words(answer: str, order: ShownOrder, strength: int | None = None) -> str:
    """A canonical answer in the letters of the screen, where A is what is shown first."""
    choice = placed(answer, order)
    words = {"first": "A", "second": "B"}.get(choice, choice.replace("_", " "))
    return words if strength is None else f"{words}, {STRENGTHS[strength]} better"


def plain(text: str) -> str:
    """Control characters, escape sequences among them, by their codes."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"<{ord(c):02x}>" for c in text.replace("\r\n", "\n"))


def _header(assignment: Assignment, progress: QueueProgress, number: int, undone: bool) -> RenderableType:
    what = "adjudication" if assignment.role != "vote" else "item"
    title = f"{plain(assignment.queue)} · {plain(assignment.annotator)} · {what} {number} of this session"
    title += " · undone, vote again" if undone else ""
    conflicts = f" · {progress.conflicts} conflicts left" if assignment.role != "vote" else ""
    return Rule(Text(f"{title} · {progress.done} of {progress.items} done{conflicts}", style="bold"))


def _context(content: ShownItem, guideline: str) -> list[RenderableType]:
    lines: list[tuple[str, str]] = []
    if content.reason:
        lines.append(("why", content.reason))
    if (about := content.attributes) is not None:
        lines.append(
            ("about", f"{about.task_category}, {about.objectivity}, controversiality {about.controversiality}")
        )
        lines.append(("wanted", about.desired))
    for text in (guideline, about.guideline if about is not None else "", content.guideline):
        if text:
            lines.append(("guideline", text))
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for name, text in lines:
        table.add_row(name, Text(plain(text)))
    return [table] if lines else []


def _prompt(prompt: Prompt) -> RenderableType:
    turns: list[RenderableType] = []
    for turn in prompt:
        if len(prompt) > 1:
            turns.append(Text(turn.role, style="bold blue"))
        turns.append(Padding(Text(plain(turn.content), overflow="fold"), (0, 0, 0, 2 if len(prompt) > 1 else 0)))
    return Panel(Group(*turns), title="prompt", title_align="left", border_style="blue")


def _response(letter: str, text: str, checked: str) -> RenderableType:
    parts: list[RenderableType] = [Text(plain(text), overflow="fold")]
    if checked:
        parts.append(Text(f"checked: {plain(checked)}", style="yellow"))
    return Panel(Group(*parts), title=Text(f" {letter} ", style="bold reverse"), title_align="left")
