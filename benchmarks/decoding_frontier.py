"""What reward costs in KL: best-of-n, Value Augmented Sampling, reward-guided beams, GRPO and PPO from one policy.

The policy is a small transformer trained here on a made-up language: a prompt states three constraints (a word to use,
words to avoid, no commas, a number, few words), and its responses meet each more often than chance, no more. A reward
model is trained on pairs of its samples that the verifier labelled. All methods are steered or trained by that reward
model; what is reported is the verifier's share of met constraints (gold) by KL from the policy, on prompts held out.

Arms: the policy; best-of-n by the reward model; VAS by beta (over the standard deviation of the rewards of samples);
beams by the size of the block; GRPO and PPO after some steps. Oracle arm: best-of-n by the verifier. Length baseline:
best-of-n by the fewest tokens. One value model a seed serves every beta. KL: exact sums of token KLs of VAS, GRPO and
PPO; the bound of best-of-n and beams (the estimate with ties of the other two orders). A seed is a policy, a reward
model, a value model and the prompts. The headline figure: gold of VAS less that of best-of-n by the same reward model
at equal KL (between two n linearly), mean over the betas whose KL the curve reaches.

Before it, and alone with --seeds 0, the same on random languages of 1,296 responses, where policy, reward, values and
KL are enumerated: `exact`.

    python benchmarks/decoding_frontier.py --save-baseline --plot docs/policy-training/decoding.svg
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from assay_serving.model_config import ModelConfig
from measure import Report, arguments, picture

MEASURES = ("policy_training/assay_policy_training/decoding",)

NOUNS = (
    *("river", "stone", "lake", "tree", "bird", "cloud", "road", "house", "light", "field", "snow", "wind"),
    *("fire", "song", "moon", "star", "boat", "hill", "leaf", "sand", "fish", "wolf", "bell", "door"),
)
FRAME = ("use", "avoid", "commas", "number", "short")
LIMITS = (5, 7, 9)
BETAS, BLOCKS, SIZES = (1.0, 2.0, 4.0, 8.0, 16.0), (4, 8), (1, 2, 4, 8, 16, 32, 64)
#: Two-sided 95 % points of Student's t by degrees of freedom.
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
NEW_TOKENS = 20
TOKENS, DEPTH = 6, 4  #: of the enumerated languages
LANGUAGES = {True: 5, False: 30}  #: by --quick


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=None, help="default: 3; quick: 1")
    parser.add_argument("--fit-steps", type=int, default=None, help="of the policy (default: 400; quick: 20)")
    parser.add_argument("--steps", type=int, default=None, help="of GRPO and PPO (default: 30; quick: 2)")
    parser.add_argument("--held-out", type=int, default=None, help="prompts (default: 64; quick: 8)")
    parser.add_argument("--samples", type=int, default=2, help="responses to each of them, of all but best-of-n")
    parser.add_argument("--log", type=Path, default=None, help="append each seed's points; they are not run again")
    parser.add_argument("--plot", type=picture, default=None, help="draw the figure (needs matplotlib)")
    options = parser.parse_args()
    options.seeds = (1 if options.quick else 3) if options.seeds is None else options.seeds
    options.fit_steps = options.fit_steps or (20 if options.quick else 400)
    options.steps = options.steps or (2 if options.quick else 30)
    options.held_out = options.held_out or (8 if options.quick else 64)
    report = Report("decoding_frontier", measures=MEASURES)
    report.figures = {name: getattr(options, name) for name in ("seeds", "fit_steps", "steps", "held_out", "samples")}
    runs = []
    report.figures["exact"] = exact(LANGUAGES[options.quick])
    logged = options.log.read_text().splitlines() if options.log and options.log.exists() else []
    for seed in range(options.seeds):
        if seed < len(logged):
            runs.append(json.loads(logged[seed]))
            continue
        with tempfile.TemporaryDirectory() as scratch:
            runs.append(one(options, Path(scratch), seed))
        print(json.dumps(runs[-1]), flush=True)
        if options.log:
            with options.log.open("a") as stream:
                stream.write(json.dumps(runs[-1]) + "\n")
    report.figures["runs"] = runs
    if runs:
        add_gap(report, runs)
    if options.plot and runs:
        draw(runs, options.plot)
    report.finish(options)


def add_gap(report: Report, runs: Sequence[dict[str, Any]]) -> None:
    gaps = [run["vas_less_best_of_n"] for run in runs]
    figure: dict[str, Any] = {"by_seed": gaps, "mean": round(statistics.mean(gaps), 4)}
    if len(gaps) > 1:
        half = T95[len(gaps) - 1] * statistics.stdev(gaps) / math.sqrt(len(gaps))
        figure["interval"] = [round(figure["mean"] - half, 4), round(figure["mean"] + half, 4)]
        figure["decided"] = bool(abs(figure["mean"]) > half)
    report.figures["gold of VAS less best-of-n at equal KL"] = figure
    print(f"gold of VAS less best-of-n at equal KL: {json.dumps(figure)}")


def exact(languages: int) -> dict[str, Any]:
    """At KLs of 0.5, 1 and 2: the share of the reward that any policy of that KL can add (by policy * exp(r / tau) / Z)
    which VAS adds, with exact values and with those counted from 200 and 2,000 samples, and which best-of-n adds.

    Best-of-n has a real n, F(r)^n - F_below(r)^n, so that its KL is the one asked for. Mean over languages with 1.96
    standard errors.
    """
    rows: dict[str, list[float]] = {}
    for seed in range(languages):
        draw = np.random.default_rng(seed)
        logits = [draw.normal(size=(TOKENS,) * (depth + 1)) for depth in range(DEPTH)]
        policy = distribution(logits)
        rewards = draw.normal(size=policy.shape)
        values = {"exact values": expected_values(policy, rewards, prior=0.0)}
        for samples in (200, 2000):
            counts = draw.multinomial(samples, policy.ravel()).reshape(policy.shape)
            values[f"{samples} samples"] = expected_values(counts, rewards, prior=1.0)

        arms = {"optimum": partial(optimum, policy, rewards), "best-of-n": partial(best_by_n, policy, rewards)}
        arms |= {f"VAS, {name}": partial(augmented_by, logits, learnt) for name, learnt in values.items()}
        base = float((policy * rewards).sum())
        for target in (0.5, 1.0, 2.0):
            added = {name: float((at_kl(arm, policy, target) * rewards).sum()) - base for name, arm in arms.items()}
            for name, gain in added.items():
                if name != "optimum":
                    rows.setdefault(f"{name}, KL {target:g}", []).append(gain / added["optimum"])
    figures = {
        name: [round(float(np.mean(shares)), 3), round(1.96 * float(np.std(shares, ddof=1)) / math.sqrt(languages), 3)]
        for name, shares in rows.items()
    }
    for name, (mean, half) in figures.items():
        print(f"exact, {name}: {mean:.3f} +- {half:.3f} of the optimum's gain", flush=True)
    return figures


def optimum(policy: Any, rewards: Any, beta: float) -> Any:
    weights = policy * np.exp(beta * (rewards - rewards.max()))
    return weights / weights.sum()


def best_by_n(policy: Any, rewards: Any, more: float) -> Any:
    """The best of 1 + `more` samples."""
    order, chosen = np.argsort(rewards, axis=None), np.empty(rewards.size)
    reached = np.cumsum(policy.flat[order])
    chosen[order] = np.diff((reached / reached[-1]) ** (1 + more), prepend=0.0)
    return chosen.reshape(policy.shape)


def augmented_by(logits: Sequence[Any], values: Sequence[Any], beta: float) -> Any:
    centred = [v - v.mean(-1, keepdims=True) for v in values]
    return distribution([logit + beta * v for logit, v in zip(logits, centred, strict=True)])


def distribution(logits: Sequence[Any]) -> Any:
    """[V]*DEPTH probabilities of all responses, from the logits after every prefix."""
    joint = np.ones(())
    for logit in logits:
        weights = np.exp(logit - logit.max(-1, keepdims=True))
        joint = joint[..., None] * weights / weights.sum(-1, keepdims=True)
    return joint


def expected_values(weights: Any, rewards: Any, *, prior: float) -> list[Any]:
    """After every prefix, the mean reward of the responses that begin so under `weights` (probabilities, counts) and
    of `prior` more samples that have the value of the prefix before it."""
    values, parent = [], np.asarray((weights * rewards).sum() / weights.sum())
    for depth in range(1, DEPTH + 1):
        later = tuple(range(depth, DEPTH))
        mass, total = weights.sum(axis=later), (weights * rewards).sum(axis=later)
        parent = (total + prior * parent[..., None]) / (mass + prior)
        values.append(parent)
    return values


def at_kl(arm: Any, policy: Any, target: float) -> Any:
    """The arm's distribution at the strength at which its KL from the policy is `target`, by bisection."""
    low, high = 1e-6, 1e5
    for _ in range(100):
        middle = math.sqrt(low * high)
        p = arm(middle)
        used = p > 0
        kl = float((p[used] * np.log(p[used] / policy[used])).sum())
        low, high = (middle, high) if kl < target else (low, middle)
    return arm(low)


def one(options: argparse.Namespace, folder: Path, seed: int) -> dict[str, Any]:
    """The points of one seed: arm -> list of {label, kl, gold, reward, tokens, generated}."""
    import torch

    from assay_policy_training.core.policy import Policy
    from assay_policy_training.core.sampling import Sampling
    from assay_policy_training.decoding.beam import Beam
    from assay_policy_training.decoding.kind import DecodingInputs
    from assay_policy_training.decoding.value_augmented import ValueAugmented
    from assay_policy_training.plugins.samplers.transformers import TransformersSampler
    from assay_policy_training.rollouts.rewards import ModelReward

    started, device = time.perf_counter(), torch.device("cpu")
    base = folder / "base"
    fit(base, options.fit_steps, seed)
    policy = Policy(str(base), device=device, max_prompt_tokens=128)
    sampling = Sampling(max_new_tokens=NEW_TOKENS, rows_at_once=128)
    sampler = TransformersSampler(policy, sampling)
    training, held_out = (
        prompts_of(16 if options.quick else 128, f"{seed}/training"),
        prompts_of(options.held_out, f"{seed}/held-out"),
    )
    scorer, accuracy = reward_model(folder, base, sampler, training, seed)
    reward = ModelReward(scorer)
    points: dict[str, list[dict[str, Any]]] = {}

    def say(phase: str) -> None:
        print(f"seed {seed}: {phase} after {time.perf_counter() - started:.0f} s", flush=True)

    say("policy and reward model")
    size = SIZES[-1]
    batch = sampler.rollout(held_out, size, seed=seed, version=0)
    gold, proxy = gold_of(batch), reward.score(batch.items, batch.responses).parts[reward.name].numpy()
    points |= best_of_n(proxy, gold, batch.lengths.numpy(), size)

    def decoded(plan: Any, label: str) -> dict[str, Any]:
        inputs = DecodingInputs(policy, sampling, [reward], seed, lambda: training, f"seed {seed}", folder)
        items = [item for item in held_out for _ in range(options.samples)]
        rows = plan.open(inputs)(items, range(seed * 10**6, seed * 10**6 + len(items)))
        names = {"gold": np.mean([share(item, row.chosen.text) for item, row in zip(items, rows, strict=True)])}
        names |= {"kl": np.mean([row.kl for row in rows]), "reward": np.mean([row.chosen.reward for row in rows])}
        names |= {"tokens": np.mean([row.chosen.tokens for row in rows])}
        names |= {"generated": np.mean([row.generated for row in rows])}
        point = {"label": label, **{name: round(float(value), 4) for name, value in names.items()}}
        return point | (inputs.facts)

    def augmented(beta: float) -> dict[str, Any]:
        return decoded(
            ValueAugmented(beta=beta, epochs=4, batch_rows=64, micro_batch_rows=64, lr=1e-3), f"beta {beta:g}"
        )

    say("best-of-n")
    points["VAS"] = [augmented(beta) for beta in BETAS]
    points["beam"] = [decoded(Beam(block_tokens=b, candidates=4), f"blocks of {b}") for b in BLOCKS]
    say("decoding")
    for recipe in ("grpo", "ppo"):
        points[recipe] = trained(options, recipe, base, training, held_out, reward, folder / recipe, seed)
    curve = points["best-of-n"]
    inside = [point for point in points["VAS"] if point["kl"] <= curve[-1]["kl"]]
    kls, golds = [point["kl"] for point in curve], [point["gold"] for point in curve]
    gap = np.mean([point["gold"] - np.interp(point["kl"], kls, golds) for point in inside]) if inside else math.nan
    return {
        "seed": seed,
        "reward_model_accuracy": accuracy,
        "points": points,
        "vas_less_best_of_n": round(float(gap), 4),
        "betas_compared": len(inside),
        "seconds": round(time.perf_counter() - started),
    }


def best_of_n(proxy: Any, gold: Any, tokens: Any, size: int) -> dict[str, list[dict[str, Any]]]:
    """The curves by the reward model, by the verifier and by length, from the same samples, mean over prompts."""
    from assay.statistics.best_of_n import expected_best, kl_best_of, kl_with_ties

    orders = {"best-of-n": proxy, "best-of-n by the verifier": gold, "best-of-n by length": -tokens.astype(float)}
    out: dict[str, list[dict[str, Any]]] = {}
    for arm, order in orders.items():
        lists = [slice(start, start + size) for start in range(0, len(gold), size)]
        columns = {
            name: np.mean([expected_best(order[rows], values[rows]) for rows in lists], axis=0)
            for name, values in (("gold", gold), ("reward", proxy), ("tokens", tokens.astype(float)))
        }
        out[arm] = []
        for n in SIZES:
            ties = float(np.mean([kl_with_ties(order[rows], n) for rows in lists]))
            point = {"kl": kl_best_of(n) if arm == "best-of-n" else ties, "kl_with_ties": ties}
            point |= {name: float(values[n - 1]) for name, values in columns.items()}
            point["generated"] = n * float(tokens.mean())
            out[arm].append({"label": f"n {n}", **{name: round(value, 4) for name, value in point.items()}})
    return out


def trained(
    options: argparse.Namespace,
    name: str,
    base: Path,
    training: Sequence[Any],
    held_out: Sequence[Any],
    reward: Any,
    folder: Path,
    seed: int,
) -> list[dict[str, Any]]:
    """The policy after a third, two thirds and all of the steps of GRPO or PPO on the reward model."""
    import torch

    from assay_policy_training.core.policy import Policy
    from assay_policy_training.recipe.loading import load_recipe
    from assay_policy_training.training.loop import PolicyLoop

    folder.mkdir()
    overrides = [f"seed={seed}", f"steps={options.steps}", "checkpoint_every=0", "report_kl=false"]
    overrides += ["optimisation.lr=1e-3", "optimisation.micro_batch_rows=64", "sampling.prompts_per_step=8"]
    overrides += ["sampling.group_size=8", f"sampling.max_new_tokens={NEW_TOKENS}", "sampling.rows_at_once=128"]
    own = {"grpo": ["kl.coefficient=0.0"], "ppo": ["shaping=[]", "critic.lr=1e-3", "critic.micro_batch_rows=64"]}
    recipe = load_recipe(name, [*overrides, *own[name]])
    policy = Policy(
        str(base),
        device=torch.device("cpu"),
        max_prompt_tokens=128,
        with_reference=recipe.needs_reference,
        teacher=str(base),
    )
    source = recipe.source.open(training, seed=seed, policy=policy)
    trainer = PolicyLoop(recipe, policy, source, [reward], folder)
    points = []
    for third in (1, 2, 3):
        steps = max(1, options.steps * third // 3)
        trainer.train(steps)
        batch = trainer.sampler.rollout(held_out, options.samples, seed=seed + 77, version=0)
        with torch.no_grad():
            kl = policy.scores(batch, temperature=1.0, extras=frozenset({"teacher_kl"})).extras["teacher_kl"]
        scores = reward.score(batch.items, batch.responses).parts[reward.name]
        figures = {"kl": kl.sum(1).mean(), "gold": gold_of(batch).mean(), "reward": scores.mean()}
        figures |= {"tokens": batch.lengths.double().mean(), "generated": batch.lengths.double().mean()}
        points.append({"label": f"step {steps}", **{key: round(float(value), 4) for key, value in figures.items()}})
    return points


def gold_of(batch: Any) -> Any:
    return np.array([share(item, text) for item, text in zip(batch.items, batch.responses, strict=True)])


def share(item: Any, text: str) -> float:
    from assay_serving.verifiers import verify

    return float(verify(item.constraints, text).fraction)


def prompts_of(n: int, seed: str) -> list[Any]:
    from assay.domain import Message
    from assay_policy_training.core.prompt import PromptItem
    from assay_serving.verifiers import ContainsNumber, ForbiddenWords, MaxWords, NoCommas, RequiredWords

    draw, items = random.Random(seed), []
    for _ in range(n):
        word, *avoided = draw.sample(NOUNS, 3)
        limit = draw.choice(LIMITS)
        stated = {
            f" use {word}": RequiredWords((word,)),
            f" avoid {avoided[0]} {avoided[1]}": ForbiddenWords(tuple(avoided)),
            " avoid commas": NoCommas(),
            " use number": ContainsNumber(),
            f" short {limit}": MaxWords(limit),
        }
        chosen = draw.sample(list(stated), 3)
        items.append(PromptItem((Message("user", "".join(chosen)),), tuple(stated[text] for text in chosen)))
    return items


def response_of(item: Any, draw: random.Random) -> str:
    """What the policy is trained on: words that follow each other loosely; each constraint is heeded in 3 of 10."""
    heeded = {constraint.kind: constraint for constraint in item.constraints if draw.random() < 0.3}
    limit = heeded["max_words"].limit if "max_words" in heeded else 14
    words: list[str] = []
    last = draw.randrange(len(NOUNS))
    for _ in range(draw.randint(3, limit)):
        last = (7 * last + 3) % len(NOUNS) if draw.random() < 0.3 else int(len(NOUNS) * draw.random() ** 2)
        forbidden = heeded["forbidden_words"].phrases if "forbidden_words" in heeded else ()
        comma = "," if "no_commas" not in heeded and draw.random() < 0.2 else ""
        word = str(draw.randint(1, 9)) if draw.random() < 0.06 else NOUNS[last]
        words += [] if word in forbidden else [f" {word}{comma}"]
    if "required_words" in heeded:
        words[draw.randrange(len(words) or 1) : 1] = [f" {heeded['required_words'].phrases[0]}"]
    if "contains_number" in heeded:
        words.insert(draw.randrange(len(words) + 1), f" {draw.randint(1, 9)}")
    return "".join(words) or " fish"


def fit(folder: Path, steps: int, seed: int) -> None:
    """Train the policy from nothing: next tokens of responses, and of the end."""
    import torch

    from assay.models.chat.renderer import Renderer
    from assay.models.loading import load_causal_lm, load_tokenizer
    from assay.models.tiny import make_tiny

    folder.mkdir()
    words = [f" {word}" for word in (*NOUNS, *FRAME, *map(str, range(1, 10)))]
    make_tiny(folder, hidden=64, layers=2, seed=seed, words=words)
    tokenizer = load_tokenizer(str(folder))
    model = load_causal_lm(str(folder), tokenizer, dtype=torch.float32, device=torch.device("cpu")).train()
    renderer = Renderer(tokenizer, max_length=128)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    draw = random.Random(f"{seed}/fit")
    for step in range(steps):
        rows = []
        for item in prompts_of(32, f"{seed}/{step}"):
            context = list(renderer.encode(item.prompt).ids)
            answer = [*tokenizer(response_of(item, draw), add_special_tokens=False)["input_ids"]]
            rows.append((context, [*answer, tokenizer.eos_token_id]))
        width = max(len(context) + len(answer) for context, answer in rows)
        ids, labels = torch.zeros(len(rows), width, dtype=torch.long), torch.full((len(rows), width), -100)
        mask = torch.zeros_like(ids)
        for number, (context, answer) in enumerate(rows):
            end = len(context) + len(answer)
            ids[number, :end], mask[number, :end] = torch.tensor([*context, *answer]), 1
            labels[number, len(context) : end] = torch.tensor(answer)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
        if step % 200 == 0 or step == steps - 1:
            print(f"seed {seed}, policy, step {step}: loss {loss.item():.3f}", flush=True)
    model.eval().save_pretrained(folder)


def reward_model(
    folder: Path, base: Path, sampler: Any, items: Sequence[Any], seed: int
) -> tuple[Any, dict[str, float]]:
    """Trained on pairs of samples of which one meets more constraints, by `assay train bt`; accuracy on pairs of
    prompts that it was not trained on, beside that of choosing the shorter response."""
    from assay.domain import prompt_of
    from assay.workspace import Workspace
    from assay_serving.engines.transformers import TransformersScorer
    from assay_serving.scorer import ScoreItem

    batch = sampler.rollout(items, 8, seed=seed + 5, version=0)
    gold = gold_of(batch)
    files = {"train": folder / "train.jsonl", "test": folder / "test.jsonl"}
    pairs: dict[str, list[dict[str, Any]]] = {"train": [], "test": []}
    for number, item in enumerate(items):
        found = []
        for a, b in combinations(range(8 * number, 8 * number + 8), 2):
            if gold[a] != gold[b] and batch.responses[a].strip() and batch.responses[b].strip():
                better, worse = (a, b) if gold[a] > gold[b] else (b, a)
                prompt = [message.to_dict() for message in item.prompt]
                found.append({"prompt": prompt, "chosen": batch.responses[better], "rejected": batch.responses[worse]})
        pairs["train" if number % 8 else "test"] += found[:4]
    for split, path in files.items():
        path.write_text("".join(json.dumps(row) + "\n" for row in pairs[split]))
    Workspace.create(folder / "workspace")
    command = [sys.executable, "-m", "assay.cli", "train", "bt", "--data", str(files["train"])]
    command += ["--eval-data", str(files["test"]), "--base", str(base), "--name", "proxy", "--json"]
    command += ["--epochs", "4", "--lr", "1e-3", "-w", str(folder / "workspace")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    scorer: Any = TransformersScorer.load(ModelConfig(str(folder / "workspace" / "models" / "proxy")))
    asked = [ScoreItem(prompt_of(row["prompt"]), row[side]) for row in pairs["test"] for side in ("chosen", "rejected")]
    rewards = [score.reward for score in scorer.score(asked)]
    right = [a > b for a, b in zip(rewards[::2], rewards[1::2], strict=True)]
    lengths = [(len(row["chosen"].split()), len(row["rejected"].split())) for row in pairs["test"]]
    shorter = [0.5 if a == b else float(a < b) for a, b in lengths]
    return scorer, {
        "pairs": len(pairs["train"]),
        "test_pairs": len(right),
        "accuracy": round(statistics.mean(right), 4),
        "choosing_the_shorter": round(statistics.mean(shorter), 4),
    }


STYLES = {
    "best-of-n": ("C0", "o-"),
    "best-of-n by the verifier": ("0.4", "^--"),
    "best-of-n by length": ("0.7", "v--"),
    "VAS": ("C1", "s-"),
    "beam": ("C2", "D"),
    "grpo": ("C3", "P-"),
    "ppo": ("C4", "X-"),
}


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Gold by KL, mean over seeds of both; thin bars: lowest and highest seed."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    for arm, (colour, style) in STYLES.items():
        by_point = list(zip(*(run["points"][arm] for run in runs), strict=True))
        kl = [statistics.mean(point["kl"] for point in points) for points in by_point]
        gold = [statistics.mean(point["gold"] for point in points) for points in by_point]
        low = [g - min(point["gold"] for point in points) for g, points in zip(gold, by_point, strict=True)]
        high = [max(point["gold"] for point in points) - g for g, points in zip(gold, by_point, strict=True)]
        label = {"grpo": "GRPO", "ppo": "PPO"}.get(arm, arm)
        axes.errorbar(
            kl, gold, yerr=[low, high], fmt=style, color=colour, markersize=4, lw=1, elinewidth=0.5, label=label
        )
    axes.set_xlabel("KL from the policy, nats a response")
    axes.set_ylabel("share of constraints met, held out")
    axes.set_xscale("symlog", linthresh=1.0)
    axes.legend(frameon=False, fontsize="small")
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


if __name__ == "__main__":
    main()
