"""`assay train principle`: a language model that judges whether a response fulfils a given principle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay_rm_training.methods.method import Method


def principle(
    holdout_prompts: Annotated[
        float, typer.Option(help="Share of the prompts held out for the evaluation, without --eval-data.")
    ] = 0.1,
    holdout_principles: Annotated[
        float, typer.Option(help="Share of the principles held out; both 0: train on everything.")
    ] = 0.1,
    holdout_seed: Annotated[int, typer.Option(help="Seed of the held-out prompts and principles.")] = 0,
    together: Annotated[int, typer.Option(help="Questions about one response per item, computed together.")] = 8,
    question: Annotated[
        str | None,
        typer.Option(help="Another wording with {principle}, for a base trained with it.", show_default=False),
    ] = None,
) -> Method:
    """Train a principle reward model: Yes or No in one token, reward = log P(Yes) - log P(No).

    `--data` is a file of judged responses (prompt, response, principle, fulfilment), or `principles`: what
    `assay principles filter` kept. Whole prompts and whole principles are held out for the evaluation.

    Example: `assay train principle --data principles.jsonl --base smollm2 --name judge`
    """
    from assay.models.chat.principle_renderer import QUESTION
    from assay_rm_training.methods.principle import Principle

    return Principle(holdout_prompts, holdout_principles, holdout_seed, together, question or QUESTION)
