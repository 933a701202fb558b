"""`assay train generative-sft`, `assay train generative-rl`, `assay eval-judge`: generative reward models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay_rm_training.methods import Method


def generative_sft(
    form: Annotated[
        str, typer.Option("--format", help="pairwise (A or B), pointwise (Yes or No) or rating (1 to 10).")
    ] = "pairwise",
    one_order: Annotated[
        bool, typer.Option("--one-order", help="Show a pair one way round, drawn; default: both, in one batch.")
    ] = False,
    verdict_weight: Annotated[float, typer.Option(help="Weight of the verdict's token; every other has 1.")] = 1.0,
    samples: Annotated[
        int, typer.Option(help="Votes a question, when the model is used; above 1 set --temperature.")
    ] = 1,
    temperature: Annotated[float, typer.Option(help="When the model is used; 0 = most likely token.")] = 0.0,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer, when the model is used.")] = 256,
) -> Method:
    """Teach a language model to judge: rationales and verdicts, token by token. The start for generative-rl.

    Rows: a snapshot with rationales in its judgments, or a file of {prompt, responses, verdict, rationale} or
    {prompt, chosen, rejected, rationale}.

    Example: `assay train generative-sft --data reasons.jsonl.gz --base smollm2 --name judge --max-length 768`
    """
    from assay_rm_training.generative.sft import GenerativeSft

    return GenerativeSft(form, not one_order, verdict_weight, samples, temperature, max_new_tokens)
