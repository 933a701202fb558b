"""An item drawn for a terminal: prompt, the two responses side by side where the width allows, and what helps to judge.

Control characters in texts, which could control the terminal, are shown by their codes; nothing is read as markup.
"""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from assay.conversation.message import response_turns
from assay.conversation.parts import ImagePart, ThinkingPart, ToolCallPart, ToolDefinitionPart, ToolResultPart
from assay.domain import Message, Prompt, Response, ShownOrder
from assay_pipelines.annotation.answer_match import in_words
from assay_pipelines.annotation.assignment import Assignment
from assay_pipelines.annotation.items import ShownItem, ShownOpinion
from assay_pipelines.annotation.question_types.pair import STRENGTHS, placed
from assay_pipelines.annotation.question_types.question_type import ANSWERED
from assay_pipelines.annotation.question_types.ranking import LETTERS
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
    if assignment.content.responses:
        several = len(assignment.content.responses) > 1
        for letter, text in zip(LETTERS, assignment.content.responses, strict=False):
            console.print(_response(letter.upper() if several else "response", text, ""))
        return
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


def draw_votes(console: Console, votes: Sequence[QueueVote], assignment: Assignment) -> None:
    """Others' votes, in the letters that this annotator sees."""
    for vote in votes:
        words = answer_words(vote.answer, assignment.shown_order)
        if vote.answer == ANSWERED and vote.labels is not None:
            words = in_words(vote.labels, assignment.response_ids)
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
    if answer == ANSWERED:
        return ANSWERED
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
        turns.append(Padding(_content(turn), (0, 0, 0, 2 if len(prompt) > 1 else 0)))
    return Panel(Group(*turns), title="prompt", title_align="left", border_style="blue")


def _content(message: Message) -> Text:
    """A message's parts, one below the other; what is not text says what it is."""
    shown = Text(overflow="fold")
    for part in message.parts:
        if shown:
            shown.append("\n")
        if isinstance(part, ThinkingPart):
            shown.append("thinking ", style="magenta").append(plain(part.text), style="dim")
        elif isinstance(part, ToolDefinitionPart):
            shown.append("tool ", style="magenta").append(plain(part.name), style="bold")
            shown.append(plain(f": {part.description}" if part.description else ""))
        elif isinstance(part, ToolCallPart):
            shown.append("calls ", style="magenta").append(plain(part.name), style="bold")
            shown.append(plain(f" {part.arguments}"))
        elif isinstance(part, ToolResultPart):
            shown.append(f"result of {plain(part.name)} " if part.name else "result ", style="magenta")
            shown.append(plain(part.content))
        elif isinstance(part, ImagePart):
            shown.append("image ", style="magenta").append(plain(part.content_hash or part.url or ""))
        else:
            shown.append(plain(part.text))
    return shown


def _response(letter: str, response: Response, checked: str) -> RenderableType:
    turns = response_turns(response)
    parts: list[RenderableType] = []
    for turn in turns:
        if len(turns) > 1:
            parts.append(Text(turn.role, style="bold blue"))
        parts.append(_content(turn))
    if checked:
        parts.append(Text(f"checked: {plain(checked)}", style="yellow"))
    return Panel(Group(*parts), title=Text(f" {letter} ", style="bold reverse"), title_align="left")
