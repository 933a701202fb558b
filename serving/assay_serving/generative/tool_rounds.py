"""Generation in which a model calls tools: turns and results until a turn calls nothing.

Covers: rounds over a batch, whose rows leave it as they end; rows of token ids that only grow, so that nothing is
tokenized twice. Leaves out: reading verdicts (`token_writer`), endpoints (`remote`).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from assay.errors import BackendError
from assay.models.chat.renderer import Renderer
from assay.models.spec import Judging
from assay.score import ScoreFailure
from assay_serving.generative.generation import Sampled
from assay_serving.tools.calls import calls_in
from assay_serving.tools.tool import ToolTurn
from assay_serving.tools.toolbox import toolbox
from assay_serving.tools.turns import between_turns

#: One continuation of each row of token ids, at a seed.
Continue: TypeAlias = Callable[[Sequence[tuple[int, ...]], int], Sequence[list[Sampled] | ScoreFailure]]


@dataclass(slots=True)
class Conversation:
    """What a model wrote after a question. `last`: its last turn, or the engine's failure; `before`: the tokens before
    that, of `turns` and their results. `tokens_out`: those of `turns` that the model wrote."""

    number: int  #: of its question in the batch
    question: tuple[int, ...]
    last: Sampled | ScoreFailure
    before: tuple[int, ...] = ()
    turns: tuple[ToolTurn, ...] = ()
    tokens_out: int = 0


def converse(
    conversations: Sequence[Conversation],
    judging: Judging,
    renderer: Renderer,
    proceed: Continue,
    text_of: Callable[[Sequence[int]], str],
    *,
    seed: int,
    most: int,
) -> None:
    """Let conversations that have their first turn go on to their end. `most`: tokens of a row, with its longest next
    turn; a row that would be longer ends there, as cut."""
    going, end = list(conversations), int(renderer.tokenizer.eos_token_id)
    for _ in range(judging.tool_rounds):
        # Samples of a question that are equal so far get random numbers of their own; the same question asked again
        # gets those that it got the first time.
        batches: defaultdict[int, list[Conversation]] = defaultdict(list)
        copies: defaultdict[tuple[int, tuple[int, ...]], int] = defaultdict(int)
        for one in going:
            turn = one.last
            calls = calls_in(text := text_of(turn.ids)) if isinstance(turn, Sampled) and turn.ended else []
            if isinstance(turn, ScoreFailure) or not calls:
                continue
            try:
                results = toolbox(judging.tools).run(calls, one.turns)
            except BackendError as error:
                one.last = ScoreFailure("backend", str(error))
                continue
            before = (*one.before, *turn.ids, end, *between_turns(renderer, results))
            if len(one.question) + len(before) + judging.max_new_tokens > most:
                one.last = Sampled(turn.ids, ended=False)
                continue
            one.before, one.turns = before, (*one.turns, ToolTurn(text, tuple(results)))
            one.tokens_out += len(turn.ids) + 1
            row = one.question + before
            batches[copies[one.number, row]].append(one)
            copies[one.number, row] += 1
        going = [one for batch in batches.values() for one in batch]
        for number, batch in batches.items():
            rows = [one.question + one.before for one in batch]
            for one, drawn in zip(batch, proceed(rows, seed + number), strict=True):
                one.last = drawn if isinstance(drawn, ScoreFailure) else drawn[0]
