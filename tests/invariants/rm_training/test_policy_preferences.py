"""Policies trained on preferences: shared prompts, references measured once, resumption, scores of saved policies."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.domain import Message
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_causal_lm, load_tokenizer
from assay.models.readings import Implicit
from assay.models.spec import RewardModelSpec
from assay.score import Score, ScoreFailure
from assay_rm_training.checkpoints.checkpoint import save_checkpoint
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.token_shards import write_items
from assay_rm_training.methods import response_logprobs
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.preference.method import PolicyMethod
from assay_rm_training.preference.pairs import Dpo, Ipo, Orpo, SimPo
from assay_rm_training.preference.unpaired import Kto, Sft
from assay_rm_training.training.loop import train
from assay_rm_training.training_config import LoraConfig, TrainingConfig
from assay_serving.engines.implicit import ImplicitScorer
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import Rendered, ScoreItem

CPU = torch.device("cpu")
WORDS = ["red", "blue", "green", "tree", "stone", "river", "cloud", "apple"]
METHODS: dict[str, Any] = {
    "dpo": Dpo(0.5),
    "ipo": Ipo(0.5),
    "simpo": SimPo(),
    "orpo": Orpo(),
    "kto": Kto(0.5, desirable_weight=1.2),
    "sft": Sft(),
}
by_name = pytest.mark.parametrize("name", METHODS)


def config(**changes: Any) -> TrainingConfig:
    settings = {"lr": 3e-3, "batch_size": 8, "epochs": 2, "dtype": "float32", "device": "cpu", "max_length": 256}
    return TrainingConfig("tiny", **{**settings, **changes})


def write(path: Path, count: int, seed: int = 0) -> str:
    """Pairs whose chosen side ends in !, the other in ?; some prompts have a turn of the assistant's."""
    rng = random.Random(seed)
    lines = []
    for number in range(count):
        text = " ".join(rng.choices(WORDS, k=rng.randint(2, 9)))
        prompt: Any = f"{seed}-{number}"
        if number % 3 == 0:
            roles = ("user", "assistant", "user")
            prompt = [{"role": role, "content": f"turn {number}"} for role in roles]
        lines.append(json.dumps({"prompt": prompt, "chosen": f"{text}!", "rejected": f"{text}?"}) + "\n")
    path.write_text("".join(lines))
    return str(path)


def ready(method: Any, chosen: TrainingConfig, data: str, **options: Any) -> tuple[TrainableModel, EncodedDataset[Any]]:
    trainable = method.load(chosen, CPU)
    items = method.encode(method.read(None, data), Renderer(trainable.tokenizer, max_length=256), **options)
    return trainable, method.prepare(trainable, chosen, items, None)[0]


def dense_log_prob(model: Any, ids: Any, start: int) -> float:
    """By the model's own logits, one row without padding."""
    tokens = torch.from_numpy(ids).long()[None]
    with torch.no_grad():
        logps = model(input_ids=tokens).logits.log_softmax(-1)[0, :-1].gather(-1, tokens[0, 1:, None])[:, 0]
    return float(logps[start - 1 :].sum())


@by_name
def test_log_probabilities_are_those_of_single_rows(name: str, tmp_path: Path) -> None:
    method, chosen = METHODS[name], config(share_prefix=True)
    trainable, data = ready(method, chosen, write(tmp_path / "pairs.jsonl", 6))
    model = load_causal_lm("tiny", load_tokenizer("tiny"), dtype=torch.float32, device=CPU)
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    for share in (True, False):
        task = method.task(trainable, replace(chosen, share_prefix=share))
        hidden = task._forward(trainable, [item.group for item in data.items])
        found = response_logprobs.response_log_probs(hidden, data.items, head)
        expected = [
            [dense_log_prob(model, ids, start) for ids, start in zip(item.group.sequences(), item.starts, strict=True)]
            for item in data.items
        ]
        torch.testing.assert_close(found, torch.tensor(expected), atol=1e-3, rtol=1e-5)
        if any(item.reference for item in data.items):
            references = torch.tensor([item.reference for item in data.items])
            torch.testing.assert_close(references, torch.tensor(expected), atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize(
    "name", [name if name == "dpo" else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_it_learns_resumes_bit_for_bit_and_gives_its_scores_when_saved(name: str, tmp_path: Path) -> None:
    method, chosen = METHODS[name], config(save_every=1)
    path = write(tmp_path / "pairs.jsonl", 24)
    weights = []
    for way in ("complete", "stopped"):
        folder = tmp_path / way
        folder.mkdir()
        trainable, data = ready(method, chosen, path)
        if way == "stopped":
            with pytest.raises(StoppedError):
                train(trainable, method.task(trainable, chosen), data, chosen, folder, advance=stop_after(2))
            trainable, data = ready(method, chosen, path)
        summary = train(trainable, method.task(trainable, chosen), data, chosen, folder, resume=way == "stopped")
        assert summary.last_loss < summary.first_loss
        weights.append([p.detach().clone() for p in trainable.model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))

    renderer = Renderer(trainable.tokenizer, max_length=256)
    spec = RewardModelSpec("implicit", "tiny", renderer.template_hash, 256, "unsaved", **method.spec_fields(trainable))
    rows = method.read(None, path)
    sample = method.responses(rows)[:8]
    before = method.engine(trainable.model, renderer, spec, name="before").score(sample)
    spec, _ = save_checkpoint(
        trainable, spec, renderer, tmp_path / "model", sample=sample, card="", engine=method.engine
    )
    assert spec.parity == "passed"
    after = load_scorer(ModelConfig(str(tmp_path / "model"), device="cpu"))
    for first, second in zip(before, after.score(sample), strict=True):
        assert isinstance(first, Score)
        assert isinstance(second, Score)
        assert second.reward == pytest.approx(first.reward, abs=1e-5)
    held_out = write(tmp_path / "held.jsonl", 16, seed=7)
    pairs = Dpo().evaluate(after, Dpo().read(None, held_out), seed=0)
    assert pairs is not None
    if name != "sft":  # which never sees the other side
        assert pairs.accuracy.value > 0.9
        found = method.evaluate(after, method.read(None, held_out), seed=0)
        assert found is not None
        assert found.accuracy.value == pairs.accuracy.value


class StoppedError(Exception):
    pass


def stop_after(steps: int) -> Callable[[int], None]:
    remaining = [steps]

    def advance(_: int) -> None:
        remaining[0] -= 1
        if not remaining[0]:
            raise StoppedError

    return advance


@pytest.mark.parametrize("name", ["dpo", "kto"])
def test_micro_batches_change_no_gradient(name: str, tmp_path: Path) -> None:
    """KTO's KL term too is of the full batch."""
    path = write(tmp_path / "pairs.jsonl", 8)
    method, found = METHODS[name], []
    for tokens in (40, 100_000):
        chosen = config(batch_size=16, epochs=1, micro_batch_tokens=tokens)
        trainable, data = ready(method, chosen, path)
        folder = tmp_path / str(tokens)
        folder.mkdir()
        train(trainable, method.task(trainable, chosen), data, chosen, folder)
        found.append(torch.cat([p.detach().flatten() for p in trainable.model.parameters()]))
    torch.testing.assert_close(*found, atol=2e-5, rtol=0)


def test_adapters_start_as_their_reference(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.jsonl", 8)
    _, full = ready(Dpo(), config(), path)
    trainable, adapted = ready(Dpo(), config(lora=LoraConfig(4, 8)), path)
    _, named = ready(Dpo(reference="tiny"), config(), path)
    for other in (adapted, named):
        for one, two in zip(full.items, other.items, strict=True):
            assert one.reference == pytest.approx(two.reference, abs=1e-4)
    assert trainable.model.training


@pytest.mark.parametrize("name", ["dpo", "kto"])
def test_references_of_an_interrupted_run_are_used_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, path = METHODS[name], write(tmp_path / "pairs.jsonl", 8)

    def stored(items: Any) -> Any:
        return write_items(tmp_path / "train" / "items", items)

    first = [item.reference for item in ready(method, config(), path, collect=stored)[1].items]
    (kept,) = (tmp_path / "train").glob("reference-*.npy")

    def measured_again(*_: Any) -> None:
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr(response_logprobs, "_measured", measured_again)
        assert [item.reference for item in ready(method, config(), path, collect=stored)[1].items] == first
    other = write(tmp_path / "pairs.jsonl", 8, seed=3)  # other rows are measured
    assert [item.reference for item in ready(method, config(), other, collect=stored)[1].items] != first
    assert kept.is_file()


def test_mismatched_responses_are_of_other_prompts(tmp_path: Path) -> None:
    _, data = ready(Kto(), config(), write(tmp_path / "pairs.jsonl", 5))
    for item in data.items:
        own, mismatched = item.group.sequences()
        start = item.starts[0]
        assert own[:start].tolist() == mismatched[:start].tolist()
        assert own[start:].tolist() != mismatched[start:].tolist()
    with pytest.raises(BadInputError, match="at least two prompts"):
        ready(Kto(), config(), write(tmp_path / "one.jsonl", 1))


def test_rows_of_single_responses(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    rows: list[dict[str, Any]] = [
        {"prompt": "p", "completion": "good", "label": True},
        {"prompt": "p", "completion": "bad", "label": False},
        {"messages": [*turns, {"role": "user", "content": "more"}, {"role": "assistant", "content": "last"}]},
        {"prompt": "p", "chosen": "x", "rejected": "y"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = [(row.response, row.desirable) for row in Kto().read(None, str(path))]
    assert found == [("good", True), ("bad", False), ("last", True), ("x", True), ("y", False)]
    assert [row.response for row in Sft().read(None, str(path))] == ["good", "last", "x"]
    path.write_text(json.dumps({"prompt": "p", "completion": "c", "label": "yes"}) + "\n")
    with pytest.raises(BadInputError, match=r"rows\.jsonl.*label.*not true or false"):
        Kto().read(None, str(path))


def test_any_pair_of_models_scores(tmp_path: Path) -> None:
    """The reward by the models' own logits; of equal models 0; one model alone its mean log-probability."""
    trainable, data = ready(Dpo(), config(epochs=1), write(tmp_path / "pairs.jsonl", 8))
    train(trainable, Dpo().task(trainable, config(epochs=1)), data, config(epochs=1), tmp_path)
    policy = str(tmp_path / "policy")
    trainable.model.save_pretrained(policy)
    trainable.tokenizer.save_pretrained(policy)
    items = [ScoreItem((Message("user", "Name a metal."),), text) for text in ("Gold.", "A longer one: iron.")]
    pair = load_scorer(ModelConfig(f"dpo:{policy}@tiny", device="cpu"))
    alone = load_scorer(ModelConfig(f"dpo:{policy}", device="cpu"))
    same = load_scorer(ModelConfig("dpo:tiny@tiny", device="cpu"))
    assert pair.info.kind == "implicit"
    assert "@" in pair.info.version
    base = load_causal_lm("tiny", trainable.tokenizer, dtype=torch.float32, device=CPU)
    for item, by_pair, by_one, none in zip(items, *(s.score(items) for s in (pair, alone, same)), strict=True):
        encoded = Renderer(trainable.tokenizer, max_length=256).encode(item.prompt, item.response)
        ids = torch.tensor(encoded.ids).numpy()
        own, reference = (
            dense_log_prob(model.train(False), ids, encoded.response_start) for model in (trainable.model, base)
        )
        assert isinstance(by_pair, Score)
        assert isinstance(by_one, Score)
        assert isinstance(none, Score)
        assert by_pair.reward == pytest.approx(0.1 * (own - reference), abs=1e-3)
        assert by_one.reward == pytest.approx(0.1 * own / (len(ids) - encoded.response_start), abs=1e-4)
        assert none.reward == 0


def test_what_a_pair_cannot_score_is_a_failure() -> None:
    scorer = load_scorer(ModelConfig("dpo:tiny@tiny", device="cpu", max_length=64))
    prompt = (Message("user", "Name a metal."),)
    items = [
        ScoreItem(prompt, "Gold.", "a principle"),
        ScoreItem(prompt, "gold " * 200),
        ScoreItem((), "", rendered=Rendered("no turns at all")),
        ScoreItem(prompt, "Gold."),
    ]
    found = scorer.score(items)
    assert [result.code for result in found if isinstance(result, ScoreFailure)] == [
        "bad_input",
        "too_long",
        "bad_input",
    ]
    assert isinstance(found[-1], Score)


@pytest.mark.parametrize(
    ("implicit", "message"),
    [
        (Implicit(0.1, "smollm2"), "different vocabularies"),
        (Implicit(0.1, "tiny", "0123"), "not the one that the policy was trained with"),
        (None, "does not say how"),
    ],
)
def test_a_wrong_reference_is_refused(implicit: Implicit | None, message: str) -> None:
    tokenizer = load_tokenizer("tiny")
    model = load_causal_lm("tiny", tokenizer, dtype=torch.float32, device=CPU)
    renderer = Renderer(tokenizer, max_length=64)
    spec = RewardModelSpec("implicit", "tiny", renderer.template_hash, 64, "v", implicit=implicit)
    with pytest.raises(Exception, match=message):
        ImplicitScorer(model, renderer, spec, name="policy")


def test_the_settings_survive_the_spec_and_the_run_record(tmp_path: Path) -> None:
    spec = RewardModelSpec("implicit", "tiny", "t", 64, "v", implicit=Implicit(0.2, "tiny", "abc"))
    spec.write(tmp_path)
    assert RewardModelSpec.read(tmp_path) == spec
    for method in METHODS.values():
        assert isinstance(method, PolicyMethod)
        assert type(method).from_dict(method.to_dict()) == method
