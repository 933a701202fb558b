"""`assay train principle`: a language model that says whether a response fulfils a principle named by the caller."""

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
        float, typer.Option(help="Share of the principles held out, likewise; both 0: train on everything.")
    ] = 0.1,
    holdout_seed: Annotated[int, typer.Option(help="Of which prompts and principles are held out.")] = 0,
    together: Annotated[
        int, typer.Option(help="Questions about one response in one item, computed together; 1 draws each by itself.")
    ] = 8,
    question: Annotated[
        str | None,
        typer.Option(help="Another wording, {principle} in it: of a base trained with it.", show_default=False),
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
