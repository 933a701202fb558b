"""Generation in which a model calls tools: turns and results until a turn calls nothing.

Covers: rounds over a batch, whose rows leave it as they end; rows of token ids that only grow, so that nothing is
tokenized twice. Leaves out: reading verdicts (`token_writer`), endpoints (`remote`).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from assay.models.chat.renderer import Renderer
from assay.models.spec import Judging
from assay.score import ScoreFailure
from assay_serving.generative.generation import Sampled
from assay_serving.tools.calls import calls_in
from assay_serving.tools.tool import ToolTurn
from assay_serving.tools.toolbox import toolbox
from assay_serving.tools.turns import between_turns


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a model wrote after a question. `last`: its last turn; `before`: the tokens before that, of `turns` and
    their results. `tokens_out`: those of `turns` that the model wrote. `failure`: of the engine, in a later turn."""

    last: Sampled
    before: tuple[int, ...] = ()
    turns: tuple[ToolTurn, ...] = ()
    tokens_out: int = 0
    failure: ScoreFailure | None = None


#: One continuation of each row of token ids, at a seed.
Continue: TypeAlias = Callable[[Sequence[tuple[int, ...]], int], Sequence[list[Sampled] | ScoreFailure]]


def converse(
    prompts: Sequence[tuple[int, ...]],
    first: Sequence[list[Sampled] | ScoreFailure],
    judging: Judging,
    renderer: Renderer,
    proceed: Continue,
    text_of: Callable[[Sequence[int]], str],
    *,
    seed: int,
    most: int,
) -> list[list[Conversation] | ScoreFailure]:
    """The conversations that begin with the turns `first`. `most`: tokens of a row, with its longest next turn; a row
    that would be longer ends there, as cut."""
    rows = [one if isinstance(one, ScoreFailure) else [Conversation(turn) for turn in one] for one in first]
    places = [(n, k) for n, row in enumerate(rows) if not isinstance(row, ScoreFailure) for k in range(len(row))]
    box, end = toolbox(judging.tools), int(renderer.tokenizer.eos_token_id)
    for _ in range(judging.tool_rounds):
        going: list[tuple[int, int]] = []
        for n, k in places:
            row = rows[n]
            assert not isinstance(row, ScoreFailure)
            one = row[k]
            calls = calls_in(text := text_of(one.last.ids)) if one.last.ended else []
            if not calls:
                continue
            results = box.run(calls, one.turns)
            before = (*one.before, *one.last.ids, end, *between_turns(renderer, results))
            if len(prompts[n]) + len(before) + judging.max_new_tokens > most:
                row[k] = replace(one, last=replace(one.last, ended=False))
                continue
            turns = (*one.turns, ToolTurn(text, tuple(results)))
            row[k] = replace(one, before=before, turns=turns, tokens_out=one.tokens_out + len(one.last.ids) + 1)
            going.append((n, k))
        _proceed(prompts, rows, going, proceed, seed)
        places = going
    return [
        next((one.failure for one in row if one.failure is not None), row) if not isinstance(row, ScoreFailure) else row
        for row in rows
    ]


def _proceed(
    prompts: Sequence[tuple[int, ...]],
    rows: Sequence[list[Conversation] | ScoreFailure],
    going: Sequence[tuple[int, int]],
    proceed: Continue,
    seed: int,
) -> None:
    """The next turn of each conversation. Samples of a question that are equal so far get random numbers of their
    own."""
    seen: defaultdict[tuple[int, ...], int] = defaultdict(int)
    batches: defaultdict[int, list[tuple[int, int, tuple[int, ...]]]] = defaultdict(list)
    for n, k in going:
        row = rows[n]
        assert not isinstance(row, ScoreFailure)
        context = (*prompts[n], *row[k].before)
        batches[seen[n, *context]].append((n, k, context))
        seen[n, *context] += 1
    for number, batch in batches.items():
        for (n, k, _), turn in zip(batch, proceed([context for *_, context in batch], seed + number), strict=True):
            row = rows[n]
            assert not isinstance(row, ScoreFailure)
            row[k] = replace(row[k], failure=turn) if isinstance(turn, ScoreFailure) else replace(row[k], last=turn[0])
