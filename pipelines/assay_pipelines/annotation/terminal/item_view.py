"""An item drawn for a terminal: prompt, the two responses side by side where the width allows, and what helps to judge.

Covers: the picture. Leaves out: keys and votes (`session`). Texts come from data sets: control characters, which could
take over a terminal, are shown by their codes, and nothing in them is read as markup.
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
from assay_pipelines.annotation.queues import Progress
from assay_pipelines.annotation.votes import SKIP_REASONS, QueueVote

SIDE_BY_SIDE = 96  #: columns from which the two responses stand beside each other
STRENGTHS = ("barely", "slightly", "clearly", "far")


def draw_item(
    console: Console, given: Assignment, progress: Progress, *, number: int, guideline: str = "", undone: bool = False
) -> None:
    """`number`: of this person's items in this sitting, from 1."""
    console.print(_header(given, progress, number, undone))
    for part in _context(given.shown, guideline):
        console.print(part)
    console.print(_prompt(given.shown.prompt))
    checked = given.shown.pre_verification or ("", "")
    first = _response("A", given.shown.first, checked[0])
    second = _response("B", given.shown.second, checked[1])
    if console.width >= SIDE_BY_SIDE:
        grid = Table.grid(expand=True, padding=(0, 0))
        grid.add_column(ratio=1, overflow="fold")
        grid.add_column(ratio=1, overflow="fold")
        grid.add_row(first, second)
        console.print(grid)
    else:
        console.print(first)
        console.print(second)


def draw_keys(console: Console, *, strength: int | None, rationale: str, adjudicating: bool, sees_votes: bool) -> None:
    """The line of keys under an item, with what has been set before the decision."""
    keys = [("a", "A better"), ("b", "B better"), ("t", "tie"), ("g", "both good"), ("x", "both bad"), ("s", "skip")]
    more = [("0-3", "strength"), ("r", "rationale"), ("u", "undo")]
    if adjudicating and not sees_votes:
        more.append(("v", "see the votes"))
    more.append(("q", "quit"))
    _print_keys(console, keys)
    _print_keys(console, more)
    if strength is not None:
        console.print(Text(f"strength {strength}: {STRENGTHS[strength]} better", style="cyan"))
    if rationale:
        console.print(Text(f"rationale: {plain(rationale)}", style="cyan"))


def draw_skips(console: Console) -> None:
    console.print(Text("why?", style="bold"))
    for key, reason in SKIP_KEYS.items():
        _print_keys(console, [(key, SKIP_REASONS[reason])])
    console.print(Text("any other key: back to the item", style="dim"))


def draw_votes(console: Console, votes: Sequence[QueueVote], order: ShownOrder) -> None:
    """Others' votes, in the letters that this person sees."""
    for vote in votes:
        said = shown_answer(vote.answer, order)
        strength = f" ({STRENGTHS[vote.strength]})" if vote.strength is not None and vote.answer in ("A", "B") else ""
        why = f": {plain(vote.rationale)}" if vote.rationale else ""
        console.print(Text(f"  {plain(vote.annotator)} said {said}{strength}{why}", style="magenta"))


def draw_opinions(console: Console, opinions: Sequence[ShownOpinion], order: ShownOrder) -> None:
    for opinion in opinions:
        why = f": {plain(opinion.rationale)}" if opinion.rationale else ""
        console.print(
            Text(f"  {plain(opinion.judge)} said {shown_answer(opinion.answer, order)}{why}", style="magenta")
        )


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


def shown_answer(answer: str, order: ShownOrder) -> str:
    """A canonical answer in the letters of the screen, where A is what is shown first."""
    if answer in ("A", "B"):
        return answer if order == "AB" else ("B" if answer == "A" else "A")
    return answer.replace("_", " ")


def plain(text: str) -> str:
    """Control characters, escape sequences among them, by their codes."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"<{ord(c):02x}>" for c in text.replace("\r\n", "\n"))


#: One key for each reason to skip.
SKIP_KEYS = {"c": "cannot_decide", "k": "broken", "n": "not_for_me", "l": "later"}


def _header(given: Assignment, progress: Progress, number: int, undone: bool) -> RenderableType:
    what = "adjudication" if given.role != "vote" else "item"
    left = f"{plain(given.queue)} · {plain(given.annotator)} · {what} {number} of this sitting"
    left += " · undone, vote again" if undone else ""
    conflicts = f" · {progress.conflicts} conflicts left" if given.role != "vote" else ""
    return Rule(Text(f"{left} · {progress.done} of {progress.items} done{conflicts}", style="bold"))


def _context(shown: ShownItem, guideline: str) -> list[RenderableType]:
    lines: list[tuple[str, str]] = []
    if shown.reason:
        lines.append(("why", shown.reason))
    if (about := shown.attributes) is not None:
        lines.append(
            ("about", f"{about.task_category}, {about.objectivity}, controversiality {about.controversiality}")
        )
        lines.append(("wanted", about.desired))
    for text in (guideline, about.guideline if about is not None else "", shown.guideline):
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
