"""`assay train odin`, `grm`, `lists`, `ratings`, `steps`: scalar reward models with other objectives than `bt`.

Leaves out: shared options (`options.py`), the methods (`odin.py`, `grm.py`,
`ranked_lists.py`, `multi_objective.py`, `process_reward.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay_rm_training.methods.method import Method

Centring = Annotated[float, typer.Option(help="Weight of (chosen + rejected)^2.")]
Smoothing = Annotated[float, typer.Option(help="Believed share of flipped labels, 0 to 0.5.")]
Margins = Annotated[bool, typer.Option("--margins", help="Use the pairs' margins in the loss.")]


def odin(
    length: Annotated[float, typer.Option(help="Weight of the correlations with length.")] = 1.0,
    orthogonal: Annotated[float, typer.Option(help="Weight of |cos| of the two heads.")] = 1.0,
    of_sum: Annotated[
        bool, typer.Option("--of-sum", help="Add the correlation of both heads' sum, as the published code does.")
    ] = False,
    centring: Centring = 0.01,
    label_smoothing: Smoothing = 0.0,
    margins: Margins = False,
) -> Method:
    """Train on pairs with a length head beside the quality head, and keep the quality head (ODIN).

    Correlations are over the whole optimiser batch: take a --batch-size of 64 or more, in pairs.

    Example: `assay train odin --data gold --eval-data gold-holdout --batch-size 64`
    """
    from assay_rm_training.methods.odin import Odin
    from assay_rm_training.objectives.objective import Objective

    loss = Objective(label_smoothing=label_smoothing, centring=centring, use_margin=margins)
    return Odin(loss, length=length, orthogonal=orthogonal, of_sum=of_sum)


def grm(
    text: Annotated[str, typer.Option(help="sft, nll or dpo (the base as reference).")] = "sft",
    share: Annotated[float, typer.Option(help="The text term's share of the loss.")] = 0.01,
    beta: Annotated[float, typer.Option(help="Scales log-probabilities in sft and dpo.")] = 0.1,
    centring: Centring = 0.01,
    label_smoothing: Smoothing = 0.0,
    margins: Margins = False,
) -> Method:
    """Train on pairs, regularised by the text that the language head still has to predict (GRM).

    Example: `assay train grm --data gold --eval-data gold-holdout --base smollm2`
    """
    from assay_rm_training.methods.grm import Grm
    from assay_rm_training.objectives.objective import Objective

    loss = Objective(label_smoothing=label_smoothing, centring=centring, use_margin=margins)
    return Grm(loss, text=text, share=share, beta=beta)  # type: ignore[arg-type]  # checked by the method


def lists(
    loss: Annotated[str, typer.Option(help="plackett_luce, or pairs: the mean over all pairs.")] = "plackett_luce",
    centring: Annotated[float, typer.Option(help="Weight of (2 x mean reward of a list)^2.")] = 0.01,
) -> Method:
    """Train on ranked lists: a file of lists, or the comparisons of a snapshot or file put together by prompt.

    A file's rows: {"prompt", "responses", "ranks"} (1 is the best) or {"prompt", "responses", "scores"}.

    Example: `assay train lists --data gold --eval-data gold-holdout`
    """
    from assay_rm_training.methods.ranked_lists import RankedLists

    return RankedLists(loss, centring)  # type: ignore[arg-type]  # checked by the method


def ratings(
    names: Annotated[
        str | None,
        typer.Option("--ratings", metavar="NAMES", help="Ratings to learn, comma separated; in order for a gate."),
    ] = None,
    aggregation: Annotated[str, typer.Option(help="mean, weights, min or gate: aggregation into the reward.")] = "mean",
    weights: Annotated[str | None, typer.Option(help="Of 'weights': one number per rating, comma separated.")] = None,
    thresholds: Annotated[
        str | None, typer.Option(help="Of 'gate': one number for every rating but the last, in ratings' units.")
    ] = None,
    missing: Annotated[float | None, typer.Option(help="The number that stands for 'not rated'.")] = None,
) -> Method:
    """Train by regression on named ratings of single responses, and save their aggregate as the reward.

    A file's rows: {"prompt", "response", "ratings": {"helpfulness": 4, ...}}. Weights and a mean fold into one stock
    head; min and gate keep one output per rating.

    Example: `assay train ratings --data rated.jsonl --ratings helpfulness,depth --aggregation weights --weights 2,1`
    """
    from assay.errors import BadInputError
    from assay.models.readings import Aggregation
    from assay_rm_training.methods.multi_objective import MultiObjective

    if not names:
        raise BadInputError("name the ratings to learn: --ratings helpfulness,depth")
    how = Aggregation(
        aggregation,  # type: ignore[arg-type]  # checked by the aggregation
        _numbers(weights, "weights"),
        _numbers(thresholds, "thresholds"),
    )
    return MultiObjective(tuple(name.strip() for name in names.split(",") if name.strip()), how, missing)


def steps(
    separator: Annotated[str, typer.Option(help=r"Separator of steps; \n is a line break.")] = r"\n",
    aggregation: Annotated[str, typer.Option(help="min, product or last: a response's reward from its steps.")] = "min",
) -> Method:
    """Train a process reward model on labelled steps: rows {"prompt", "steps", "labels"}, labels 0 to 1 or null.

    Example: `assay train steps --data steps.jsonl --aggregation min`
    """
    from assay.models.readings import Stepwise
    from assay_rm_training.methods.process_reward import ProcessRewardMethod

    joined = separator.replace(r"\n", "\n").replace(r"\t", "\t")
    return ProcessRewardMethod(Stepwise(joined, aggregation))  # type: ignore[arg-type]  # checked by the description


def _numbers(text: str | None, field: str) -> tuple[float, ...]:
    from assay.errors import BadInputError

    try:
        return tuple(float(part) for part in (text or "").split(",") if part.strip())
    except ValueError as error:
        raise BadInputError(f"not numbers separated by commas: {text!r}", field=field) from error
