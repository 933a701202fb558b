"""Terms of a whole batch under accumulation, prefix-shared lists, lists of two: the same numbers as the plain way."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.domain import Message, PreferencePair
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.ranked_lists import RankedList
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.methods.grm import Grm
from assay_rm_training.methods.odin import Odin
from assay_rm_training.methods.ranked_lists import RankedLists
from assay_rm_training.model.trainable_model import TrainableModel, set_head
from assay_rm_training.objectives.objective import Objective
from assay_rm_training.training.batch_losses import SupportsBatchTerm
from assay_rm_training.training.loop import make_optimizer, train_step
from assay_rm_training.training_config import LoraConfig, TrainingConfig

CPU = torch.device("cpu")
WORDS = ["red", "blue", "green", "tree", "stone", "river"]


def pairs(count: int = 8) -> list[PreferencePair]:
    rng = random.Random(3)
    made = []
    for number in range(count):
        prompt = (Message("user", f"{number} {' '.join(rng.choices(WORDS, k=rng.randint(1, 6)))}"),)
        sides = [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(2)]
        made.append(PreferencePair(prompt, sides[0] + "!", sides[1], weight=rng.choice([1.0, 2.0])))
    return made


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(load_tokenizer("tiny"), max_length=256)


def config(**changes: Any) -> TrainingConfig:
    settings = {"batch_size": 8, "dtype": "float32", "device": "cpu", "max_grad_norm": 1e9, "lr": 1e-3}
    return TrainingConfig("tiny", **{**settings, **changes})


def drawn(method: Any, chosen: TrainingConfig) -> TrainableModel:
    """With a head that is not zero, else correlations have no gradient."""
    trainable: TrainableModel = method.load(chosen, CPU)
    hidden = int(trainable.model.config.hidden_size)
    set_head(trainable, torch.randn(1, hidden, generator=torch.Generator().manual_seed(4)) / 8)
    return trainable


def loaded(
    method: Any, chosen: TrainingConfig, items: EncodedDataset[Any]
) -> tuple[TrainableModel, EncodedDataset[Any]]:
    trainable = drawn(method, chosen)
    return trainable, method.prepare(trainable, chosen, items, None)[0]


def gradients(trainable: TrainableModel) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in trainable.trainable().items() if p.grad is not None}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, gradient in first.items():
        assert torch.allclose(gradient, second[name], rtol=1e-4, atol=1e-5 * float(gradient.abs().max())), name


@pytest.mark.parametrize("method", [Odin(of_sum=True), BradleyTerry(Objective(centring=0.0), positive=0.5)])
@pytest.mark.parametrize("dropout", [None, 0.3])
def test_a_batch_term_accumulates_to_the_gradient_of_one_pass(
    method: Any, dropout: float | None, renderer: Renderer
) -> None:
    """Reference: one pass over the whole batch, its loss and term differentiated together. Dropout masks depend on how
    a batch is cut, so with dropout it is not cut: then the two rounds of a step must draw the same masks."""
    lora = LoraConfig(4, 8, dropout=dropout) if dropout else None
    encoded = method.encode(pairs(), renderer)
    for budget in (100_000,) if dropout else (1, 300, 100_000):
        chosen = config(micro_batch_tokens=budget, lora=lora)
        trainable, data = loaded(method, chosen, encoded)
        task: Any = method.task(trainable, chosen)
        has_term: object = task
        assert isinstance(has_term, SupportsBatchTerm)  # else the trainer would not see it
        items = sorted(data.items, key=task.cost, reverse=True)  # the order of a pass, which masks depend on
        torch.manual_seed(11)
        whole = task.measure(trainable, items)
        weights = torch.tensor([task.weight(item) for item in items])
        assert whole.outputs is not None
        loss = (whole.losses * weights).sum() / weights.sum() + task.batch_term(items, whole.outputs)
        loss.backward()
        reference = gradients(trainable)
        torch.manual_seed(11)
        measured = train_step(trainable, task, items, chosen, make_optimizer(trainable, chosen))
        assert measured.loss == pytest.approx(loss.item(), abs=1e-5)
        same(reference, gradients(trainable))


def test_without_the_batch_term_the_gradient_is_another(renderer: Renderer) -> None:
    """What the test above would miss if terms had no effect."""
    found = []
    for method in (Odin(length=0.0, orthogonal=0.0), Odin(orthogonal=0.0)):
        chosen = config(micro_batch_tokens=300)
        trainable, items = loaded(method, chosen, method.encode(pairs(), renderer))
        train_step(trainable, method.task(trainable, chosen), items.items, chosen, make_optimizer(trainable, chosen))
        found.append(gradients(trainable)["score.weight"])
    assert not torch.allclose(found[0], found[1], rtol=0.01)


@pytest.mark.slow
def test_odin_keeps_length_out_of_the_quality_head(renderer: Renderer, tmp_path: Path) -> None:
    """Where the chosen side is always the longer one, plain Bradley-Terry learns length; ODIN's kept head less so."""
    from assay_rm_training.evaluation.metrics import length_correlation
    from assay_rm_training.training.loop import train

    rng = random.Random(5)
    rows = []
    for number in range(48):
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 3)))
        longer = text + " and" * rng.randint(2, 9)
        rows.append(PreferencePair((Message("user", f"{number}"),), longer + rng.choice("!?"), text + rng.choice("!?")))
    correlations = {}
    for name, method in (("bt", BradleyTerry()), ("odin", Odin())):
        chosen = config(batch_size=24, epochs=12, lr=2e-3, head_lr=2e-3, head_init="normal", max_grad_norm=1.0)
        trainable = method.load(chosen, CPU)
        items = method.encode(rows, renderer)
        (tmp_path / name).mkdir()
        train(trainable, method.task(trainable, chosen), items, chosen, tmp_path / name)
        trainable.model.train(False)
        with torch.no_grad():
            each = method.task(trainable, chosen).measure(trainable, items.items).each
        lengths = [len(row.chosen) for row in rows] + [len(row.rejected) for row in rows]
        found = length_correlation([*each["chosen"].tolist(), *each["rejected"].tolist()], lengths)
        assert found is not None
        correlations[name] = abs(found)
    assert correlations["odin"] < correlations["bt"] - 0.2, correlations


def a_list(prompt: str, responses: list[str], ranks: list[int]) -> RankedList:
    return RankedList((Message("user", prompt),), tuple(responses), tuple(ranks))


@pytest.mark.parametrize("loss", ["plackett_luce", "pairs"])
def test_a_shared_prefix_changes_neither_losses_nor_gradients_of_lists(loss: Any, renderer: Renderer) -> None:
    rows = [
        a_list("a question", ["yes", "yes, and more", "no"], [1, 2, 3]),
        a_list("another", ["one", "two", "three", "four"], [2, 1, 2, 3]),
        a_list("a third one, longer than the others", ["red", "blue"], [2, 1]),
    ]
    method = RankedLists(loss)
    outcomes = []
    for share in (True, False):
        chosen = config(share_prefix=share)
        trainable = method.load(chosen, CPU)
        set_head(
            trainable,
            torch.randn(1, int(trainable.model.config.hidden_size), generator=torch.Generator().manual_seed(4)),
        )
        task = method.task(trainable, chosen)
        measured = task.measure(trainable, method.encode(rows, renderer).items)
        measured.losses.sum().backward()  # type: ignore[no-untyped-call]
        outcomes.append((measured, gradients(trainable)))
    (shared, first), (separate, second) = outcomes
    assert torch.allclose(shared.losses, separate.losses, atol=1e-5)
    same(first, second)
    assert shared.tokens == separate.tokens == separate.computed
    assert shared.computed < separate.computed


def test_lists_of_two_train_as_pairs(renderer: Renderer) -> None:
    """The same loss and gradient as Bradley-Terry with centring."""
    rows = pairs()
    lists = [RankedList(p.prompt, (p.rejected, p.chosen), (2, 1), p.weight) for p in rows]
    found = []
    cases: list[tuple[Any, Any]] = [(BradleyTerry(), rows), (RankedLists(), lists)]
    for method, data in cases:
        chosen = config()
        trainable = method.load(chosen, CPU)
        set_head(
            trainable,
            torch.randn(1, int(trainable.model.config.hidden_size), generator=torch.Generator().manual_seed(4)),
        )
        items = method.encode(data, renderer).items
        step = train_step(trainable, method.task(trainable, chosen), items, chosen, make_optimizer(trainable, chosen))
        found.append((step, gradients(trainable)))
    (bt, first), (pl, second) = found
    assert pl.loss == pytest.approx(bt.loss, abs=1e-6)
    assert pl.figures["accuracy"] == pytest.approx(bt.figures["accuracy"])
    same(first, second)


@pytest.mark.parametrize("text", ["sft", "nll", "dpo"])
def test_text_terms_are_those_of_the_language_model(text: Any, renderer: Renderer) -> None:
    """Against the stock language model's own log-probabilities; the dpo reference is the start, so its term is ln 2."""
    import torch.nn.functional as F
    from transformers import AutoModelForCausalLM

    from assay.models.loading import resolve_model
    from assay_rm_training.objectives.regularisers import text_nll, text_sft

    method = Grm(Objective(centring=0.0), text=text, share=0.25)
    chosen = config()
    encoded = method.encode(pairs(4), renderer)
    trainable = method.load(chosen, CPU)
    items, _ = method.prepare(trainable, chosen, encoded, None)
    losses = method.task(trainable, chosen).measure(trainable, items.items).losses
    base = AutoModelForCausalLM.from_pretrained(resolve_model("tiny"))
    for item, loss in zip(encoded.items, losses.tolist(), strict=True):
        ids = torch.from_numpy(item.chosen).long()
        with torch.no_grad():
            every = F.log_softmax(base(ids[None]).logits[0].double(), dim=-1)
        start = item.starts[0]
        summed = every[start - 1 : -1].gather(1, ids[start:, None]).sum()
        ln2 = torch.log(torch.tensor(2.0))  # the head starts at zero: Bradley-Terry is at ln 2
        term = {"sft": text_sft(summed), "nll": text_nll(summed), "dpo": ln2}[text]
        assert loss == pytest.approx(0.75 * float(ln2) + 0.25 * float(term), rel=1e-4)
