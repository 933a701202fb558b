"""Training principle models: the loss is a stock trainer's, however questions are grouped; resumed is uninterrupted;
the saved checkpoint gives the trained rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from assay import ids
from assay.cli.main import main
from assay.domain import Message
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.spec import RewardModelSpec
from assay.runs.json_log import read_metrics
from assay.score import Score
from assay.workspace import Workspace
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.principle_dataset import JudgedResponse
from assay_rm_training.data.principle_rows import PrincipleRow, write_principle_rows
from assay_rm_training.methods.method import method_of, method_payload
from assay_rm_training.methods.principle import Principle
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.training.loop import train
from assay_rm_training.training_config import LoraConfig, TrainingConfig
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_scorer
from assay_serving.scorer import ScoreItem

CPU = torch.device("cpu")


def some_rows() -> list[PrincipleRow]:
    """Every response is short or long, and polite or not; two principles ask for that."""
    rows = []
    for n in range(16):
        for k in range(2):
            brief, polite = (n + k) % 2 == 0, n % 3 == 0
            text = ("Yes." if brief else "It depends on many things, as so often.") + (" Thanks!" if polite else "")
            prompt = (Message("user", f"Question {n}?"),)
            weight = 1.0 + n % 2
            rows.append(PrincipleRow(prompt, text, "Be brief", brief, weight=weight))
            rows.append(PrincipleRow(prompt, text, "Be polite", polite, "set", "tone"))
            rows.append(PrincipleRow(prompt, text, f"Principle {n % 5}", n % 5 > 1))
    return rows


def encoded(method: Principle, trainable: TrainableModel, rows: list[PrincipleRow]) -> EncodedDataset[JudgedResponse]:
    return method.encode(rows, Renderer(trainable.tokenizer, max_length=512))


def gradient(base: Path, method: Principle, config: TrainingConfig, rows: list[PrincipleRow]) -> tuple[float, Any]:
    """Loss and gradient of one batch of all rows, as the trainer weighs items."""
    trainable = method.load(config, CPU)
    items = encoded(method, trainable, rows).items
    task = method.task(trainable, config)
    total = sum(task.weight(item) for item in items)
    weights = torch.tensor([task.weight(item) for item in items])
    loss = (task.measure(trainable, items).losses * weights).sum() / total
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach()), {name: p.grad for name, p in trainable.model.named_parameters()}


def test_loss_and_gradient_are_a_stock_trainers(tiny_principle_base: Path) -> None:
    """Against transformers' own loss: labels -100 everywhere but at the answer, rows padded on the right."""
    config = TrainingConfig(str(tiny_principle_base), dtype="float32", device="cpu")
    rows = some_rows()[:18]
    asked = Principle()._renderer(Principle().load(config, CPU).tokenizer)
    model: Any = AutoModelForCausalLM.from_pretrained(tiny_principle_base)
    weights = torch.tensor([row.weight for row in rows])
    losses = []
    for row in rows:
        ids = asked.encode(row.prompt, row.response, row.principle).ids
        answer = asked.answers.yes if row.fulfilled else asked.answers.no
        whole = torch.tensor([[*ids, answer]])
        labels = torch.tensor([[-100] * len(ids) + [answer]])
        losses.append(model(input_ids=whole, labels=labels).loss)
    expected = (torch.stack(losses) * weights).sum() / weights.sum()
    expected.backward()  # type: ignore[no-untyped-call]
    grads = {name: p.grad for name, p in model.named_parameters()}
    for together in (1, 2, 8):
        loss, found = gradient(tiny_principle_base, Principle(together=together), config, rows)
        assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
        for name, one in found.items():
            torch.testing.assert_close(one, grads[name], rtol=1e-3, atol=2e-6)


def test_questions_about_one_response_are_computed_together(tiny_principle_base: Path) -> None:
    config = TrainingConfig(str(tiny_principle_base), dtype="float32", device="cpu")
    trainable = Principle().load(config, CPU)
    computed = {}
    for together in (1, 8):
        method = Principle(together=together)
        items = encoded(method, trainable, some_rows()).items
        measured = method.task(trainable, config).measure(trainable, items)
        computed[together] = measured.computed
        assert measured.tokens == sum(item.group.tokens for item in items)
    assert computed[8] < 0.6 * computed[1]


def test_rows_that_cannot_be_used_are_counted(tiny_principle_base: Path) -> None:
    trainable = Principle().load(TrainingConfig(str(tiny_principle_base), device="cpu"), CPU)
    prompt = (Message("user", "q"),)
    rows = [
        PrincipleRow(prompt, "a", "clarity", True),
        PrincipleRow(prompt, "a", "clarity", False),  # the same question, both ways
        PrincipleRow(prompt, "x" * 900, "clarity", False),
        PrincipleRow(prompt, "b", "clarity", False),
    ]
    found = encoded(Principle(), trainable, rows)
    assert len(found) == 1
    assert found.left_out == {"judged both ways": 2, "does not fit": 1}
    assert found.first_fault == f"row 1 ({ids.response_id(ids.prompt_id(prompt), 'a')}, clarity): judged both ways"
    with pytest.raises(BadInputError, match="none of the 2 rows"):
        encoded(Principle(), trainable, rows[:2])


class StoppedError(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, LoraConfig(4, 8, dropout=0.3)], ids=["full", "lora"])
def test_resumed_equals_uninterrupted(tiny_principle_base: Path, tmp_path: Path, lora: LoraConfig | None) -> None:
    config = TrainingConfig(
        str(tiny_principle_base), lr=1e-3, batch_size=8, epochs=2, save_every=1, eval_every=2, lora=lora, device="cpu"
    )
    method = Principle()

    def run(folder: Path, *, stop: int | None = None, resume: bool = False) -> Any:
        folder.mkdir(exist_ok=True)
        trainable = method.load(config, CPU)
        data = encoded(method, trainable, some_rows())
        done = 0

        def advance(_: int) -> None:
            nonlocal done
            done += 1
            if done == stop:
                raise StoppedError

        train(
            trainable,
            method.task(trainable, config),
            data,
            config,
            folder,
            eval_data=data,
            resume=resume,
            advance=advance,
        )
        rows = [(row["kind"], row["step"], row["loss"], row["accuracy"], row["nll"]) for row in read_metrics(folder)]
        return {name: p.detach().clone() for name, p in trainable.model.named_parameters()}, rows

    expected = run(tmp_path / "whole")
    with pytest.raises(StoppedError):
        run(tmp_path / "broken", stop=3)
    torch.manual_seed(99)
    found = run(tmp_path / "broken", resume=True)
    assert found[1] == expected[1]
    assert all(torch.equal(found[0][name], expected[0][name]) for name in expected[0])


@pytest.mark.parametrize("lora", [0, 4])
def test_trained_by_command_evaluated_by_cell_saved_and_scored(
    tiny_principle_base: Path, workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str], lora: int
) -> None:
    data = tmp_path / "rows.jsonl"
    write_principle_rows(data, some_rows())
    arguments = ["--data", str(data), "--base", str(tiny_principle_base), "--name", "judge", "--lr", "1e-3"]
    arguments += ["--holdout-prompts", "0.2", "--holdout-principles", "0.3", "--dtype", "float32", "--epochs", "2"]
    with pytest.raises(SystemExit) as ended:
        main(["train", "principle", *arguments, "--lora", str(lora), "--json", "-w", str(workspace.root)])
    out, err = capsys.readouterr()
    assert not ended.value.code, err
    told = json.loads(out)
    assert told["parity"] == "passed"
    found = told["evaluation"]
    assert {cell["name"] for cell in found["cells"]} == {
        "unseen prompt, seen principle",
        "seen prompt, unseen principle",
        "unseen prompt, unseen principle",
    }
    assert sum(cell["rows"] for cell in found["cells"]) == found["scored"]
    rates = {rate["principle"]: (rate["rows"], rate["yes"]) for rate in told["rows"]["principles"]}
    assert sum(rows for rows, _ in rates.values()) == told["rows"]["rows"]
    assert len(rates) == 7 - 2
    assert found["rows"] + told["rows"]["rows"] == len(some_rows())

    folder = Path(told["path"])
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    assert (spec.kind, spec.principles, spec.question) == ("principle", True, Principle().question)
    assert set(spec.trained_principles) == set(rates)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)  # a stock checkpoint: no adapter, nothing missing
    scorer = open_scorer(ModelConfig("judge", device="cpu"), workspace=workspace.root)
    assert isinstance(scorer, PrincipleScorer)
    assert scorer.info.trained_principles == spec.trained_principles
    item = ScoreItem((Message("user", "Question 3?"),), "Yes.", "Be brief")
    [score] = scorer.score([item])
    assert isinstance(score, Score)
    ids = torch.tensor([scorer.questions.encode(item.prompt, item.response, "Be brief").ids])
    logits = model(input_ids=ids).logits[0, -1].detach().float()
    assert score.reward == pytest.approx(float(logits[spec.yes_token] - logits[spec.no_token]), abs=1e-4)
    assert "log" in (folder / "README.md").read_text()
    items = [json.loads(line) for line in (workspace.runs / told["run_id"] / "items.jsonl").read_text().splitlines()]
    assert len(items) == found["rows"]
    assert all(one["base_rate"] is not None for one in items)


def test_a_method_is_its_payload() -> None:
    method = Principle(holdout_prompts=0.0, together=3)
    assert method_of(json.loads(json.dumps(method_payload(method)))) == method
    with pytest.raises(BadInputError, match="not a training method of this version"):
        method_of({"name": "principle", "colour": 1})
    with pytest.raises(BadInputError, match="together"):
        Principle(together=0)


def test_bases_that_cannot_answer_are_refused(tiny_reward_model: Path) -> None:
    with pytest.raises(BadInputError, match="starts from a language model"):
        Principle().load(TrainingConfig(str(tiny_reward_model)), CPU)
    with pytest.raises(BadInputError, match="one token each"):
        Principle().load(TrainingConfig("tiny"), CPU)
