"""Every scalar way to train, on the tiny model: it learns its rule, resumes bit for bit, saves what it has learnt."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from assay import ids
from assay.domain import Message
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.readings import Aggregation, Stepwise
from assay.models.spec import RewardModelSpec
from assay.score import Score, ScoreFailure
from assay.statistics.rank_correlation import spearman
from assay_rm_training.checkpoints.checkpoint import save_checkpoint
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.methods.grm import Grm
from assay_rm_training.methods.method import (
    TRAINING_METHODS,
    FinishesTraining,
    Method,
    PreparesData,
    method_of,
    method_payload,
)
from assay_rm_training.methods.multi_objective import MultiObjective, agreement
from assay_rm_training.methods.odin import Odin
from assay_rm_training.methods.process_reward import ProcessRewardMethod
from assay_rm_training.methods.ranked_lists import RankedLists
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.objectives.objective import Objective
from assay_rm_training.training.loop import train
from assay_rm_training.training_config import LoraConfig, TrainingConfig
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem

CPU = torch.device("cpu")
WORDS = ["red", "blue", "green", "tree", "stone", "river", "cloud", "apple"]
ENDS = ("?", ".", "!")  #: a response's quality is its end alone, and its length says nothing


def texts(rng: random.Random) -> tuple[str, str]:
    """A prompt and the words of a response."""
    return " ".join(rng.choices(WORDS, k=3)), " ".join(rng.choices(WORDS, k=rng.randint(1, 3)))


def decided(rng: random.Random) -> dict[str, Any]:
    prompt, text = texts(rng)
    return {"prompt": prompt, "chosen": f"{text}!", "rejected": f"{text}?", "votes": {"chosen": 4, "rejected": 1}}


def maybe_tied(rng: random.Random) -> dict[str, Any]:
    prompt, text = texts(rng)
    if rng.random() < 0.5:
        return {"prompt": prompt, "responses": [f"{text}!", f"{text}?"], "label": "A"}
    return {"prompt": prompt, "responses": [f"{text}, a!", f"{text}, b!"], "label": "tie"}


def ranked(rng: random.Random) -> dict[str, Any]:
    prompt, text = texts(rng)
    return {"prompt": prompt, "responses": [text + end for end in ENDS], "ranks": [3, 2, 1]}


def rated(rng: random.Random) -> dict[str, Any]:
    prompt, text = texts(rng)
    level = rng.randrange(3)
    ratings = {"quality": 10 + level, "spare": None if rng.random() < 0.3 else 50 - 10 * level}
    return {"prompt": prompt, "response": text + ENDS[level], "ratings": ratings}


def stepped(rng: random.Random) -> dict[str, Any]:
    prompt, _ = texts(rng)
    labels = [rng.random() < 0.6 for _ in range(rng.randint(2, 3))]
    steps = [f"{texts(rng)[1]}{'!' if right else '?'}" for right in labels]
    return {"prompt": prompt, "steps": steps, "labels": [None, *labels[1:]] if len(labels) > 2 else labels}


CASES: dict[str, tuple[Method, Callable[[random.Random], dict[str, Any]]]] = {
    "soft labels": (BradleyTerry(Objective(soft_labels=True)), decided),
    "rao_kupper": (BradleyTerry(Objective("rao_kupper")), maybe_tied),
    "davidson": (BradleyTerry(Objective("davidson")), maybe_tied),
    "bounded focal": (BradleyTerry(Objective("focal_internlm", bound=0.01, centring=0.0)), decided),
    "positive mean": (BradleyTerry(positive=0.1), decided),
    "odin": (Odin(of_sum=True), decided),
    "grm": (Grm(), decided),
    "grm dpo": (Grm(text="dpo"), decided),
    "lists": (RankedLists(), ranked),
    "lists by pairs": (RankedLists("pairs"), ranked),
    "ratings": (MultiObjective(("quality", "spare"), Aggregation("weights", (2.0, -0.1))), rated),
    "ratings, the worst": (MultiObjective(("quality", "spare"), Aggregation("min")), rated),
    "steps": (ProcessRewardMethod(Stepwise(aggregation="product")), stepped),
}
#: What a case needs to learn its rule: rows, and settings of the training.
NEEDS: dict[str, tuple[int, dict[str, Any]]] = {
    "odin": (32, {"lora": LoraConfig(4, 8), "lr": 1e-2, "head_lr": 1e-2, "epochs": 5}),
    "ratings": (32, {"lr": 5e-3, "head_lr": 5e-3, "epochs": 8}),
    "ratings, the worst": (32, {"lr": 5e-3, "head_lr": 5e-3, "epochs": 8}),
    "steps": (96, {"epochs": 4}),
}
by_case = pytest.mark.parametrize("case", CASES)
#: Pairs, lists and ratings, each trained to see that it learns; the others are left to `make test-all`.
KINDS = ("rao_kupper", "lists", "ratings")
#: Resumed, they differ from another case by a formula, or in measuring references (a scenario on several processes).
FORMULAS = ("davidson", "bounded focal", "grm dpo", "lists by pairs", "ratings, the worst")
by_kind = pytest.mark.parametrize(
    "case", [case if case in KINDS else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
by_loop = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case in FORMULAS else case for case in CASES]
)


def config(**changes: Any) -> TrainingConfig:
    settings = {"lr": 3e-3, "head_lr": 3e-3, "batch_size": 8, "epochs": 3, "dtype": "float32", "device": "cpu"}
    return TrainingConfig("tiny", **{**settings, **changes})


def write(path: Path, make: Callable[[random.Random], dict[str, Any]], count: int = 32, seed: int = 0) -> str:
    rng = random.Random(seed)
    path.write_text("".join(json.dumps(make(rng)) + "\n" for _ in range(count)))
    return str(path)


def ready(method: Method, chosen: TrainingConfig, data: str) -> tuple[TrainableModel, Renderer, EncodedDataset[Any]]:
    trainable = method.load(chosen, CPU)
    renderer = Renderer(trainable.tokenizer, max_length=256)
    items = method.encode(method.read(None, data), renderer)
    if isinstance(method, PreparesData):
        items, _ = method.prepare(trainable, chosen, items, None)
    return trainable, renderer, items


class StoppedError(Exception):
    pass


def stop_after(steps: int) -> Callable[[int], None]:
    left = [steps]

    def advance(_: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise StoppedError

    return advance


@by_kind
def test_it_learns_and_the_saved_model_gives_its_scores(case: str, tmp_path: Path) -> None:
    method, make = CASES[case]
    count, needs = NEEDS.get(case, (32, {}))
    data = write(tmp_path / "data.jsonl", make, count)
    chosen = config(**needs)
    trainable, renderer, items = ready(method, chosen, data)
    summary = train(trainable, method.task(trainable, chosen), items, chosen, tmp_path)
    assert summary.last_loss < summary.first_loss
    settled = method.finish(trainable, items) if isinstance(method, FinishesTraining) else {}
    assert not [name for name, _ in trainable.model.named_modules() if "assay" in name]  # the stock model is left
    fields = method.spec_fields(trainable) | settled
    spec = RewardModelSpec("scalar", "tiny", renderer.template_hash, 256, "unsaved", **fields)
    rows = method.read(None, data)
    sample = method.responses(rows)[:8]
    before = method.engine(trainable.model, renderer, spec, name="before").score(sample)
    save_checkpoint(trainable, spec, renderer, tmp_path / "model", sample=sample, card="", engine=method.engine)
    again = load_scorer(ModelConfig(str(tmp_path / "model"), device="cpu"))
    for first, second in zip(before, again.score(sample), strict=True):
        assert isinstance(first, Score)
        assert isinstance(second, Score)
        assert second.reward == pytest.approx(first.reward, abs=1e-5)
    held_out = method.read(None, write(tmp_path / "held.jsonl", make, seed=7))
    found = method.evaluate(again, held_out, seed=0)
    assert found is not None
    figures = found.to_dict()
    assert figures == method.evaluate(again, held_out, seed=0).to_dict()  # type: ignore[union-attr]
    reached = figures["spearman"] if "spearman" in figures else figures["accuracy"]
    assert (reached["value"] if isinstance(reached, dict) else reached) > 0.8, figures
    assert found.card_rows()
    assert method.card_rows()


@by_loop
def test_a_resumed_training_is_the_uninterrupted_one(case: str, tmp_path: Path) -> None:
    method, make = CASES[case]
    data = write(tmp_path / "data.jsonl", make, count=16)
    chosen = config(epochs=2, save_every=1)
    weights = []
    for name in ("whole", "stopped"):
        folder = tmp_path / name
        folder.mkdir()
        trainable, _, items = ready(method, chosen, data)
        if name == "stopped":
            with pytest.raises(StoppedError):
                train(trainable, method.task(trainable, chosen), items, chosen, folder, advance=stop_after(3))
            trainable, _, items = ready(method, chosen, data)
        train(trainable, method.task(trainable, chosen), items, chosen, folder, resume=name == "stopped")
        weights.append({n: p.detach() for n, p in trainable.trainable().items()})
    assert weights[0].keys() == weights[1].keys()
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name


@by_case
def test_a_method_survives_its_json_form(case: str) -> None:
    method = CASES[case][0]
    assert method_of(json.loads(json.dumps(method_payload(method)))) == method
    assert method.name in TRAINING_METHODS.names()
    with pytest.raises(BadInputError, match="not a training method of this version"):
        method_of({**method_payload(method), "novelty": 1, "aggregation": None, "reading": 1})


@pytest.mark.parametrize(
    ("aggregation", "separate"),
    [
        (Aggregation("weights", (2.0, -0.1)), False),
        (Aggregation("weights", (2.0, -0.1)), True),
        (Aggregation("min"), False),
    ],
)
@pytest.mark.parametrize("lora", [None, LoraConfig(2, 4)])
def test_rating_heads_become_the_reward(
    aggregation: Aggregation, separate: bool, lora: LoraConfig | None, tmp_path: Path
) -> None:
    """The saved reward is the aggregate of what the heads say, in the ratings' units; but for a constant if folded."""
    method = MultiObjective(("quality", "spare"), aggregation, separate=separate)
    folded = aggregation.is_linear and not separate
    data = write(tmp_path / "data.jsonl", rated, count=12)
    trainable, renderer, items = ready(method, config(lora=lora), data)
    heads = trainable.trainable()["assay_ratings.weight"]
    with torch.no_grad():
        heads.normal_(generator=torch.Generator().manual_seed(1))
        trainable.model.train(False)
        task = method.task(trainable, config())
        hidden = torch.cat([task._forward(trainable, [item.group]).last() for item in items.items])
        said = hidden @ heads.T  # standardised
    scale = items.items[0].scale
    own = (said * torch.tensor(scale.deviations) + torch.tensor(scale.means)).tolist()
    constant = aggregation(scale.means) if folded else 0.0
    settled = method.finish(trainable, items)
    spec = RewardModelSpec("scalar", "tiny", renderer.template_hash, 256, "unsaved", **settled)
    sample = method.responses(method.read(None, data))
    save_checkpoint(trainable, spec, renderer, tmp_path / "m", sample=sample, card="", engine=method.engine)
    again = load_scorer(ModelConfig(str(tmp_path / "m"), device="cpu"))
    scores = [score for score in again.score(sample) if isinstance(score, Score)]
    rewards = [score.reward for score in scores]
    assert rewards == pytest.approx([aggregation(row) - constant for row in own], abs=1e-4)
    parts = [{part.name: part.value for part in score.parts} for score in scores]
    if folded:
        assert parts == [{}] * len(own)
    else:
        assert [list(values) for values in parts] == [["quality", "spare"]] * len(own)
        assert [v for values in parts for v in values.values()] == pytest.approx(
            [v for row in own for v in row], abs=1e-4
        )
        with pytest.raises(BadInputError, match="2 labels; a scalar reward model has one"):
            TransformersScorer.load(ModelConfig(str(tmp_path / "m")))


@pytest.mark.slow
def test_ties_teach_that_two_are_equal(tmp_path: Path) -> None:
    """A pair that is tied half the time gets a smaller margin than with its ties left out; the parameter is learned."""
    data = write(tmp_path / "data.jsonl", maybe_tied, count=64)
    margins, parameters = {}, {}
    for name in ("davidson", "bradley_terry"):
        method = BradleyTerry(Objective(name, centring=0.0))
        chosen = config(epochs=4)
        trainable, _, items = ready(BradleyTerry(Objective("davidson")), chosen, data)
        kept = items if name == "davidson" else EncodedDataset([i for i in items.items if not i.tie], {}, 0, "")
        parameters[name] = trainable.trainable()["assay_tie.value"]
        start = parameters[name].item()
        (tmp_path / name).mkdir()
        train(trainable, method.task(trainable, chosen), kept, chosen, tmp_path / name)
        assert (parameters[name].item() != start) == (name == "davidson")
        margins[name] = _tied_spread(trainable, items)
    assert margins["davidson"] < margins["bradley_terry"]


def _tied_spread(trainable: TrainableModel, items: EncodedDataset[Any]) -> float:
    task = BradleyTerry().task(trainable, config())
    tied = [item for item in items.items if item.tie]
    trainable.model.train(False)
    with torch.no_grad():
        outputs = task.measure(trainable, tied).outputs
    assert outputs is not None
    return float((outputs[:, 0] - outputs[:, 1]).abs().mean())


@pytest.mark.slow
def test_a_process_reward_model_is_a_stock_classifier_of_tokens_too(tmp_path: Path) -> None:
    """Step rewards = logits of the stock token classifier at the steps' ends; the last one = the stock reward."""
    from transformers import AutoModelForTokenClassification

    from assay.models.chat.step_reader import read_steps
    from assay_serving.engines.process_reward import StepScorer

    method = ProcessRewardMethod()
    data = write(tmp_path / "data.jsonl", stepped, count=16)
    chosen = config(epochs=1)
    trainable, renderer, items = ready(method, chosen, data)
    train(trainable, method.task(trainable, chosen), items, chosen, tmp_path)
    rows = method.read(None, data)
    spec = RewardModelSpec("scalar", "tiny", renderer.template_hash, 256, "unsaved", stepwise=method.reading)
    save_checkpoint(
        trainable, spec, renderer, tmp_path / "m", sample=method.responses(rows), card="", engine=StepScorer
    )
    scorer = load_scorer(ModelConfig(str(tmp_path / "m"), device="cpu"))
    assert isinstance(scorer, StepScorer)
    stock = TransformersScorer.load(ModelConfig(str(tmp_path / "m"), device="cpu")).score(method.responses(rows))
    tokens = AutoModelForTokenClassification.from_pretrained(tmp_path / "m", num_labels=1)
    found = scorer.score([ScoreItem.of_steps(row.prompt, row.steps) for row in rows])
    whole = scorer.score(method.responses(rows))
    for row, scores, last, response in zip(rows, found, stock, whole, strict=True):
        assert isinstance(scores, Score)
        assert isinstance(last, Score)
        assert isinstance(response, Score)
        places = read_steps(renderer, row.prompt, row.steps, separator="\n")
        with torch.no_grad():
            logits = tokens(torch.tensor([places.ids])).logits[0, list(places.places), 0]
        assert scores.steps == pytest.approx(logits.tolist(), abs=1e-5)
        assert scores.steps[-1] == pytest.approx(last.reward, abs=1e-5)
        assert response.reward == pytest.approx(min(scores.steps), abs=1e-6)
        assert response.steps == pytest.approx(scores.steps, abs=1e-6)
    assert [name for name, _ in scorer.other_ways()] == ["packed = padded", "left = right padding"]
    for _, other in scorer.other_ways():
        assert [s.reward for s in other.score(method.responses(rows)) if isinstance(s, Score)] == pytest.approx(
            [s.reward for s in whole if isinstance(s, Score)], abs=1e-5
        )


def test_a_response_that_cannot_be_read_by_steps_fails_alone(tmp_path: Path) -> None:
    from assay.domain import Message
    from assay_serving.engines.process_reward import StepScorer

    method = ProcessRewardMethod()
    chosen = config()
    trainable = method.load(chosen, CPU)
    renderer = Renderer(trainable.tokenizer, max_length=60)
    spec = RewardModelSpec("scalar", "tiny", renderer.template_hash, 60, "v", stepwise=method.reading)
    scorer = StepScorer(trainable.model, renderer, spec, name="steps")
    prompt = (Message("user", "hi"),)
    rows = [ScoreItem(prompt, "one\ntwo"), ScoreItem(prompt, "x" * 200), ScoreItem.of_steps(prompt, [])]
    good, long, none = scorer.score(rows)
    assert isinstance(good, Score)
    assert isinstance(none, ScoreFailure)
    assert none.message == "field 'steps': a process reward model needs at least one step"
    assert not isinstance(long, Score)
    assert long.code == "too_long"


def test_steps_that_responses_share_are_computed_once_and_scored_in_each() -> None:
    from assay.domain import Message
    from assay_serving.engines.process_reward import StepScorer

    method = ProcessRewardMethod()
    trainable = method.load(config(), CPU)
    renderer = Renderer(trainable.tokenizer, max_length=200)
    spec = RewardModelSpec("scalar", "tiny", renderer.template_hash, 200, "v", stepwise=method.reading)
    scorer = StepScorer(trainable.model, renderer, spec, name="steps")
    prompt, first = (Message("user", "Add 2 and 3, then double it."),), "First I add two and three, that is five."
    responses = [(prompt, (first, *rest)) for rest in (("Ten.",), ("Doubled: eleven.", "So 11."), ("Ten!",))]
    items = [ScoreItem.of_steps(prompt, steps) for prompt, steps in responses]
    together = scorer.score(items)
    assert scorer.last_computed < scorer.last_tokens
    alone = [scorer.score([item])[0] for item in items]
    for one, other, (_, steps) in zip(together, alone, responses, strict=True):
        assert isinstance(one, Score)
        assert isinstance(other, Score)
        assert len(one.steps) == len(steps)
        assert one.steps == pytest.approx(other.steps, abs=1e-5)
    plain = RewardModelSpec("scalar", "tiny", renderer.template_hash, 200, "v")
    with pytest.raises(BadInputError, match="steps was not trained on steps"):
        StepScorer(trainable.model, renderer, plain, name="steps")


def test_agreement_with_ratings_has_an_interval() -> None:
    """Card D9's vectors; what does not vary agrees with nothing."""
    found = agreement(spearman, [1, 2, 3, 4, 5], [2, 1, 4, 3, 5])
    assert found is not None
    assert found.value == pytest.approx(0.8)
    assert found.low < 0.8 < found.high
    assert agreement(spearman, [1, 1], [2, 3]) is None


def test_a_list_that_does_not_fit_is_named_by_its_prompt_and_response(tmp_path: Path) -> None:
    lists = [
        {"prompt": "q", "responses": ["a", "b"], "ranks": [1, 2]},
        {"prompt": "p", "responses": ["a", "b " * 3000], "ranks": [1, 2]},
    ]
    path = tmp_path / "lists.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in lists))
    items = ready(RankedLists(), config(), str(path))[2]
    prompt = ids.prompt_id((Message("user", "p"),))
    assert items.first_fault.startswith(f"list 2 ({prompt}): does not fit: response 2 alone passes ")


def test_a_step_that_engines_would_cut_is_left_out(tmp_path: Path) -> None:
    whole = {"prompt": "q", "steps": ["one", "two"], "labels": [True, False]}
    halves = {"prompt": "q", "steps": ["one\nand a half", "two"], "labels": [True, False]}
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (whole, halves)))
    for separator, kept in (("\n", 1), ("\n\n", 2)):
        items = ready(ProcessRewardMethod(Stepwise(separator)), config(), str(path))[2]
        assert (len(items), sum(items.left_out.values())) == (kept, 2 - kept)


def test_methods_refuse_what_makes_no_sense(tmp_path: Path) -> None:
    for make in (
        lambda: MultiObjective(()),
        lambda: MultiObjective(("a", "a")),
        lambda: MultiObjective(("a", "b"), Aggregation("weights", (1.0,))),
        lambda: RankedLists("listmle"),  # type: ignore[arg-type]
        lambda: Odin(Objective("davidson")),
        lambda: Odin(length=-1.0),
        lambda: Grm(share=2.0),
        lambda: Grm(text="poem"),  # type: ignore[arg-type]
        lambda: BradleyTerry(vote_prior=-1.0),
    ):
        with pytest.raises(BadInputError):
            make()
    rows = write(tmp_path / "data.jsonl", rated)
    absent = MultiObjective(("quality", "absent"))
    with pytest.raises(BadInputError, match="no row has the rating 'absent'"):
        ready(absent, config(), rows)


def test_grm_needs_a_language_model(tiny_reward_model: Path) -> None:
    with pytest.raises(BadInputError, match="language model and its head"):
        Grm().load(TrainingConfig(str(tiny_reward_model)), CPU)
