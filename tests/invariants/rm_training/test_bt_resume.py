"""A resumed training is the uninterrupted one, bit for bit on a CPU: after an exception, and after kill -9."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.domain import Message, PreferencePair
from assay.errors import BadInputError, NotFoundError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.runs.json_log import read_metrics
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.pair_dataset import EncodedPair, encode_pairs
from assay_rm_training.methods.bradley_terry import PairTask
from assay_rm_training.model.trainable_model import TrainableModel, load_trainable
from assay_rm_training.objectives.objective import Objective
from assay_rm_training.training.loop import train
from assay_rm_training.training.resume_state import FILE
from assay_rm_training.training_config import LoraConfig, TrainingConfig

CPU = torch.device("cpu")
KINDS = {
    "full": TrainingConfig("tiny", lr=1e-3, batch_size=8, epochs=2, save_every=1, eval_every=2, device="cpu"),
    "lora": TrainingConfig("tiny", lr=1e-2, batch_size=8, epochs=2, save_every=1, lora=LoraConfig(4, 8, dropout=0.3)),
}


#: A process that trains and waits in its third step to be killed.
def fit(
    trainable: TrainableModel, data: EncodedDataset[EncodedPair], chosen: TrainingConfig, folder: Path, **options: Any
) -> Any:
    return train(trainable, PairTask(trainable, chosen, Objective()), data, chosen, folder, **options)


def some_pairs() -> EncodedDataset[EncodedPair]:
    pairs = [
        PreferencePair((Message("user", f"number {i}"),), f"{'so ' * (i % 5)}{i} it is", f"{i * 7} {'no ' * (i % 3)}")
        for i in range(24)
    ]
    return encode_pairs(pairs, Renderer(load_tokenizer("tiny"), max_length=256))


def is_measured_by_the_clock(name: str) -> bool:
    return name.startswith(("seconds", "peak_")) or name.endswith("_per_s")


class StoppedError(Exception):
    pass


def interrupt_after(steps: int) -> Any:
    done = 0

    def advance(_: int) -> None:
        nonlocal done
        done += 1
        if done == steps:
            raise StoppedError

    return advance


def outcome(
    config: TrainingConfig, folder: Path, *, resume: bool
) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    trainable = load_trainable(config, CPU)
    fit(trainable, some_pairs(), config, folder, eval_data=some_pairs(), resume=resume)
    rows = [{k: v for k, v in row.items() if not is_measured_by_the_clock(k)} for row in read_metrics(folder)]
    return {name: p.detach().clone() for name, p in trainable.model.named_parameters()}, rows


def assert_same(found: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    assert found[1] == expected[1]
    assert found[0].keys() == expected[0].keys()
    assert all(torch.equal(found[0][name], expected[0][name]) for name in expected[0])


@pytest.mark.parametrize("kind", KINDS)
# In the first epoch, at its end, in the second.
@pytest.mark.parametrize("stop", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(5, marks=pytest.mark.slow)])
def test_resumed_equals_uninterrupted(kind: str, stop: int, tmp_path: Path) -> None:
    config = KINDS[kind]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    expected = outcome(config, whole, resume=False)
    assert [row["step"] for row in expected[1] if row["kind"] == "train"] == [1, 2, 3, 4, 5, 6]
    trainable = load_trainable(config, CPU)
    with pytest.raises(StoppedError):
        fit(trainable, some_pairs(), config, broken, eval_data=some_pairs(), advance=interrupt_after(stop))
    torch.manual_seed(99)  # the process that goes on has another random state
    assert_same(outcome(config, broken, resume=True), expected)


def test_resumed_after_steps_that_were_never_saved(tmp_path: Path) -> None:
    """Killed between two saves: the lines past the saved state are measured again, not doubled."""
    config = TrainingConfig("tiny", lr=1e-3, batch_size=8, epochs=2, save_every=2, device="cpu")
    (tmp_path / "whole").mkdir()
    expected = outcome(config, tmp_path / "whole", resume=False)
    with pytest.raises(StoppedError):
        fit(load_trainable(config, CPU), some_pairs(), config, tmp_path, advance=interrupt_after(3))
    assert [row["step"] for row in read_metrics(tmp_path)] == [1, 2, 3]
    found = outcome(config, tmp_path, resume=True)
    assert_same((found[0], found[1]), expected)


def test_resumed_after_kill_9(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    expected = outcome(KINDS["full"], whole, resume=False)
    steps = itertools.count(1)

    def kill(_: object) -> None:
        if next(steps) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    if (victim := os.fork()) == 0:
        try:
            model = load_trainable(KINDS["full"], CPU)
            fit(model, some_pairs(), KINDS["full"], broken, eval_data=some_pairs(), advance=kill)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(victim, 0)[1]) == signal.SIGKILL
    assert (broken / FILE).is_file()
    assert max(row["step"] for row in read_metrics(broken)) == 3
    assert_same(outcome(KINDS["full"], broken, resume=True), expected)


def test_a_state_of_other_data_or_another_configuration_is_refused(tmp_path: Path) -> None:
    config = KINDS["full"]
    outcome(config, tmp_path, resume=False)
    other = some_pairs()
    other = EncodedDataset(other.items[:-1], other.left_out, other.truncated, "another digest")
    with pytest.raises(BadInputError, match="another data"):
        fit(load_trainable(config, CPU), other, config, tmp_path, resume=True)
    changed = TrainingConfig.from_dict({**config.to_dict(), "lr": 5e-4})
    with pytest.raises(BadInputError, match="another configuration"):
        fit(load_trainable(changed, CPU), some_pairs(), changed, tmp_path, resume=True)
    (tmp_path / FILE).write_bytes(b"broken")
    with pytest.raises(BadInputError, match="not a training state"):
        fit(load_trainable(config, CPU), some_pairs(), config, tmp_path, resume=True)
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    with pytest.raises(NotFoundError, match="before its first save"):
        fit(load_trainable(config, CPU), some_pairs(), config, tmp_path, resume=True)


def test_a_finished_state_gives_the_finished_model(tmp_path: Path) -> None:
    first = outcome(KINDS["full"], tmp_path, resume=False)
    assert_same(outcome(KINDS["full"], tmp_path, resume=True), first)
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 6
