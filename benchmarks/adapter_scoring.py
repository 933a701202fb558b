"""Scoring with a reward model in a published form: beside one of our own of the same size, and the publisher's loop.

All three have the weights of SmolLM2's first layers and score the same HH pairs (both responses, shuffled), in float32.
`adapter` is INF-ORM's form (two layers with ReLU on the last token), read as it lies; `own` is a stock classifier, as
`assay train bt` writes it and as Skywork-Reward is published; `publisher` is the loop of the form's card and of
reward-bench: the same network on batches of 8 padded on the right, here sorted by length. Ratios are of responses; the
rewards of adapter and publisher must agree. Needs the shared data.

    python benchmarks/adapter_scoring.py [--quick] [--json]
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hh_pairs import hh_pairs
from measure import Cost, Report, arguments, compare, spent

MEASURES = (
    "platform/assay/models",
    "serving/assay_serving/engines",
)

PLAIN_BATCH, LENGTH, TOLERANCE = 8, 1024, 1e-3


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--pairs", type=int, default=None, help="a round (default: 32; quick: 12)")
    parser.add_argument("--layers", type=int, default=None, help="of SmolLM2, the first ones (default: 10; quick: 4)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run(options, Path(scratch))


def run(options: Any, scratch: Path) -> None:
    import torch

    from assay_serving.model_config import ModelConfig
    from assay_serving.model_loader import load_scorer
    from assay_serving.scorer import ScoreItem

    torch.set_num_threads(1)  # so that CPU seconds are the work and not the waiting
    layers, number = options.layers or (4 if options.quick else 10), options.pairs or (12 if options.quick else 32)
    rounds = 5
    folders = {name: save_model(scratch / name, name, layers) for name in ("adapter", "own")}
    scorers: dict[str, Any] = {
        name: load_scorer(ModelConfig(str(folder), device="cpu", max_length=LENGTH)) for name, folder in folders.items()
    }
    publisher = publishers_loop(folders["adapter"])
    batches = []
    for seed in range(rounds + 1):
        items = [
            ScoreItem(pair.prompt, text)
            for pair in hh_pairs(number, seed=seed)
            for text in (pair.chosen, pair.rejected)
        ]
        random.Random(seed).shuffle(items)
        batches.append(items)
    rewards: dict[str, list[list[float]]] = {}
    work: list[dict[str, int]] = []

    def contender(name: str) -> Callable[[], Cost]:
        def measured() -> Cost:
            items = batches[len(rewards.setdefault(name, []))]
            rows = [scorers["adapter"].encode(item).ids for item in items] if name == "publisher" else []
            given: list[float] = []
            cost = spent(
                lambda: given.extend(publisher(rows) if rows else [each.reward for each in scorers[name].score(items)]),
                amount=len(items),
            )
            rewards[name].append(given)
            if name == "adapter":
                work.append({"tokens": scorers[name].last_tokens, "computed": scorers[name].last_computed})
            return cost

        return measured

    contenders = {name: contender(name) for name in ("adapter", "own", "publisher")}
    for measured in contenders.values():  # once unmeasured: a first pass prepares kernels
        measured()
    compared = compare(contenders, options, rounds=rounds)
    apart = max(
        abs(a - b)
        for ours, theirs in zip(rewards["adapter"], rewards["publisher"], strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )
    if apart > TOLERANCE:
        sys.exit(f"adapter and publisher disagree by {apart:.3g}: the comparison means nothing")
    report = Report("adapter_scoring", measures=MEASURES)
    report.ratios = {
        "adapter / own model": compared.ratio("adapter", "own"),
        "adapter / publisher's loop": compared.ratio("adapter", "publisher"),
    }
    report.figures = {
        "responses_per_cpu_s": {name: round(compared.per_cpu_second(name).median, 2) for name in contenders},
        "responses_a_round": 2 * number,
        "layers": layers,
        "tokens": sum(one["tokens"] for one in work[1:]),
        "positions_computed": sum(one["computed"] for one in work[1:]),
        "largest_difference": apart,
    }
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    report.finish(options)


def save_model(folder: Path, name: str, layers: int) -> Path:
    """SmolLM2's first layers with a random head: a stock classifier, or INF-ORM's names."""
    import torch
    from safetensors.torch import load_file, save_file

    from assay.models.loading import load_scalar_model, load_tokenizer
    from assay.models.quiet import quiet_transformers

    tokenizer = load_tokenizer("smollm2")
    model: Any = load_scalar_model("smollm2", tokenizer, dtype=torch.float32, device=torch.device("cpu"), new_head=True)
    model.model.layers = model.model.layers[:layers]
    model.config.num_hidden_layers = layers
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    if name == "adapter":
        weights, size = load_file(folder / "model.safetensors"), int(model.config.hidden_size)
        chance = torch.Generator().manual_seed(0)
        for layer, rows in ((0, size), (2, 1)):
            weights[f"score.{layer}.weight"] = torch.randn(rows, size, generator=chance) / size**0.5
            weights[f"score.{layer}.bias"] = torch.zeros(rows)
        del weights["score.weight"]
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        config["architectures"] = ["INFORMForSequenceClassification"]
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def publishers_loop(folder: Path) -> Callable[[Sequence[Sequence[int]]], list[float]]:
    """Padded batches of transformers' own network, the head on each row's last token."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModel

    auto: Any = AutoModel
    network = auto.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32).eval()
    weights = load_file(folder / "model.safetensors")
    network.load_state_dict({n.removeprefix("model."): t for n, t in weights.items() if n.startswith("model.")})
    first, second = ((weights[f"score.{n}.weight"], weights[f"score.{n}.bias"]) for n in (0, 2))

    def rewards(rows: Sequence[Sequence[int]]) -> list[float]:
        scores: list[float] = []
        with torch.inference_mode():
            order = sorted(range(len(rows)), key=lambda number: len(rows[number]))  # which the card's loop leaves out
            for at in range(0, len(rows), PLAIN_BATCH):
                part = [torch.tensor(rows[number]) for number in order[at : at + PLAIN_BATCH]]
                ids = torch.nn.utils.rnn.pad_sequence(part, batch_first=True)
                mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in part], batch_first=True)
                states = network(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
                last = states[torch.arange(len(part)), mask.sum(1) - 1]
                hidden = torch.nn.functional.linear(last, *first).relu()
                scores += torch.nn.functional.linear(hidden, *second)[:, 0].tolist()
        return [score for _, score in sorted(zip(order, scores, strict=True))]

    return rewards


if __name__ == "__main__":
    main()
