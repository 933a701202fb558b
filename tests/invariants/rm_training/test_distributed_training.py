"""Two processes (gloo, on the CPU) train what one process trains: data parallel and FSDP2, with adapters, with
checkpointing, with batches that do not divide, with moments in 8 bit and on the host, resumed (by as many, by one, by
four), and when one of them fails.

`python test_distributed_training.py FOLDER FUNCTION...` forks the two once all that takes long is imported.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from two_processes import PATIENCE_S, error_file, launch

from assay.domain import Message, PreferencePair
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.models.parallelism.distributed import torch_process_group
from assay.models.parallelism.strategy import SingleProcess, parallel_strategy
from assay.models.published_weights import full_tensor
from assay.runs.json_log import read_metrics
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.response_labels import UnpairedResponse
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.methods.grm import Grm
from assay_rm_training.methods.method import Method
from assay_rm_training.methods.odin import Odin
from assay_rm_training.objectives.objective import Objective
from assay_rm_training.preference.pairs import Dpo
from assay_rm_training.preference.unpaired import Kto
from assay_rm_training.training.distributed import begin, divide
from assay_rm_training.training.loop import make_optimizer, train
from assay_rm_training.training.resume_state import load_state
from assay_rm_training.training_config import LoraConfig, TrainingConfig

#: Two processes train all scenarios for all of these tests, more than a minute of CPU time.
pytestmark = pytest.mark.slow

PATH = os.pathsep.join([str(Path(__file__).resolve().parents[2] / "support"), *sys.path])
CPU = torch.device("cpu")
#: 13 pairs in batches of 4 end with one pair for two processes. A start away from zero: no gradient is rounding alone.
BASE = TrainingConfig(
    "tiny",
    lr=1e-3,
    head_lr=1e-3,
    eps=1e-6,
    batch_size=4,
    epochs=2,
    micro_batch_tokens=150,
    dtype="float32",
    device="cpu",
    head_init="normal",
    weight_decay=0.1,
    save_every=2,
    eval_every=3,
)
LORA = LoraConfig(4, 8)
SCENARIOS = {
    "ddp": replace(BASE, parallel="ddp"),
    "fsdp": replace(BASE, parallel="fsdp"),
    "ddp-lora": replace(BASE, parallel="ddp", lora=LORA, keep="best", metric="accuracy"),
    "fsdp-lora-checkpointing": replace(BASE, parallel="fsdp", lora=LORA, gradient_checkpointing=True, keep="best"),
    "fsdp-odin": replace(BASE, parallel="fsdp", batch_size=7, epochs=1),
    "fsdp-ties": replace(BASE, parallel="fsdp", epochs=1),
    "fsdp-dpo": replace(BASE, parallel="fsdp", epochs=1),
    "fsdp-grm": replace(BASE, parallel="fsdp", epochs=1),
    "ddp-kto": replace(BASE, parallel="ddp", batch_size=7, epochs=1, eval_every=0),
}
#: Where it is not Bradley-Terry alone: a second head and a term of the whole batch; one number beside the model; a
#: language model with a reference, a reward model with one, and a term of the whole batch (whose evaluations take it
#: from each pass).
METHODS: dict[str, Method] = {
    "fsdp-odin": Odin(),
    "fsdp-ties": BradleyTerry(Objective("rao_kupper")),
    "fsdp-dpo": Dpo(),
    "fsdp-grm": Grm(text="dpo", share=0.5),
    "ddp-kto": Kto(),
}
#: Without another process's numbers to compare with: a share's blocks are its own.
OPTIMIZERS: dict[str, TrainingConfig] = {
    f"fsdp-{name}": replace(SCENARIOS["fsdp"], optimizer=name) for name in ("adamw_8bit", "adamw_offloaded")
}
#: What two processes do, or four, in functions of this file.
TOGETHER = {
    **dict.fromkeys(("every_scenario", "killed_writing", "resumed_after_the_kill", "unseen_folder", "one_fails"), 2),
    "restored_by_four": 4,
}


class StoppedError(Exception):
    """A process that ends on its own account."""


def encoded(method: Any, count: int = 13) -> EncodedDataset[Any]:
    rows: list[Any] = [
        PreferencePair(
            (Message("user", f"number {i}"),),
            f"{'so ' * (i % 5)}{i} it is",
            f"{i * 7} {'no ' * (i % 3)}",
            weight=1.0 + i % 3,
            source="ab"[i % 2],
        )
        for i in range(count)
    ]
    if isinstance(method, Kto):
        rows = [
            UnpairedResponse(pair.prompt, response, good, pair.weight)
            for pair in rows
            for response, good in ((pair.chosen, True), (pair.rejected, False))
        ]
    data: EncodedDataset[Any] = method.encode(rows, Renderer(load_tokenizer("tiny"), max_length=256))
    return data


def run(
    name: str, folder: Path, parallel: SingleProcess, *, resume: bool = False, stop_after: int = 0
) -> dict[str, torch.Tensor]:
    """Train a scenario; the first process's whole weights."""
    config, method = (SCENARIOS | OPTIMIZERS)[name], METHODS.get(name) or BradleyTerry()
    with parallel.loading():
        trainable = method.load(config, CPU)
    data, _ = begin(trainable, method, config, (encoded(method), None), parallel)
    made = 0

    def advance(steps: int) -> None:
        nonlocal made
        made += steps
        if stop_after and made >= stop_after:
            raise StoppedError(f"stopped after {made} steps")

    task = method.task(trainable, config)
    held = data if config.eval_every else None
    train(trainable, task, data, config, folder, eval_data=held, resume=resume, parallel=parallel, advance=advance)
    return {name: full_tensor(p).clone() for name, p in trainable.model.named_parameters()}


def every_scenario(folder: Path) -> None:
    """Each scenario from beginning to end, then again from the state of one process; one scenario is cut off."""
    with torch_process_group() as group:
        for name, config in SCENARIOS.items():
            parallel = parallel_strategy(config.parallel, group, CPU)
            for kind, resume in (("whole", False), ("resumed", True)):
                weights = run(name, folder / name / kind, parallel, resume=resume)
                if parallel.main:
                    torch.save(weights, folder / name / kind / "weights.pt")
        with contextlib.suppress(StoppedError):  # in both, after the same step
            parallel = parallel_strategy("fsdp", group, CPU)
            run("fsdp", folder / "fsdp" / "cut", parallel, stop_after=5)
        if group.rank == 0:
            for copy in ("cut-too", "cut-for-four"):
                shutil.copytree(folder / "fsdp" / "cut", folder / "fsdp" / copy)
        for name in OPTIMIZERS:
            weights = run(name, folder / name / "whole", parallel)
            with contextlib.suppress(StoppedError):
                run(name, folder / name / "cut", parallel, stop_after=5)
            resumed = run(name, folder / name / "cut", parallel, resume=True)
            if parallel.main:
                torch.save([weights, resumed], folder / f"{name}.pt")


def restored(folder: Path, parallel: SingleProcess) -> dict[str, torch.Tensor]:
    """Weights and moments of a state, whole."""
    config = SCENARIOS["fsdp"]
    with parallel.loading():
        trainable = BradleyTerry().load(config, CPU)
    divide(trainable, parallel)
    optimizer = make_optimizer(trainable, config)
    load_state(folder, trainable.trainable(), optimizer, belongs_to={}, parallel=parallel)
    states = optimizer.state_dict()["state"]
    moments = {f"{number} {key}": full_tensor(value) for number in states for key, value in states[number].items()}
    return moments | {name: full_tensor(p).clone() for name, p in trainable.trainable().items()}


def restored_by_four(folder: Path) -> None:
    with torch_process_group() as group:
        tensors = restored(folder / "fsdp" / "cut-for-four", parallel_strategy("fsdp", group, CPU))
        torch.save(tensors, folder / f"restored-{group.rank}.pt")


def killed_writing(folder: Path) -> None:
    """The second process is killed when half of its share of the state of step 4 is on the disk."""
    with torch_process_group() as group, pytest.MonkeyPatch.context() as patch:
        if group.rank:
            patch.setattr(FileSystemWriter, "write_data", killed_at_the_second(FileSystemWriter.write_data))
        run("fsdp-adamw_8bit", folder / "fsdp" / "killed", parallel_strategy("fsdp", group, CPU))


def killed_at_the_second(write: Callable[..., Any]) -> Callable[..., Any]:
    """At the second state, which is of step 4."""
    written: list[Path] = []

    def write_data(self: FileSystemWriter, plan: Any, planner: Any) -> Any:
        result = write(self, plan, planner)
        written.append(Path(self.path))
        if len(written) == 2:
            share = next(written[-1].glob("__1_*"))
            os.truncate(share, share.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return write_data


def resumed_after_the_kill(folder: Path) -> None:
    """Two processes go on from what the killed ones left, and from what two left that stopped."""
    with torch_process_group() as group:
        parallel = parallel_strategy("fsdp", group, CPU)
        for name, scenario in (("killed", "fsdp-adamw_8bit"), ("cut-too", "fsdp")):
            weights = run(scenario, folder / "fsdp" / name, parallel, resume=True)
            if parallel.main:
                torch.save(weights, folder / "fsdp" / name / "weights.pt")


def unseen_folder(folder: Path) -> None:
    """As on a machine that the first one shares no disk with."""
    with torch_process_group() as group, pytest.MonkeyPatch.context() as patch:
        if group.rank:
            patch.setattr(Path, "is_dir", lambda self: False)
        with contextlib.suppress(StoppedError):
            run("fsdp", folder / "fsdp" / "unseen", parallel_strategy("fsdp", group, CPU), stop_after=5)
        eight = folder / "fsdp-adamw_8bit" / "unseen"  # whole moments in 8 bit would be read as other numbers
        with pytest.raises(BadInputError, match="every process must see the run's folder; or use adamw"):
            run("fsdp-adamw_8bit", eight, parallel_strategy("fsdp", group, CPU), stop_after=5)


def one_fails(folder: Path) -> None:
    """The second process fails in the middle of the run."""
    with torch_process_group() as group:
        (folder / "fails").mkdir(exist_ok=True)
        run("ddp", folder / "fails", parallel_strategy("ddp", group, CPU), stop_after=2 * group.rank)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[tuple[int, str]]]]:
    """Every scenario by one process; then by two, whole and resumed from what one had saved. Exit codes and standard
    error of the two, also where one of them fails."""
    folder = tmp_path_factory.mktemp("two")
    for name in OPTIMIZERS:
        for kind in ("whole", "cut", "unseen"):
            (folder / name / kind).mkdir(parents=True)
    for name in SCENARIOS:
        for kind in ("whole", "resumed", "one", "cut", "killed", "unseen"):
            (folder / name / kind).mkdir(parents=True)
        torch.save(run(name, folder / name / "one", SingleProcess()), folder / name / "one" / "weights.pt")
        with pytest.raises(StoppedError):
            run(name, folder / name / "resumed", SingleProcess(), stop_after=2 if name in METHODS else 5)
    command = [sys.executable, __file__, str(folder), *TOGETHER]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": PATH}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return folder, {
        name: [(code, error_file(folder, name, rank).read_text()) for rank, code in enumerate(codes)]
        for name, codes in json.loads(done.stdout).items()
    }


@pytest.fixture(scope="module")
def trained(ended: tuple[Path, dict[str, list[tuple[int, str]]]]) -> Path:
    for code, error in ended[1]["every_scenario"]:
        assert code == 0, error
    return ended[0]


@pytest.mark.parametrize("kind", ["whole", "resumed"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_two_processes_train_what_one_trains(name: str, kind: str, trained: Path) -> None:
    one, two = (torch.load(trained / name / which / "weights.pt") for which in ("one", kind))
    assert one.keys() == two.keys()
    for weight, value in one.items():
        assert torch.allclose(two[weight], value, atol=2e-5), (weight, float((two[weight] - value).abs().max()))


@pytest.mark.parametrize("name", SCENARIOS)
def test_they_measure_what_one_measures(name: str, trained: Path) -> None:
    one, two, resumed = (read_metrics(trained / name / which) for which in ("one", "whole", "resumed"))
    assert [(row["kind"], row["step"]) for row in two] == [(row["kind"], row["step"]) for row in one]
    assert [(row["kind"], row["step"]) for row in resumed] == [(row["kind"], row["step"]) for row in one]
    for expected, found in zip(one, two, strict=True):
        for figure in ("loss", "accuracy", "margin", "grad_norm", "tokens", "items", "chosen_std", "nll", "ece"):
            assert (figure in found) == (figure in expected)
            if figure in expected:
                assert found[figure] == pytest.approx(expected[figure], rel=1e-3, abs=1e-4), figure
        parts = [(part["by"], part["name"], part["pairs"]) for part in found.get("slices", ())]
        assert parts == [(part["by"], part["name"], part["pairs"]) for part in expected.get("slices", ())]


@pytest.mark.parametrize("name", ["cut", "unseen"])
def test_one_process_resumes_with_what_two_saved(name: str, trained: Path) -> None:
    assert bool([*(trained / "fsdp" / name).glob("state-*")]) == (name == "cut")  # else it is in one file
    found = run("fsdp", trained / "fsdp" / name, SingleProcess(), resume=True)
    expected = torch.load(trained / "fsdp" / "one" / "weights.pt")
    assert all(torch.allclose(found[name], value, atol=2e-5) for name, value in expected.items())
    rows = read_metrics(trained / "fsdp" / name)
    assert [row["step"] for row in rows if row["kind"] == "train"] == [*range(1, 9)]
    assert not [*(trained / "fsdp" / name).glob("state-*")]  # its own state is whole


@pytest.mark.parametrize("name", ["cut-too", "killed"])
def test_two_processes_resume_from_their_shares_to_the_last_bit(name: str, trained: Path) -> None:
    """Also where one was killed in the middle of its share of the next state: the last one is there."""
    folder = trained / "fsdp"
    found = torch.load(folder / name / "weights.pt")
    if name == "killed":
        expected = torch.load(trained / "fsdp-adamw_8bit.pt")[0]
    else:
        expected = torch.load(folder / "whole" / "weights.pt")
    assert all(torch.equal(found[weight], value) for weight, value in expected.items())
    assert [row["step"] for row in read_metrics(folder / name) if row["kind"] == "train"] == [*range(1, 9)]
    [shares] = folder.joinpath(name).glob("state-*")  # earlier ones and the unfinished one are gone
    assert shares.name == torch.load(folder / name / "state.pt")["shards"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_other_optimisers_resume_from_their_shares_to_the_last_bit(name: str, trained: Path) -> None:
    whole, resumed = torch.load(trained / f"{name}.pt")
    adamw = torch.load(trained / "fsdp" / "whole" / "weights.pt")
    assert all(torch.equal(resumed[weight], value) for weight, value in whole.items())
    start = dict(BradleyTerry().load(BASE, CPU).model.named_parameters())
    distance = max(float((whole[weight] - value).abs().max()) for weight, value in adamw.items())
    moved = max(float((start[weight] - value).abs().max()) for weight, value in adamw.items())
    assert (0 < distance < 0.3 * moved) if name == "fsdp-adamw_8bit" else distance == 0


def test_moments_in_8_bit_are_not_read_by_another_number(trained: Path) -> None:
    with pytest.raises(BadInputError, match="8 bit are read by as many processes as wrote them"):
        run("fsdp-adamw_8bit", trained / "fsdp-adamw_8bit" / "cut", SingleProcess(), resume=True)


def test_four_processes_and_one_read_the_weights_and_moments_that_two_wrote(
    ended: tuple[Path, dict[str, list[tuple[int, str]]]],
) -> None:
    folder, outcomes = ended
    assert [code for code, _ in outcomes["restored_by_four"]] == [0] * 4, outcomes["restored_by_four"]
    one = restored(folder / "fsdp" / "cut-for-four", SingleProcess())
    assert any(name.endswith("exp_avg_sq") and bool(tensor.any()) for name, tensor in one.items())
    for rank in range(4):
        four = torch.load(folder / f"restored-{rank}.pt")
        assert four.keys() == one.keys()
        assert all(torch.equal(four[name], tensor) for name, tensor in one.items())


def test_the_killed_process_was_writing(ended: tuple[Path, dict[str, list[tuple[int, str]]]]) -> None:
    [(first, message), (second, _)] = ended[1]["killed_writing"]
    assert (first != 0, second) == (True, -signal.SIGKILL)
    assert "a process ended without an error message" in message


def test_a_damaged_share_is_one_line(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "fsdp" / "cut-too", tmp_path / "run")
    share = next((tmp_path / "run").glob("state-*/__1_*"))
    share.write_bytes(share.read_bytes()[:1000])
    with pytest.raises(BadInputError, match=r"state-.*not a readable state"):
        run("fsdp", tmp_path / "run", SingleProcess(), resume=True)
    index = share.parent / ".metadata"
    index.write_bytes(pickle.dumps(os.getcwd))
    with pytest.raises(BadInputError, match=r"an index of tensors does not name posix\.getcwd"):
        run("fsdp", tmp_path / "run", SingleProcess(), resume=True)


def test_one_that_fails_ends_both_with_its_message(ended: tuple[Path, dict[str, list[tuple[int, str]]]]) -> None:
    first, second = ended[1]["one_fails"]
    assert first[0] != 0
    assert "process 1 of the training failed: StoppedError: stopped after 2 steps" in first[1]
    assert second[0] != 0
    assert "StoppedError" in second[1]


if __name__ == "__main__":
    torch.set_num_threads(1)
    BradleyTerry().load(BASE, CPU)  # it imports what loading a model takes
    importlib.import_module("torch.distributed.fsdp")
    names = sys.argv[2:]
    print(json.dumps({name: launch(name, globals()[name], Path(sys.argv[1]), TOGETHER[name]) for name in names}))
