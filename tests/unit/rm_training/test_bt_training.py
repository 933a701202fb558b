"""The Bradley-Terry loop on the tiny model: learning, batches, accumulation, what is left out, schedules, metrics."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.domain import Message, PreferencePair
from assay.errors import BadInputError
from assay.models.attention.packing import forward_rows, group_of
from assay.models.chat.renderer import Renderer
from assay.models.heads import apply_head
from assay.models.loading import load_tokenizer
from assay.runs.json_log import METRICS_FILE, JsonLog, read_metrics
from assay_rm_training.commands.train.options import sparkline
from assay_rm_training.data.encoded_dataset import EncodedDataset, micro_batches
from assay_rm_training.data.pair_dataset import EncodedPair, encode_pairs
from assay_rm_training.methods.bradley_terry import BradleyTerry, PairTask
from assay_rm_training.methods.method import method_of, method_payload
from assay_rm_training.model.trainable_model import TrainableModel, load_trainable
from assay_rm_training.objectives.objective import Objective
from assay_rm_training.training.batch_order import StepPlan
from assay_rm_training.training.loop import lr_factor, make_optimizer, train, train_step
from assay_rm_training.training_config import LoraConfig, TrainingConfig

CPU = torch.device("cpu")
WORDS = ["red", "blue", "green", "tree", "stone", "river", "cloud", "apple"]


def learnable(count: int, seed: int = 0) -> list[PreferencePair]:
    """Pairs whose chosen side ends in '!': nothing else tells the sides apart, least of all their length."""
    rng = random.Random(seed)
    pairs = []
    for number in range(count):
        prompt = (Message("user", f"{seed}-{number} {' '.join(rng.choices(WORDS, k=rng.randint(1, 9)))}"),)
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 6)))
        pairs.append(PreferencePair(prompt, f"{text}!", f"{text}?", weight=rng.choice([1.0, 2.0])))
    return pairs


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(load_tokenizer("tiny"), max_length=256)


@pytest.fixture(scope="module")
def data(renderer: Renderer) -> EncodedDataset[EncodedPair]:
    return encode_pairs(learnable(48), renderer)


def config(**changes: object) -> TrainingConfig:
    settings = {
        "base": "tiny",
        "lr": 3e-3,
        "head_lr": 3e-3,
        "batch_size": 8,
        "dtype": "float32",
        "device": "cpu",
        **changes,
    }
    return TrainingConfig(**settings)  # type: ignore[arg-type]


def fit(
    trainable: TrainableModel, data: EncodedDataset[EncodedPair], chosen: TrainingConfig, folder: Path, **options: Any
) -> Any:
    return train(trainable, PairTask(trainable, chosen, Objective()), data, chosen, folder, **options)


def test_it_learns_what_can_be_learnt(data: EncodedDataset[EncodedPair], renderer: Renderer, tmp_path: Path) -> None:
    held = encode_pairs(learnable(40, seed=9), renderer)
    chosen = config(epochs=4, eval_every=6)
    summary = fit(load_trainable(chosen, CPU), data, chosen, tmp_path, eval_data=held)
    rows = read_metrics(tmp_path)
    curve = [row for row in rows if row["kind"] == "train"]
    held_out = [row for row in rows if row["kind"] == "eval"]
    assert [row["step"] for row in curve] == list(range(1, 25))
    assert curve[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)  # the head starts at zero
    assert summary.last_loss < 0.3 < summary.first_loss
    assert [row["step"] for row in held_out] == [6, 12, 18, 24]
    assert held_out[-1]["accuracy"] > 0.9
    assert summary.tokens == sum(row["tokens"] for row in curve)
    assert all(0 <= row["padded_share"] < 1 and row["grad_norm"] >= 0 for row in curve)


@pytest.mark.parametrize("lora", [None, LoraConfig(4, 8)])
def test_the_gradient_does_not_depend_on_the_micro_batches(
    data: EncodedDataset[EncodedPair], lora: LoraConfig | None
) -> None:
    gradients = []
    for budget in (1, 400, 100_000):  # one pair a pass, a few, all at once
        chosen = config(micro_batch_tokens=budget, lora=lora, head_init="normal")
        trainable = load_trainable(chosen, CPU)
        measured = train_step(
            trainable,
            PairTask(trainable, chosen, Objective()),
            data.items[:8],
            chosen,
            make_optimizer(trainable, chosen),
        )
        gradients.append((measured, {name: p.grad for name, p in trainable.trainable().items()}))
    (first, reference), *others = gradients
    assert first.grad_norm > 0
    for measured, found in others:
        assert measured.loss == pytest.approx(first.loss, abs=1e-6)
        for name, gradient in reference.items():
            assert gradient is not None
            assert torch.allclose(found[name], gradient, atol=1e-6), name  # type: ignore[arg-type]


def test_weights_count_as_repeated_pairs(renderer: Renderer) -> None:
    first, second = (PreferencePair(p.prompt, p.chosen, p.rejected) for p in learnable(2))
    heavy = PreferencePair(first.prompt, first.chosen, first.rejected, weight=3.0)
    norms = []
    for pairs in ([heavy, second], [first, first, first, second]):
        chosen = config(head_init="normal")
        trainable = load_trainable(chosen, CPU)
        encoded = encode_pairs(pairs, renderer)
        task = PairTask(trainable, chosen, Objective())
        train_step(trainable, task, encoded.items, chosen, make_optimizer(trainable, chosen))
        norms.append(trainable.trainable()["score.weight"].grad)
    assert norms[0] is not None
    assert norms[1] is not None
    assert torch.allclose(norms[0], norms[1], atol=1e-7)


def test_pooling_ignores_padding_on_either_side(data: EncodedDataset[EncodedPair]) -> None:
    trainable = load_trainable(config(head_init="normal"), CPU)
    trainable.model.train(False)
    groups = [group_of([side]) for pair in data.items[:4] for side in (pair.chosen, pair.rejected)]
    with torch.no_grad():
        right, left = (forward_rows(trainable.model, groups, pad_left=left).last() for left in (False, True))
        alone = torch.cat([forward_rows(trainable.model, [group]).last() for group in groups])
    head = trainable.model.score
    assert torch.allclose(apply_head(head, right), apply_head(head, left), atol=1e-6)
    assert torch.allclose(apply_head(head, right), apply_head(head, alone), atol=1e-6)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_shared_prefix_changes_neither_rewards_nor_gradients(attention: str, renderer: Renderer) -> None:
    """Also where one side is the beginning of the other, and where they have nothing in common."""
    prompt = (Message("user", "a question"),)
    odd = [PreferencePair(prompt, "yes", "yes, and more"), PreferencePair(prompt, "", "no"), *learnable(5)]
    encoded = encode_pairs(odd, renderer)
    assert all(0 < pair.common < min(len(pair.chosen), len(pair.rejected)) for pair in encoded.items)
    first = encoded.items[0]
    items = [*encoded.items, first._replace(rejected=first.chosen[::-1].copy(), common=0)]
    trainable = load_trainable(config(head_init="normal"), CPU)
    trainable.model.set_attn_implementation(attention)
    outcomes = []
    for share in (False, True):
        trainable.model.zero_grad()
        task = PairTask(trainable, config(share_prefix=share), Objective())
        measured = task.measure(trainable, items)
        chosen, rejected = measured.each["chosen"], measured.each["rejected"]
        (1000 * measured.losses).sum().backward()  # type: ignore[no-untyped-call]
        gradients = {name: p.grad.clone() for name, p in trainable.trainable().items() if p.grad is not None}
        outcomes.append((chosen, rejected, gradients, measured))
    (chosen, rejected, gradients, rows), (chosen_2, rejected_2, gradients_2, joint) = outcomes
    assert torch.allclose(chosen, chosen_2, atol=1e-6)
    assert torch.allclose(rejected, rejected_2, atol=1e-6)
    assert len(gradients) == len(trainable.trainable())
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, gradients_2[name], atol=1e-4 * float(gradient.abs().max())), name
    assert joint.tokens == rows.tokens
    assert rows.computed - rows.padding == rows.tokens
    assert joint.computed < 0.8 * rows.tokens or attention == "eager"


def test_what_cannot_be_used_is_counted_by_reason() -> None:
    tokenizer = load_tokenizer("tiny")
    refusal = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    tokenizer.chat_template = refusal + str(tokenizer.chat_template)
    renderer = Renderer(tokenizer, max_length=60)
    prompt = (Message("user", "hello"),)
    pairs = [
        PreferencePair(prompt, "good", "bad"),
        PreferencePair(prompt, "x" * 200, "bad"),
        PreferencePair(prompt, "good", "y" * 200),
        PreferencePair((Message("system", "be kind"), *prompt), "good", "bad"),
        PreferencePair(prompt, "good", "bad", weight=0.0),
        PreferencePair((Message("user", "z" * 100),), "good", "bad"),  # the prompt is cut, the responses are whole
    ]
    encoded = encode_pairs(pairs, renderer)
    assert len(encoded) == 2
    assert encoded.left_out == {
        "chosen does not fit": 1,
        "rejected does not fit": 1,
        "chosen cannot be rendered": 1,
        "weight not positive": 1,
    }
    assert encoded.truncated == 1
    assert encoded.first_fault.startswith("pair 2: chosen does not fit")


def test_nothing_usable_is_one_clear_error(renderer: Renderer) -> None:
    with pytest.raises(BadInputError, match="there are no pairs"):
        encode_pairs([], renderer)
    too_long = [PreferencePair((Message("user", "hi"),), "a" * 400, "b")] * 3
    with pytest.raises(
        BadInputError, match=r"none of the 3 pairs can be used; pair 1: chosen does not fit.*256 tokens"
    ):
        encode_pairs(too_long, renderer)


@given(st.integers(1, 200), st.integers(1, 40), st.integers(0, 5), st.integers(1, 3), st.integers(0, 40))
def test_every_epoch_takes_every_pair_once(pairs: int, batch: int, seed: int, epochs: int, begin: int) -> None:
    """Whether batches grow or not; and a step's batch does not depend on the steps taken before."""
    chosen = config(batch_size=batch, seed=seed, epochs=epochs, batch_start=min(begin, batch), batch_ramp_ratio=0.5)
    plan = StepPlan(pairs, chosen)
    batches = [plan.batch(step) for step in range(1, plan.total + 1)]
    order = list(itertools.chain(*batches))
    assert plan.items_seen(plan.total) == len(order) == pairs * epochs
    for epoch in range(epochs):
        assert sorted(order[epoch * pairs : (epoch + 1) * pairs]) == list(range(pairs))
    if pairs > 20 and epochs > 1:
        assert order[:pairs] != order[pairs : 2 * pairs]
    assert max(map(len, batches)) <= batch
    last = plan.total
    assert StepPlan(pairs, chosen).batch(last) == batches[-1]
    assert plan.epochs_done(last) == epochs


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.integers(1, 2000), st.booleans())
def test_micro_batches_keep_to_their_budget(lengths: list[int], budget: int, padded: bool) -> None:
    parts = micro_batches(range(len(lengths)), dict(enumerate(lengths)), budget, padded=padded)
    assert sorted(itertools.chain(*parts)) == list(range(len(lengths)))
    for part in parts:
        own = [lengths[i] for i in part]
        assert len(part) == 1 or (len(own) * max(own) if padded else sum(own)) <= budget
    if not padded:  # no two passes would fit into one
        sums = sorted(sum(lengths[i] for i in part) for part in parts)
        assert len(sums) == 1 or sums[0] + sums[1] > budget


def test_frozen_layers_stay_as_they_are(data: EncodedDataset[EncodedPair], tmp_path: Path) -> None:
    for lora in (None, LoraConfig(2, 4)):
        chosen = config(freeze_layers=1, lora=lora)
        trainable = load_trainable(chosen, CPU)
        before = {name: p.detach().clone() for name, p in trainable.model.named_parameters()}
        fit(trainable, data, chosen, tmp_path)
        moved = {name for name, p in trainable.model.named_parameters() if not torch.equal(p, before[name])}
        assert any("layers.1." in name for name in moved)
        assert not any("layers.0." in name or "embed" in name for name in moved)
        assert any(name.startswith("score") for name in moved)
    with pytest.raises(BadInputError, match="2 layers"):
        load_trainable(config(freeze_layers=3), CPU)


def test_adapters_are_on_every_linear_layer_and_the_head_is_trained() -> None:
    trainable = load_trainable(config(lora=LoraConfig(2, 4)), CPU)
    names = set(trainable.trainable())
    assert {n for n in names if "lora" not in n} == {"score.modules_to_save.default.weight"}
    for part in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"):
        assert sum(f"{part}.lora_A" in name for name in names) == 2


def test_schedules() -> None:
    cosine = [lr_factor("cosine", step, 10, warmup_ratio=0.2) for step in range(1, 11)]
    assert cosine[:3] == [0.5, 1.0, 1.0]
    assert all(a > b > 0 for a, b in itertools.pairwise(cosine[2:]))
    linear = [lr_factor("linear", step, 4, warmup_ratio=0.0) for step in range(1, 5)]
    assert linear == [1.0, 0.75, 0.5, 0.25]
    assert {lr_factor("constant", step, 10, warmup_ratio=0.0) for step in range(1, 11)} == {1.0}
    assert lr_factor("cosine", 1, 1, warmup_ratio=0.1) == 1.0


def test_a_configuration_survives_its_json_form() -> None:
    chosen = config(lora=LoraConfig(4, 8, 0.1), lr=None)
    again = TrainingConfig.from_dict(chosen.to_dict())
    assert again.to_dict() == chosen.to_dict()
    assert again.lora == chosen.lora
    method = BradleyTerry(Objective(label_smoothing=0.1))
    assert method_of(method_payload(method)) == method
    with pytest.raises(BadInputError, match="no training_method is named 'magic'"):
        method_of({"name": "magic"})
    with pytest.raises(BadInputError, match="not a training configuration"):
        TrainingConfig.from_dict({"base": "tiny", "novelty": 1})


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"epochs": 0},
        {"lr": 0.0},
        {"schedule": "sawtooth"},
        {"save_dtype": "int8"},
        {"dtype": "float16"},
        {"warmup_ratio": 2.0},
        {"freeze_layers": -1},
        {"max_grad_norm": 0.0},
    ],
)
def test_configurations_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInputError):
        config(**wrong)


def test_a_cut_off_metrics_line_is_left_out(tmp_path: Path) -> None:
    metrics = JsonLog(tmp_path / METRICS_FILE)
    metrics.append([{"kind": "train", "step": 1}, {"kind": "train", "step": 2}])
    with (tmp_path / "metrics.jsonl").open("a") as stream:
        stream.write('{"kind": "tr')
    assert [row["step"] for row in read_metrics(tmp_path)] == [1, 2]
    metrics.keep_to_step(1)
    metrics.add({"kind": "train", "step": 2, "again": True})
    assert [row.get("again") for row in read_metrics(tmp_path)] == [None, True]


def test_sparklines() -> None:
    assert sparkline([3, 2, 1]) == "█▅▁"
    assert sparkline([]) == ""
    assert len(sparkline([1.0] * 100)) == 40


def test_a_head_is_kept_when_training_continues(data: EncodedDataset[EncodedPair], tmp_path: Path) -> None:
    chosen = config()
    trainable: TrainableModel = load_trainable(chosen, CPU)
    fit(trainable, data, chosen, tmp_path)
    trainable.model.save_pretrained(tmp_path / "model")
    trainable.tokenizer.save_pretrained(tmp_path / "model")
    again = load_trainable(config(base=str(tmp_path / "model")), CPU)
    assert not again.new_head
    rates = {group["factor"] for group in make_optimizer(again, config(head_lr=0.5)).param_groups}
    assert rates == {1.0}  # the rate of new heads is for new heads
    assert torch.equal(again.trainable()["score.weight"], trainable.trainable()["score.weight"])
