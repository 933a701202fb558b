"""`assay train`: scalar and principle reward models by the built-in methods, and `method` for any other.

Leaves out: shared options (`options.py`), policies (`policies.py`), generative models (`generative.py`), probes
(`probe.py`), groups of annotators (`groups.py`), the methods.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay_rm_training.commands.train.generative import cloud, critique_sft, generative_rl, generative_sft
from assay_rm_training.commands.train.groups import groups
from assay_rm_training.commands.train.options import training_command
from assay_rm_training.commands.train.policies import dpo, ipo, kto, orpo, sft, simpo
from assay_rm_training.commands.train.probe import probe
from assay_rm_training.methods.method import TRAINING_METHODS
from assay_rm_training.objectives.losses import LOSSES

if TYPE_CHECKING:
    from assay_rm_training.methods.method import Method


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Train reward models, and policies on preferences.")
    group.command("bt")(training_command(bt))
    group.command("odin")(training_command(odin))
    group.command("grm")(training_command(grm))
    group.command("lists")(training_command(lists))
    group.command("ratings")(training_command(ratings))
    group.command("steps")(training_command(steps))
    group.command("principle")(training_command(principle))
    group.command("probe")(probe)
    group.command("groups")(groups)
    for policy_command in (sft, dpo, ipo, kto, orpo, simpo):
        group.command(policy_command.__name__)(training_command(policy_command))
    group.command("generative-sft")(training_command(generative_sft))
    group.command("generative-rl")(generative_rl)
    group.command("critique-sft")(training_command(critique_sft))
    group.command("cloud")(training_command(cloud))
    group.command("method")(training_command(method))
    app.add_typer(group, name="train")


def bt(
    loss: Annotated[
        str,
        typer.Option(help=f"{LOSSES.help()}. rao_kupper and davidson learn from ties."),
    ] = "bradley_terry",
    centring: Annotated[float, typer.Option(help="Weight of (chosen + rejected)^2.")] = 0.01,
    squares: Annotated[float, typer.Option(help="Weight of chosen^2 + rejected^2.")] = 0.0,
    bound: Annotated[float, typer.Option(help="Weight of the log-barrier that keeps rewards within +-5.")] = 0.0,
    temperature: Annotated[float, typer.Option(help="Divides the difference of the rewards.")] = 1.0,
    label_smoothing: Annotated[float, typer.Option(help="Believed share of flipped labels, 0 to 0.5.")] = 0.0,
    soft_labels: Annotated[
        bool, typer.Option("--soft-labels", help="Learn P(chosen wins) from the annotators' votes.")
    ] = False,
    vote_prior: Annotated[float, typer.Option(help="Of --soft-labels: votes added to each side; 0 = none.")] = 0.5,
    positive: Annotated[
        float, typer.Option(help="Weight of -log sigmoid(mean chosen reward of a batch); a second forward pass.")
    ] = 0.0,
    margins: Annotated[bool, typer.Option("--margins", help="Use the pairs' margins in the loss.")] = False,
) -> Method:
    """Train a Bradley-Terry reward model, evaluate it, save it, and check that the saved model gives the same scores.

    --loss rao_kupper and davidson learn from ties; other losses leave them out.

    Example: `assay train bt --data gold --eval-data gold-holdout --base smollm2 --name helpful`
    """
    from assay_rm_training.methods.bradley_terry import BradleyTerry
    from assay_rm_training.objectives.objective import Objective

    objective = Objective(
        loss,
        label_smoothing=label_smoothing,
        centring=centring,
        temperature=temperature,
        use_margin=margins,
        soft_labels=soft_labels,
        squares=squares,
        bound=bound,
    )
    return BradleyTerry(objective, vote_prior=vote_prior, positive=positive)


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
    category: Annotated[str | None, typer.Option(help="Only lists of this category.")] = None,
) -> Method:
    """Train on ranked lists: a file of lists, or the comparisons of a snapshot or file put together by prompt.

    A file's rows: {"prompt", "responses", "ranks"} (1 is the best), {"prompt", "responses", "scores"}, or {"prompt",
    "demonstration", "samples"}: a reward learned from demonstrations beside samples of the policy.

    Example: `assay train lists --data gold --eval-data gold-holdout`
    """
    from assay_rm_training.methods.ranked_lists import RankedLists

    return RankedLists(loss, centring, category)  # type: ignore[arg-type]  # checked by the method


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
    separate: Annotated[
        bool, typer.Option("--separate", help="Keep one output per rating: scores have them as parts.")
    ] = False,
) -> Method:
    """Train by regression on named ratings of single responses, and save their aggregate as the reward.

    A file's rows: {"prompt", "response", "ratings": {"helpfulness": 4, ...}}. Weights and a mean fold into one stock
    head, unless --separate; min and gate keep one output per rating.

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
    return MultiObjective(tuple(name.strip() for name in names.split(",") if name.strip()), how, missing, separate)


def steps(
    separator: Annotated[str, typer.Option(help=r"Separator of steps; \n is a line break.")] = r"\n",
    aggregation: Annotated[str, typer.Option(help="min, product or last: a response's reward from its steps.")] = "min",
) -> Method:
    """Train a process reward model on labelled steps: rows {"prompt", "steps", "labels"}, labels 0 to 1 or null; or
    {"prompt", "response", "labels"} with a response in turns, an episode's, and a label for each turn of the assistant.

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


def method(
    training_method: Annotated[
        str | None, typer.Option("--method", metavar="NAME", help=TRAINING_METHODS.help())
    ] = None,
    method_settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the method, its value as JSON; repeatable."),
    ] = None,
) -> Method:
    """Train a reward model by a method of an installed package or of your own file.

    Example: `assay train method --method my_method.py:MyMethod --set margin=0.5 --data gold`
    """
    from assay.errors import BadInputError
    from assay_rm_training.methods.method import method_of

    if training_method is None:
        raise BadInputError("name the training method: --method NAME")
    values: dict[str, Any] = {}
    for entry in method_settings or ():
        key, equals, text = entry.partition("=")
        if not equals:
            raise BadInputError(f"--set takes KEY=VALUE, not {entry!r}")
        try:
            values[key] = json.loads(text)
        except json.JSONDecodeError:
            values[key] = text
    return method_of({**values, "name": TRAINING_METHODS.absolute(training_method)})
