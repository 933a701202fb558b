"""Encoded data on the disk: the same items and steps, memory that does not grow with the data; kills, full disks."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_origin

import numpy as np
import numpy.typing as npt
import pytest

from assay.compute.stage import abandoned_stages
from assay.data.pairs import pair_of
from assay.data.row_files import RowFile
from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.models.attention.packing import TokenGroup
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.models.parallelism.strategy import SingleProcess
from assay.workspace import Workspace
from assay_rm_training.data.encoded_dataset import EncodedDataset, Tags, tags_of
from assay_rm_training.data.pair_dataset import EncodedPair
from assay_rm_training.data.response_groups import encode_rows
from assay_rm_training.data.stored_dataset import share_datasets, stored_dataset, token_folder
from assay_rm_training.data.token_shards import _ARRAYS, StoredItems, write_items
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.methods.multi_objective import EncodedRating, RatingScale
from assay_rm_training.methods.process_reward import EncodedSteps
from assay_rm_training.training.batch_order import StepPlan
from assay_rm_training.training_config import TrainingConfig


def plain(value: Any) -> Any:
    """Comparable, with types: arrays as lists of their numbers, nan as text."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.tolist())
    if hasattr(value, "__dataclass_fields__"):
        return [type(value), *(plain(getattr(value, name)) for name in value.__dataclass_fields__)]
    if isinstance(value, tuple):
        return [type(value), *map(plain, value)]
    return (type(value), repr(value))


GROUP = TokenGroup(np.array([5, 6], np.int32), (np.array([7], np.int32), np.array([8, 9], np.int32)))
ITEMS: list[list[Any]] = [
    [
        EncodedPair(np.arange(3, dtype=np.int32), np.arange(5, dtype=np.int32), 0.1, 2.5, 2),
        EncodedPair(
            np.arange(2, dtype=np.int32),
            np.arange(1, dtype=np.int32),
            -1e300,
            1.0,
            0,
            0.25,
            True,
            (1, 3),
            Tags("straße", "", "p-1", 4, 5, None),
            (-1.5, float("-inf")),
        ),
        EncodedPair(
            np.array([], np.int32), np.arange(1, dtype=np.int32), 0.0, 1.0, 0, tags=Tags("", "\ud800", "", 0, 0, 0.3)
        ),
    ],
    [
        EncodedRating(GROUP, (1.0, float("nan")), 1.0),
        EncodedRating(GROUP, (), 3.0, RatingScale((0.1, 0.2), (1.0, 1.0))),
    ],
    [EncodedSteps(TokenGroup(GROUP.prefix[:0], GROUP.branches[:1]), (0,), (float("nan"),), 0.0)],
]


@pytest.mark.parametrize("items", ITEMS, ids=lambda items: type(items[0]).__name__)
def test_items_are_read_as_they_were_written(items: list[Any], tmp_path: Path) -> None:
    stored = write_items(tmp_path / "items", iter(items))
    assert [plain(item) for item in stored] == [plain(item) for item in items]
    assert plain(stored[-1]) == plain(items[-1])
    assert len(stored) == len(items)
    with pytest.raises(IndexError):
        stored[len(items)]


class Unknown(NamedTuple):
    rows: list[int]


def test_an_item_without_a_form_is_refused_and_no_items_make_no_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"list\[int\] has no place in token shards"):
        write_items(tmp_path / "items", [Unknown([1])])
    assert write_items(tmp_path / "items", []) == []
    assert not (tmp_path / "items").exists()


def test_the_order_of_items_is_numpys_permutation() -> None:
    plan = StepPlan(1000, TrainingConfig("tiny", batch_size=64, epochs=2, seed=3))
    steps = [plan.batch(step) for step in range(1, plan.total + 1)]
    for epoch in (0, 1):
        order = np.random.default_rng((3, epoch)).permutation(1000).tolist()
        assert [n for step in steps[epoch * 16 : epoch * 16 + 16] for n in step] == order


def pair_file(path: Path, pairs: int) -> Path:
    with path.open("w") as file:
        for n in range(pairs):
            file.write(json.dumps({"prompt": f"question {n}", "chosen": f"good {n}", "rejected": f"bad {n}"}) + "\n")
    return path


def encoded(file: Path, folder: Path) -> EncodedDataset[EncodedPair]:
    method, renderer = BradleyTerry(), Renderer(load_tokenizer("tiny"), max_length=256)
    rows = method.read(None, str(file))
    return stored_dataset(folder, rows, renderer, lambda collect: method.encode(rows, renderer, collect=collect))


def complete_but_for(folder: Path, key: str) -> str:
    summary = json.loads((folder / "dataset.json").read_text())
    del summary[key]
    return json.dumps(summary)


def test_an_interrupted_runs_items_are_used_again_unless_the_rows_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = pair_file(tmp_path / "pairs.jsonl", 20)
    first = encoded(file, tmp_path / "train")
    written = (tmp_path / "train" / "items" / "chosen.tokens").stat()
    again = encoded(file, tmp_path / "train")
    assert "used again, 20 items" in caplog.text
    assert (tmp_path / "train" / "items" / "chosen.tokens").stat() == written
    assert (again.digest, again.left_out, again.truncated) == (first.digest, first.left_out, first.truncated)
    file.write_text(file.read_text().replace("good 7", "fine 7"))
    changed = encoded(file, tmp_path / "train")
    assert changed.digest != first.digest
    assert "encoded again" in caplog.text
    for damaged in ("{}", '{"items": ["items"]}', "[]", '{"ite', complete_but_for(tmp_path / "train", "left_out")):
        (tmp_path / "train" / "dataset.json").write_text(damaged)
        caplog.clear()
        assert encoded(file, tmp_path / "train").digest == changed.digest
        assert caplog.text.count("incomplete or of other data, encoded again") == 1
    plain_items = BradleyTerry().encode(
        BradleyTerry().read(None, str(file)), Renderer(load_tokenizer("tiny"), max_length=256)
    )
    assert [plain(item) for item in changed.items] == [plain(item) for item in plain_items.items]
    assert changed.digest == plain_items.digest


def test_two_runs_of_the_same_settings_have_folders_of_their_own_that_go_at_the_end(workspace: Workspace) -> None:
    with token_folder(workspace, {"a": 1}) as one, token_folder(workspace, {"a": 1}) as two:
        assert one != two
        for folder in (one, two):
            write_items(folder / "train" / "items", ITEMS[0])
    assert not one.exists()
    assert not two.exists()


def test_what_a_failed_run_encoded_stays_for_the_next_one(workspace: Workspace) -> None:
    def run(*, complete: bool) -> None:
        with token_folder(workspace, {}) as folder:
            (folder / "train").mkdir(parents=True, exist_ok=True)
            if complete:
                (folder / "train" / "dataset.json").touch()
            raise BadInputError("diverged")

    for complete in (False, True):
        with pytest.raises(BadInputError, match="diverged"):
            run(complete=complete)
        assert len(list(abandoned_stages(workspace))) == complete


def test_a_full_disk_leaves_nothing_and_names_the_folder(tmp_path: Path) -> None:
    def items() -> Iterator[EncodedPair]:
        yield from ITEMS[0]
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=str(tmp_path)):
        write_items(tmp_path / "items", items())
    assert not (tmp_path / "items").exists()


class Elsewhere(SingleProcess):
    """The second of two processes, on a machine without the first one's files: what the first sends is prepared."""

    rank, world = 1, 2

    def __init__(self, messages: Iterator[Any], main: StoredItems[Any]) -> None:
        self._messages, self._main = messages, main

    def share(self, value: Any) -> Any:
        return next(self._messages)

    def gather(self, value: Any) -> list[Any]:
        return [(("first", "0"), True) if isinstance(value[1], bool) else (None, self._main.folder), value]


def test_a_machine_without_the_files_maps_a_copy_of_its_own(tmp_path: Path) -> None:
    stored = write_items(tmp_path / "items", ITEMS[0])
    assert isinstance(stored, StoredItems)
    names = sorted(os.listdir(stored.folder))

    def messages() -> Iterator[Any]:
        yield [EncodedDataset(stored, {}, 0, "digest"), None]
        yield stored.folder / "absent.mark"
        yield names
        for name in names:
            content = (stored.folder / name).read_bytes()
            yield from (content[start : start + 7] for start in range(0, len(content), 7))
            yield b""

    (tmp_path / "copies").mkdir()
    data, none = share_datasets(None, Elsewhere(messages(), stored), tmp_path / "copies")
    assert none is None
    assert data is not None
    assert isinstance(data.items, StoredItems)
    assert data.items.folder.parent == tmp_path / "copies"
    assert [plain(item) for item in data.items] == [plain(item) for item in ITEMS[0]]


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def peak_of(pairs: int, folder: Path) -> int:
    """Bytes of Python at most while a file of pairs is read, encoded and trained on."""
    rows = RowFile(pair_file(folder / f"{pairs}.jsonl", pairs), lambda row: [pair_of(row)], what="pairs")
    tokens = np.arange(200, dtype=np.int32)

    def encode(row: PreferencePair) -> tuple[EncodedPair, bool]:
        return EncodedPair(tokens.copy(), tokens.copy(), 0.0, 1.0, 100, tags=tags_of(row)), False

    tracemalloc.start()
    try:
        collect = partial(write_items, folder / str(pairs))
        data = encode_rows(rows, encode, unit="pairs", collect=collect)
        plan = StepPlan(len(data), TrainingConfig("tiny", batch_size=16, epochs=1))
        for step in range(1, plan.total + 1):
            assert len([data.items[number].chosen for number in plan.batch(step)]) > 0
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_is_not_proportional_to_the_pairs(tmp_path: Path) -> None:
    few, many = peak_of(500, tmp_path), peak_of(5000, tmp_path)
    assert many - few < 4500 * 60  # an encoded pair in memory: 1,600 bytes of tokens alone


KILLED = """
import os, signal, sys
from pathlib import Path
from test_token_shards import *
def dying(rows):
    for number, row in enumerate(rows):
        if number == 100:
            os.kill(os.getpid(), signal.SIGKILL)
        yield row
method, renderer = BradleyTerry(), Renderer(load_tokenizer("tiny"), max_length=256)
rows = method.read(None, sys.argv[1])
with token_folder(Workspace.open(sys.argv[2]), {}) as folder:
    stored_dataset(
        folder / "train", rows, renderer,
        lambda collect: method.encode(rows, renderer, collect=lambda items: collect(dying(items))),
    )
"""


@pytest.mark.slow
def test_killed_while_encoding_the_next_run_encodes_again(
    workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = pair_file(tmp_path / "pairs.jsonl", 150)
    process = child(KILLED, file, workspace.root)
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    with token_folder(workspace, {}) as folder:
        assert (folder / "train" / "items").is_dir()
        data = encoded(file, folder / "train")
        assert len(data) == 150
        assert "incomplete or of other data, encoded again" in caplog.text
        assert plain(next(islice(data.items, 149, None)).chosen) == plain(data.items[149].chosen)
    assert not folder.exists()


def test_arrays_are_known_whatever_numpy_calls_their_type() -> None:
    """From numpy 2.5 on `NDArray` is a type alias of its own, and no training could encode its rows."""
    assert get_origin(npt.NDArray[np.int32]) in _ARRAYS
