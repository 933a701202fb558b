"""`assay train dpo`, `ipo`, `kto`, `orpo`, `simpo` and `sft`: policies trained on stored preferences.

Leaves out: shared options (`options.py`), the methods (`preference/`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay_rm_training.methods.method import Method

Beta = Annotated[float, typer.Option(help="Scale of the implicit reward: how closely the reference is kept to.")]
Reference = Annotated[
    str | None, typer.Option(help="Model that log-probabilities are measured against. Default: the base.")
]
Smoothing = Annotated[float, typer.Option(help="Believed share of flipped labels, 0 to below 0.5.")]


def dpo(
    beta: Beta = 0.1,
    reference: Reference = None,
    loss: Annotated[str, typer.Option(help="sigmoid, robust or hinge.")] = "sigmoid",
    label_smoothing: Smoothing = 0.0,
) -> Method:
    """Train a policy on pairs by direct preference optimisation (DPO); it also serves as a reward model.

    Example: `assay train dpo --data gold --eval-data gold-holdout --base smollm2 --name aligned`
    """
    from assay_rm_training.preference.pairs import Dpo

    return Dpo(beta, reference, loss, label_smoothing)  # type: ignore[arg-type]  # checked by the method


def ipo(beta: Beta = 0.1, reference: Reference = None) -> Method:
    """Train a policy on pairs by identity preference optimisation (IPO); --beta is its tau.

    Example: `assay train ipo --data gold --base smollm2 --name aligned`
    """
    from assay_rm_training.preference.pairs import Ipo

    return Ipo(beta, reference)


def kto(
    beta: Beta = 0.1,
    reference: Reference = None,
    desirable_weight: Annotated[float, typer.Option(help="Of desirable responses' losses.")] = 1.0,
    undesirable_weight: Annotated[float, typer.Option(help="Of undesirable responses' losses.")] = 1.0,
) -> Method:
    """Train a policy on responses labelled good or bad (KTO): rows {"prompt", "completion", "label"}, or pairs.

    Example: `assay train kto --data labelled.jsonl --base smollm2 --batch-size 32`
    """
    from assay_rm_training.preference.unpaired import Kto

    return Kto(beta, reference, desirable_weight, undesirable_weight)


def orpo(
    beta: Annotated[float, typer.Option(help="Weight of the odds ratio term (lambda).")] = 0.1,
) -> Method:
    """Train a policy on pairs without a reference: likelihood of the chosen response and its odds ratio (ORPO).

    Example: `assay train orpo --data gold --base smollm2`
    """
    from assay_rm_training.preference.pairs import Orpo

    return Orpo(beta)


def simpo(
    beta: Annotated[float, typer.Option(help="Scale of the mean log-probability a token.")] = 2.0,
    gamma: Annotated[float, typer.Option(help="Margin by which the chosen reward is to be higher.")] = 1.0,
    label_smoothing: Smoothing = 0.0,
) -> Method:
    """Train a policy on pairs without a reference, by log-probabilities a token (SimPO).

    Example: `assay train simpo --data gold --base smollm2`
    """
    from assay_rm_training.preference.pairs import SimPo

    return SimPo(beta, gamma, label_smoothing)


def sft() -> Method:
    """Fine-tune a policy on the chosen responses of pairs, or on rows {"prompt", "completion"} or {"messages"}.

    Example: `assay train sft --data gold --base smollm2 --name tuned`
    """
    from assay_rm_training.preference.unpaired import Sft

    return Sft()
