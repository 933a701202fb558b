"""Fixtures shared by the whole suite, the order of its files, and where its temporary folders are."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from assay_command import Run, captured
from empty_workspaces import empty_workspace_folder, new_workspace
from file_order import LONG_FILES
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from rewritten_asserts import rewrite_in_turns

from assay.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# No limits of time: how long an example takes says how busy the machine is. The same examples in every run, so that a
# change is judged by what it changed; more of the same would say little. `--hypothesis-profile explore` draws new ones.
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("assay", derandomize=True, database=None, max_examples=40, **UNTIMED)
settings.register_profile("explore", max_examples=1000, **UNTIMED)
settings.load_profile("assay")
# Hypothesis also draws constants of the modules imported so far: which, depends on the tests that a process ran before.
vars(providers).update(_get_local_constants=lambda: providers._local_constants)

# Requests of tests that say nothing of it wait longer than httpx's 5 s for a server on a busy machine.
vars(httpx._config.DEFAULT_TIMEOUT_CONFIG).update(vars(httpx.Timeout(120.0)))

REPOSITORY = Path(__file__).resolve().parent.parent

#: A file system in memory, for temporary folders: hundreds of tests commit to a store, which waits for the disk.
MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30  #: bytes that must be free there
TEMPORARY = "PYTEST_DEBUG_TEMPROOT"  #: pytest's own variable; one that is set is left alone
#: Where it names a Python, every checkpoint that is saved is compared with vLLM, 20 s of CPU time: for `vllm` tests.
VLLM = "ASSAY_VLLM_PYTHON"
VLLM_PYTHON = os.environ.get(VLLM)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: one process more than cores, for tests wait for servers and browsers a third of their time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + 1


def pytest_configure(config: pytest.Config) -> None:
    """Temporary folders in memory where there is room; pytest-xdist hands files out in the order below."""
    if TEMPORARY not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ[TEMPORARY] = str(MEMORY)
    if hasattr(config.option, "loadscopereorder"):  # its own order is by the number of tests
        config.option.loadscopereorder = False


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What is collected and imported stays to the end: looking for garbage in it is half of the work."""
    gc.disable()
    try:
        rewrite_in_turns(session.config, REPOSITORY / "tests")
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # DuckDB complains of what is left at the end


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; the others, and the tests of one file, stay in their order."""
    place = {name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """vLLM's environment is there for the tests that are marked with it, and for their fixtures."""
    if VLLM_PYTHON is not None and item.get_closest_marker("vllm"):
        os.environ[VLLM] = VLLM_PYTHON
    else:
        os.environ.pop(VLLM, None)


@pytest.fixture(scope="module", autouse=True)
def collected_garbage() -> Iterator[None]:
    """A file's garbage is collected at its end: what complains then (`filterwarnings`) fails a test of this file, not
    one that happens to run later. What is left stays to the end, as what was imported, and is not searched again."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real preference data, $ASSAY_SHARED_DATA or ../shared/data; the test is skipped without it."""
    folder = Path(os.environ.get("ASSAY_SHARED_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}: set ASSAY_SHARED_DATA")
    return folder


@pytest.fixture(scope="session")
def empty_workspace() -> Path:
    """A workspace as it is made, to be copied."""
    return empty_workspace_folder()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A new, empty workspace."""
    return new_workspace(tmp_path / "workspace")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for a file's tests; each opens a profile of its own (`web_pages.opened`).

    Not for the whole run: while it is open, Playwright's event loop counts as running in this thread, and every other
    test's `asyncio.run` is refused.
    """
    from web_pages import chromium

    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def tiny_reward_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder: the tiny model with a new head, saved as a stock classifier with its spec.

    Its base comes from the user's model cache ($ASSAY_CACHE is left alone), so nothing is converted twice.
    """
    import torch

    from assay.models.chat.renderer import Renderer
    from assay.models.loading import load_scalar_model, load_tokenizer
    from assay.models.quiet import quiet_transformers
    from assay.models.spec import RewardModelSpec, weights_digest

    folder = tmp_path_factory.mktemp("models") / "tiny-rm"
    tokenizer = load_tokenizer("tiny")
    model = load_scalar_model("tiny", tokenizer, dtype=torch.float32, device=torch.device("cpu"), new_head=True)
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    RewardModelSpec(
        kind="scalar",
        base="tiny",
        template_hash=Renderer(tokenizer, max_length=512).template_hash,
        trained_length=512,
        version=weights_digest(folder),
        parity="passed",
    ).write(folder)
    return folder


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str]) -> Run:
    """The command: arguments to (exit code, standard output, standard error)."""
    return captured(capsys)


@pytest.fixture(scope="session")
def rule_reward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A composed reward without a model, 1 for at most three words: for tests of servers, of which it asks no torch."""
    file = tmp_path_factory.mktemp("models") / "brief.yaml"
    file.write_text(
        "kind: composed\n"
        "parts: [{name: brief, constraints: [{kind: max_words, limit: 3}], measure: passed}]\n"
        "combine: {kind: weighted_sum, weights: {brief: 1}}\n"
    )
    return file


@pytest.fixture(scope="session")
def tiny_principle_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny language model whose tokenizer has Yes and No, with and without a leading space, as one token each."""
    from assay.models.tiny import make_tiny

    folder = tmp_path_factory.mktemp("models") / "tiny-words"
    folder.mkdir()
    make_tiny(folder, words=("Yes", "No", " Yes", " No"))
    return folder


@pytest.fixture(scope="session")
def tiny_principle_model(tiny_principle_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder of a principle model: the base's own weights, with the spec of one."""
    from assay.models.loading import load_tokenizer
    from assay.models.spec import weights_digest
    from assay_serving.engines.principle import principle_spec

    folder = tmp_path_factory.mktemp("models") / "tiny-principle"
    shutil.copytree(tiny_principle_base, folder)
    spec = principle_spec(str(folder), load_tokenizer(str(folder)))
    replace(spec, trained_length=1024, version=weights_digest(folder), parity="passed").write(folder)
    return folder


@pytest.fixture
def fill_comparisons(workspace: Workspace) -> Callable[[int], list[str]]:
    """Fills the workspace with that many comparisons, labelled by their source, and returns their ids."""

    def fill(number: int) -> list[str]:
        import pyarrow as pa

        from assay.store.intake import pair_schema, store_pairs

        rows = [
            {
                "row": n + 1,
                "messages": [{"role": "user", "content": f"Question {n}?"}],
                "first": f"The better answer to question {n}.",
                "second": f"Another answer to question {n}.",
                "label": "first",
                "source": "filled",
                "record_id": str(n),
            }
            for n in range(number)
        ]
        with workspace.store.unit() as db:
            store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), None)
            found = db.execute("SELECT comparison_id FROM origins ORDER BY record_id::INT").fetchall()
        return [row[0] for row in found]

    return fill


@pytest.fixture(scope="session")
def tiny_judges(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Checkpoint folders of tiny models whose answers end with a verdict line, by format: pairwise (A or B) and
    pointwise (always No). What they decide depends a little on what they read, and means nothing.

    They are trained on the line alone, without attention, so that each token gives the next one; then their attention
    is switched on again, weakly.
    """
    import torch

    from assay.domain import Message
    from assay.models.chat.renderer import Renderer
    from assay.models.spec import RewardModelSpec
    from assay_rm_training.checkpoints.checkpoint import save_checkpoint
    from assay_rm_training.generative.judged_rows import JudgedRow
    from assay_rm_training.generative.sft import GenerativeSft
    from assay_rm_training.training_config import TrainingConfig
    from assay_serving.generative.reader import VerdictReader

    prompt = (Message("user", "Name a metal."),)
    rows = {"pairwise": JudgedRow(prompt, ("gold", "glass"), "A"), "pointwise": JudgedRow(prompt, ("gold",), "No")}
    folders = {}
    for name, labels in (("pairwise", "AB"), ("pointwise", ("No", "No"))):
        method = GenerativeSft(name, max_new_tokens=24)
        trainable = method.load(TrainingConfig("tiny", device="cpu"), torch.device("cpu"))
        outputs = [layer.self_attn.o_proj.weight for layer in trainable.model.model.layers]
        kept = [weight.detach().clone() for weight in outputs]
        for weight in outputs:
            weight.data.zero_()
            weight.requires_grad_(False)
        lines = [f"\n{method.form.final_line(label)}<|im_end|>" for label in labels]
        ids = trainable.tokenizer(lines, return_tensors="pt").input_ids
        optimizer = torch.optim.AdamW(trainable.trainable().values(), lr=1e-2)
        for _ in range(60):
            loss = trainable.model(input_ids=ids, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for weight, old in zip(outputs, kept, strict=True):
            weight.data.copy_(4 * old)
            weight.requires_grad_(True)
        renderer = Renderer(trainable.tokenizer, max_length=2048)
        folders[name] = tmp_path_factory.mktemp("judges") / name
        spec = RewardModelSpec("generative", "tiny", renderer.template_hash, 2048, "unsaved", judging=method.judging)
        sample = method.responses([rows[name]])
        save_checkpoint(trainable, spec, renderer, folders[name], sample=sample, card="", engine=VerdictReader)
    return folders
