"""Does a policy learn? Held-out verifier pass rate over the steps of a recipe, several seeds.

Prompts state constraints that a program checks (our generator; topics of the held-out split were never trained on). The
reward is the share of a prompt's constraints that the response meets; what is reported is whether it meets all of them.
Beside the curve: length, KL to the base, and the IFEval prompts of --ifeval FILE, of a distribution never trained on,
before and after. Each seed's change is tested on its own prompts (bootstrap over prompts), and the mean over seeds has
an interval of Student's t. Nothing is chosen by what is reported.

`dpo` is no recipe: the base draws the responses that so many steps would draw, the verifier makes a pair of each
prompt's best and worst one, and one epoch of `assay train dpo` learns from them. Each point of its curve is a training
of its own.

    python benchmarks/policy_learning.py --recipe grpo ppo --save-baseline --plot docs/policy-training/learning.svg

--compare, for recipes with the same base, prompts and sampling: each one's last pass rate less that of the first, seed
by seed, too.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from measure import Report, arguments, picture

MEASURES = (
    "policy_training/assay_policy_training/plugins",
    "policy_training/assay_policy_training/training",
)

#: Constraints that a response of some twenty words can meet.
KINDS = ("max_words", "no_commas", "contains_number", "forbidden_words", "required_words", "starts_with", "quoted")
#: Two-sided 95 % points of Student's t by degrees of freedom.
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365}
#: Options that an evaluation depends on.
SETTINGS = (
    *("steps", "every", "prompts_per_step", "group_size", "max_new_tokens", "lr", "train_prompts", "held_out"),
    *("samples", "ifeval_prompts", "ifeval_tokens", "overrides", "policy"),
)
DPO = "dpo"
OVERRIDES = {
    "grpo": ["kl.coefficient=0.0", "report_kl=false"],
    "ppo": ["report_kl=false", "shaping=[]", "critic.lr=5e-5", "critic.minibatches=1", "optimisation.minibatches=1"],
}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--recipe", nargs="+", default=["grpo", "ppo"])
    parser.add_argument("--seeds", type=int, default=None, help="seeds 0, 1, ... (default: 3; quick: 1)")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time, each in a process of its own")
    parser.add_argument("--steps", type=int, default=None, help="default: 60; quick: 2")
    parser.add_argument("--every", type=int, default=10, help="steps between evaluations")
    parser.add_argument("--prompts-per-step", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--policy", default=None, help="default: smollm2; quick: tiny")
    parser.add_argument("--train-prompts", type=int, default=512)
    parser.add_argument("--held-out", type=int, default=None, help="prompts (default: 64; quick: 8)")
    parser.add_argument("--samples", type=int, default=2, help="responses to each held-out prompt")
    parser.add_argument("--ifeval", type=Path, default=None, help="IFEval prompts as JSON Lines, .gz or not")
    parser.add_argument("--ifeval-prompts", type=int, default=160, help="every n-th prompt of the file, so many")
    parser.add_argument("--ifeval-tokens", type=int, default=128, help="most tokens of a response to them")
    help_of_set = "of the recipe; RECIPE:KEY=VALUE of that one alone"
    parser.add_argument("--set", dest="overrides", nargs="*", default=[], metavar="KEY=VALUE", help=help_of_set)
    parser.add_argument(
        "--log",
        type=Path,
        default=None,
        help="append every evaluation as a JSON line; trainings that it holds whole are not done again",
    )
    parser.add_argument("--compare", action="store_true", help="report the differences to the first recipe")
    parser.add_argument("--plot", type=picture, default=None, help="draw the curves (needs matplotlib)")
    options = parser.parse_args()
    options.seeds = options.seeds or (1 if options.quick else 3)
    options.steps = options.steps or (2 if options.quick else 60)
    options.held_out = options.held_out or (8 if options.quick else 64)
    report = Report("policy_learning", measures=MEASURES)
    report.figures = {name: getattr(options, name) for name in SETTINGS if name != "overrides"}
    cells = [(options, recipe, seed) for seed in range(options.seeds) for recipe in options.recipe]
    if options.jobs > 1:
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
            runs = list(pool.map(train, *zip(*cells, strict=True)))
    else:
        runs = [train(*cell) for cell in cells]
    for recipe in options.recipe:
        add_figures(report, recipe, [run for run in runs if run["recipe"] == recipe])
    if options.compare:
        add_differences(report, runs, options.recipe)
    if options.plot:
        draw(runs, options.plot)
    report.finish(options)


def train(options: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    return learn_offline(options, seed) if name == DPO else learn(options, name, seed)


def learn(options: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    """One training: the held-out evaluations by step, each with one 0/1 per prompt's sample."""
    from assay.models.devices import has_fast_bfloat16, pick_device
    from assay_policy_training.core.policy import Policy
    from assay_policy_training.plugins.prompts.constrained import generate_prompts
    from assay_policy_training.plugins.samplers.transformers import TransformersSampler
    from assay_policy_training.recipe.loading import load_recipe
    from assay_policy_training.rollouts.rewards import VerifierReward
    from assay_policy_training.training.loop import PolicyLoop

    settings, earlier = earlier_evaluations(options, name)
    logged_runs = [e for e in earlier if e["seed"] == seed]
    if logged_runs and logged_runs[-1]["step"] == options.steps:
        return {"recipe": name, "seed": seed, "curve": logged_runs}
    bases = [e for e in earlier if e["step"] == 0]  # the same policy, prompts and random numbers in every training

    overrides = [
        f"seed={seed}",
        f"steps={options.steps}",
        f"optimisation.lr={options.lr}",
        "optimisation.micro_batch_rows=16",
        f"optimisation.autocast={str(has_fast_bfloat16(pick_device())).lower()}",
        f"sampling.prompts_per_step={options.prompts_per_step}",
        f"sampling.group_size={options.group_size}",
        f"sampling.max_new_tokens={options.max_new_tokens}",
        "checkpoint_every=0",
    ]
    recipe = load_recipe(name, [*OVERRIDES.get(name, []), *overrides, *overrides_of(options, name)])
    device = pick_device()
    policy = Policy(
        options.policy or ("tiny" if options.quick else "smollm2"),
        device=device,
        max_prompt_tokens=recipe.sampling.max_prompt_tokens,
        autocast=recipe.optimisation.autocasts(device),
        with_reference=recipe.needs_reference,
    )
    items = items_of(generate_prompts(options.train_prompts, seed, kinds=KINDS, split="train"))
    held_out = items_of(generate_prompts(options.held_out, 1000, kinds=KINDS, split="heldout"))  # of every seed
    other = ifeval_items(options.ifeval, options.ifeval_prompts)
    longer = TransformersSampler(policy, replace(recipe.sampling, max_new_tokens=options.ifeval_tokens))
    curve: list[dict[str, Any]] = []
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        source = recipe.source.open(items, seed=seed, policy=policy)
        trainer = PolicyLoop(recipe, policy, source, [VerifierReward()], Path(scratch))

        def evaluate(step: int, rows: Sequence[dict[str, Any]] = ()) -> None:
            began = time.perf_counter()
            measured: dict[str, list[float]]
            if step == 0 and bases:
                measured = {key: bases[0][key] for key in ("held-out", "IFEval") if key in bases[0]}
            else:
                measured = {"held-out": passes(trainer.sampler, held_out, options.samples)}
                if other and step in (0, options.steps):
                    measured["IFEval"] = passes(longer, other, 1)
            entry: dict[str, Any] = {"recipe": name, "seed": seed, "step": step, "settings": settings, **measured}
            entry["training_seconds"] = round(began - started)
            names = ("verifier_pass_rate", "kl_k3", "entropy", "length_mean", "seconds", "tokens_per_second")
            entry |= {
                key: statistics.mean(row[key] for row in rows if key in row)
                for key in names
                if rows and key in rows[-1]
            }
            curve.append(entry)
            log(options, entry)

        evaluate(0)
        for step in range(options.every, options.steps + options.every, options.every):
            rows = trainer.train(min(step, options.steps))
            evaluate(min(step, options.steps), rows)
    return {"recipe": name, "seed": seed, "curve": curve}


def learn_offline(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """DPO on pairs of the base's own responses, by the number of steps whose responses they are."""
    from assay.models.devices import has_fast_bfloat16, pick_device
    from assay_policy_training.core.policy import Policy
    from assay_policy_training.core.sampling import Sampling
    from assay_policy_training.plugins.prompts.constrained import generate_prompts
    from assay_policy_training.plugins.samplers.transformers import TransformersSampler
    from assay_policy_training.rollouts.rewards import VerifierReward
    from assay_rm_training.trainer import RewardModelTrainer

    settings, earlier = earlier_evaluations(options, DPO)
    curve = [e for e in earlier if e["seed"] == seed]
    if curve and curve[-1]["step"] == options.steps:
        return {"recipe": DPO, "seed": seed, "curve": curve}
    own = dict(text.split("=", 1) for text in overrides_of(options, DPO))
    base = options.policy or ("tiny" if options.quick else "smollm2")
    device = pick_device()
    sampling = Sampling(max_new_tokens=options.max_new_tokens)

    autocast = own.get("optimisation.autocast", str(has_fast_bfloat16(device)).lower()) != "false"

    def sampler_of(model: str) -> TransformersSampler:
        return TransformersSampler(Policy(model, device=device, max_prompt_tokens=512, autocast=autocast), sampling)

    held_out = items_of(generate_prompts(options.held_out, 1000, kinds=KINDS, split="heldout"))
    items = items_of(generate_prompts(options.train_prompts, seed, kinds=KINDS, split="train"))
    drawer, started = sampler_of(base), time.perf_counter()
    pairs: list[dict[str, Any]] = []

    def evaluate(step: int, model: TransformersSampler) -> None:
        entry: dict[str, Any] = {"recipe": DPO, "seed": seed, "step": step, "settings": settings}
        entry["held-out"] = passes(model, held_out, options.samples)
        curve.append(entry | {"training_seconds": round(time.perf_counter() - started), "pairs": len(pairs)})
        log(options, curve[-1])

    curve.clear()
    evaluate(0, drawer)
    for step in range(1, options.steps + 1):
        first = (step - 1) * options.prompts_per_step
        prompts = [items[(first + k) % len(items)] for k in range(options.prompts_per_step)]
        batch = drawer.rollout(prompts, options.group_size, seed=1000 * seed + step, version=0)
        (values,) = VerifierReward().score(batch.items, batch.responses).parts.values()
        values = values.view(len(prompts), -1)
        for group, item in enumerate(prompts):
            best, worst = int(values[group].argmax()), int(values[group].argmin())
            if values[group, best] > values[group, worst]:
                start = group * options.group_size
                texts = batch.responses[start + best], batch.responses[start + worst]
                pairs.append({"prompt": item.prompt[0].text, "chosen": texts[0], "rejected": texts[1]})
        if (step % options.every and step < options.steps) or not pairs:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            lr = float(own.get("optimisation.lr", options.lr))
            training = RewardModelTrainer(
                "dpo", data=pairs, base=base, workspace=scratch, batch_size=8, lr=lr, seed=seed, device=str(device)
            )
            evaluate(step, sampler_of(str(training.train().path)))
    return {"recipe": DPO, "seed": seed, "curve": curve}


def items_of(generated: Sequence[Any]) -> list[Any]:
    """Prompts with constraints as a trainer takes them."""
    from assay_policy_training.core.prompt import PromptItem

    return [PromptItem(p.prompt, p.constraints, p.to_meta()) for p in generated]


def overrides_of(options: argparse.Namespace, name: str) -> list[str]:
    """What --set gives this recipe: what names no recipe, then what names it."""
    own, general = [], []
    for text in options.overrides:
        recipe, colon, rest = text.partition(":")
        if colon and "=" not in recipe:
            own += [rest] if recipe == name else []
        else:
            general.append(text)
    return general + own


def earlier_evaluations(options: argparse.Namespace, name: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The settings that an evaluation depends on, and the evaluations of this recipe under them in the log."""
    from assay.models.devices import pick_device, pick_dtype

    settings = {key: str(value) for key, value in vars(options).items() if key in SETTINGS}
    settings["products"] = str(pick_dtype(pick_device())).removeprefix("torch.")
    return settings, [e for e in logged(options.log) if e["recipe"] == name and e["settings"] == settings]


def log(options: argparse.Namespace, entry: dict[str, Any]) -> None:
    rate = statistics.mean(entry["held-out"])
    print(f"{entry['recipe']}, seed {entry['seed']}, step {entry['step']}: held-out {rate:.3f}", flush=True)
    if options.log:
        with options.log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")


def logged(path: Path | None) -> list[dict[str, Any]]:
    """The evaluations that a log holds."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def passes(sampler: Any, items: Sequence[Any], samples: int) -> list[float]:
    """Whether each of `samples` responses to each prompt meets all constraints, samples of a prompt together."""
    from assay_policy_training.rollouts.rewards import verifier_accuracy

    pass_rates: list[float] = []
    for start in range(0, len(items), 32):
        part = items[start : start + 32]
        batch = sampler.rollout(part, samples, seed=7 + start, version=0)
        pass_rates += verifier_accuracy(batch.items, batch.responses).tolist()
    return pass_rates


def ifeval_items(path: Path | None, most: int) -> list[Any]:
    """`most` of the IFEval prompts whose every instruction one of our constraints checks, evenly through the file."""
    if path is None:
        return []
    from assay.data.json_lines import Lines, parse_object
    from assay.domain import Message
    from assay_policy_training.core.prompt import PromptItem
    from assay_serving.verifiers.ifeval import ifeval_constraints

    items = []
    for _, line in Lines(path):
        row = parse_object(line)
        constraints = ifeval_constraints(row["meta"]["instruction_id_list"], row["meta"]["kwargs"])
        if constraints is not None:
            items.append(PromptItem((Message("user", row["prompt"][0]["content"]),), constraints))
    return [items[index * len(items) // most] for index in range(most)] if len(items) > most else items


def add_figures(report: Report, recipe: str, runs: Sequence[dict[str, Any]]) -> None:
    """Change of the pass rate: by seed with a bootstrap over prompts, over seeds with Student's t."""
    import numpy as np

    for name in ("held-out", "IFEval"):
        if name not in runs[0]["curve"][0]:
            continue
        changes, rows = [], []
        for run in runs:
            before, after = (np.array(run["curve"][position][name]) for position in (0, -1))
            samples = report.figures["samples"] if name == "held-out" else 1
            by_prompt = (after - before).reshape(-1, samples).mean(1)
            drawn = np.random.default_rng(0).integers(len(by_prompt), size=(4000, len(by_prompt)))
            low, high = np.quantile(by_prompt[drawn].mean(1), [0.025, 0.975])
            changes.append(float(by_prompt.mean()))
            change = f"{by_prompt.mean():+.3f} [{low:+.3f}, {high:+.3f}]"
            rows.append(f"seed {run['seed']}: {before.mean():.3f} -> {after.mean():.3f}, {change}")
        mean = statistics.mean(changes)
        figure: dict[str, Any] = {"seeds": rows, "mean_change": round(mean, 4), "interval": interval_of(changes)}
        report.figures[f"{recipe}, {name}"] = figure
        print(f"{recipe}, {name}: {json.dumps(figure)}")
    curves = [[(e["step"], round(statistics.mean(e["held-out"]), 4)) for e in run["curve"]] for run in runs]
    last = [{k: round(v, 4) for k, v in run["curve"][-1].items() if isinstance(v, float)} for run in runs]
    report.figures[f"{recipe}, curves"] = curves
    report.figures[f"{recipe}, last steps"] = last
    report.figures[f"{recipe}, training_seconds"] = [run["curve"][-1]["training_seconds"] for run in runs]


def interval_of(values: Sequence[float]) -> list[float] | None:
    """Student's t, 95 %, of the mean over seeds; None of one seed."""
    if len(values) < 2:
        return None
    mean, half = statistics.mean(values), T95[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return [round(mean - half, 4), round(mean + half, 4)]


def add_differences(report: Report, runs: Sequence[dict[str, Any]], recipes: Sequence[str]) -> None:
    last = {(run["recipe"], run["seed"]): statistics.mean(run["curve"][-1]["held-out"]) for run in runs}
    seeds = sorted({run["seed"] for run in runs})
    for recipe in recipes[1:]:
        differences = [last[recipe, seed] - last[recipes[0], seed] for seed in seeds]
        figure = {"mean": round(statistics.mean(differences), 4), "interval": interval_of(differences)}
        report.figures[f"{recipe} less {recipes[0]}"] = figure
        print(f"{recipe} less {recipes[0]}: {json.dumps(figure)}")


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """One line a seed, one colour a recipe."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    names = list(dict.fromkeys(run["recipe"] for run in runs))
    for run in runs:
        steps = [entry["step"] for entry in run["curve"]]
        rates = [statistics.mean(entry["held-out"]) for entry in run["curve"]]
        label = run["recipe"] if run["seed"] == 0 else None
        axes.plot(steps, rates, color=f"C{names.index(run['recipe'])}", marker="o", markersize=3, label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("held-out prompts with every constraint met")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


if __name__ == "__main__":
    main()
