"""Two processes (gloo, on the CPU) load a policy, its reference, teacher and critic and a reward model by shares: the
weights that one process loads, bit for bit, without the memory of the whole; measure references before training,
publish merged weights, save the reward model, and write and read checkpoints without it.

`python test_divided_loading.py FOLDER FUNCTION...` forks the two once all that takes long is imported.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
from ctypes import CDLL
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig, LlamaForCausalLM
from two_processes import PATIENCE_S, error_file, launch

from assay.domain import Message, PreferencePair
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.models.parallelism.distributed import torch_process_group
from assay.models.parallelism.strategy import SingleProcess, parallel_strategy
from assay.models.published_weights import full_tensor, merged_weights, write_model
from assay.models.spec import RewardModelSpec
from assay.models.unread_weights import source_of
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.critics.value_model import ValueCritic, ValueModel
from assay_policy_training.plugins.prompts.gain_rl import measure_angles
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.training.loop import PolicyLoop
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.response_labels import UnpairedResponse
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.methods.grm import Grm
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.preference.critique import Cloud
from assay_rm_training.preference.pairs import Dpo
from assay_rm_training.preference.unpaired import Kto
from assay_rm_training.training import written_weights
from assay_rm_training.training.distributed import Saving, begin, write_together
from assay_rm_training.training_config import LoraConfig, TrainingConfig
from assay_serving.scorer import ScoreItem

PATH = os.pathsep.join([str(Path(__file__).resolve().parents[2] / "support"), *sys.path])
CPU = torch.device("cpu")
TOGETHER = ("weights", "memory")
DTYPES = (torch.float32, torch.bfloat16)
LORA = LoraConfig(4, 8)


def save_base(folder: Path, hidden: int, layers: int) -> int:
    """A model with random weights, whose tied embeddings are small beside its layers; returns its bytes in float32."""
    tokenizer = load_tokenizer("tiny")
    sizes: dict[str, Any] = {"hidden_size": hidden, "intermediate_size": 3 * hidden, "num_hidden_layers": layers}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
    torch.manual_seed(0)
    config = LlamaConfig(**sizes, **heads, vocab_size=len(tokenizer), tie_word_embeddings=True)
    model = LlamaForCausalLM(config)
    write_model(model, folder, dtype=torch.bfloat16, shard_bytes=2**22)
    tokenizer.save_pretrained(folder)
    return sum(p.numel() * 4 for p in model.parameters())


def load_policy(base: Path, parallel: SingleProcess, *, lora: bool) -> Policy:
    torch.manual_seed(7)  # of new adapters
    with parallel.loading():
        policy = Policy(
            str(base),
            device=CPU,
            max_prompt_tokens=64,
            with_reference=True,
            lora=Lora(rank=4 if lora else 0),
            teacher=None if lora else str(base),
        )
    for name, parameter in policy.trainable().items():
        if "lora_B" in name:  # else the adapter adds nothing
            torch.nn.init.normal_(parameter, std=0.05)
    policy.divide(parallel)
    return policy


def load_reward_model(base: Path, parallel: SingleProcess, lora: LoraConfig | None = None) -> TrainableModel:
    config = TrainingConfig(base=str(base), device="cpu", dtype="float32", head_init="stock", lora=lora, seed=3)
    with parallel.loading():
        trainable = BradleyTerry().load(config, CPU)
    assert (parallel.world > 1) == any(source_of(weight) is not None for weight in trainable.model.parameters())
    torch.manual_seed(11)
    for name, parameter in trainable.trainable().items():
        if "lora_B" in name:  # else the adapter adds nothing
            torch.nn.init.normal_(parameter, std=0.05)
    parallel.prepare(trainable)
    return trainable


def save_reward_model(
    trainable: TrainableModel, folder: Path, dtype: torch.dtype, parallel: SingleProcess
) -> list[Any]:
    template = Renderer(trainable.tokenizer, max_length=64).template_hash
    spec = RewardModelSpec("scalar", trainable.base, template, 64, "unsaved")
    sample = [ScoreItem((Message("user", "Hi"),), response) for response in ("Hello!", "No.")]
    saving = Saving(spec, sample, 64, dtype) if parallel.main else None
    return write_together(trainable, BradleyTerry(), saving, folder, parallel)


def prepared(base: Path, method: Dpo | Kto | Grm | Cloud, parallel: SingleProcess) -> EncodedDataset[Any]:
    """Data of the method, with what is measured or written by models before training."""
    config = TrainingConfig(base=str(base), device="cpu", dtype="float32", micro_batch_tokens=150)
    with parallel.loading():
        trainable = method.load(config, CPU)
    rows: list[Any] = [
        PreferencePair((Message("user", f"number {n}"),), f"{'so ' * (n % 5)}{n} it is", f"{n * 7} {'no ' * (n % 3)}")
        for n in range(11)
    ]
    if isinstance(method, Kto):
        rows = [UnpairedResponse(pair.prompt, pair.chosen, n % 2 == 0) for n, pair in enumerate(rows)]
    data: EncodedDataset[Any] = method.encode(rows, Renderer(trainable.tokenizer, max_length=256))
    return begin(trainable, method, config, (data, None) if parallel.main else None, parallel)[0]


def references(base: Path, parallel: SingleProcess) -> dict[str, torch.Tensor]:
    """Log-probs of responses, by method; and the tokens of written critiques."""
    methods: dict[str, Dpo | Kto | Grm] = {"dpo": Dpo(), "kto": Kto(), "grm": Grm(text="dpo")}
    methods["dpo of another"] = Dpo(reference="tiny")
    measured = {name: prepared(base, method, parallel).items for name, method in methods.items()}
    found = {name: torch.tensor([item.reference for item in items]) for name, items in measured.items()}
    written = [
        ids for item in prepared(base, Cloud(max_new_tokens=5), parallel).items for ids in item.group.sequences()
    ]
    return found | {"critiques": torch.tensor(np.concatenate(written))}


def loaded(base: Path, parallel: SingleProcess) -> dict[str, dict[str, torch.Tensor]]:
    """Weights by name, of each model."""
    adapted, full = (load_policy(base, parallel, lora=lora) for lora in (True, False))
    models = {"adapted": adapted.model, "policy": full.model, "reference": full._reference}
    models |= {"teacher": full._teacher, "critic": ValueModel().open(full).model}
    models["reward model"] = load_reward_model(base, parallel).model
    weights = {
        name: {key: full_tensor(weight) for key, weight in model.named_parameters()}
        | {key: buffer.detach() for key, buffer in model.named_buffers()}
        for name, model in models.items()
    }
    angles = measure_angles(full, [PromptItem((Message("user", "Name three colours."),))])
    weights["angles of prompts"] = {"first": torch.tensor(astuple(angles[0]))}
    return weights | {"merged": dict(merged_weights(adapted.model))}


def weights(folder: Path) -> None:
    with torch_process_group() as group:
        parallel = parallel_strategy("fsdp", group, CPU)
        found = loaded(folder / "small", parallel)
        policy = load_policy(folder / "small", parallel, lora=True)
        policy.write_weights(folder / "written")
        assert all(isinstance(weight, DTensor) for weight in policy.model.parameters())
        for dtype in DTYPES:
            trainable = load_reward_model(folder / "small", parallel, LORA)
            scores = save_reward_model(trainable, folder / f"rewards-{dtype}", dtype, parallel)
            (folder / f"scores-{dtype}-{group.rank}.json").write_text(json.dumps([score.reward for score in scores]))
        torch.save(found, folder / f"weights-{group.rank}.pt")
        torch.save(references(folder / "small", parallel), folder / f"references-{group.rank}.pt")


def memory(folder: Path) -> None:
    """Growth of resident memory at its highest, bytes: of loading a policy and writing it, of saving a reward model, of
    loading a policy and measuring its reference (itself; another model), and as `checkpoint_growth`."""
    CDLL(None).mallopt(-3, 2**17)  # M_MMAP_THRESHOLD: memory that is freed is given back
    with torch_process_group() as group:
        parallel = parallel_strategy("fsdp", group, CPU)
        load_policy(folder / "small", parallel, lora=True).write_weights(folder / f"warm-{group.rank}")
        growth = []
        before = resident("VmRSS")
        policy = load_policy(folder / "large", parallel, lora=True)
        growth.append(resident("VmHWM") - before)
        before = resident("VmRSS")
        write_model(policy.model, folder / "published", main=parallel.main, shard_bytes=2**22)
        growth.append(resident("VmHWM") - before)
        del policy
        gc.collect()
        trainable = load_reward_model(folder / "large", parallel, LORA)
        before = resident("VmRSS")
        with pytest.MonkeyPatch.context() as patch:  # a file of it is in memory at once
            patch.setattr(written_weights, "write_model", partial(write_model, shard_bytes=2**22))
            save_reward_model(trainable, folder / "saved", torch.float32, parallel)
        growth.append(resident("VmHWM") - before)
        del trainable
        gc.collect()
        for method in (Dpo(), Dpo(reference=str(folder / "large"))):
            before = resident("VmRSS")
            prepared(folder / "large", method, parallel)
            growth.append(resident("VmHWM") - before)
            gc.collect()
        for size in ("small", "large"):  # the first to warm up
            growth = growth[:5] + checkpoint_growth(folder / size, parallel)
            gc.collect()
        (folder / f"memory-{group.rank}.json").write_text(json.dumps(growth))


def checkpoint_growth(base: Path, parallel: SingleProcess) -> list[int]:
    """Of opening a critic, of writing a checkpoint with it, of reading that."""
    recipe, growth = load_recipe("ppo"), []
    items = [PromptItem((Message("user", "Hi"),))]
    with parallel.loading():
        policy = Policy(str(base), device=CPU, max_prompt_tokens=64, with_reference=True)
    policy.divide(parallel)
    before = resident("VmRSS")
    trainer = PolicyLoop(recipe, policy, recipe.source.open(items, seed=0, policy=policy), [], base)
    growth.append(resident("VmHWM") - before)
    assert isinstance(trainer.critic, ValueCritic)
    optimisers = trainer.optimiser, trainer.critic.optimiser
    for optimiser in optimisers:
        for parameter in (p for group in optimiser.param_groups for p in group["params"]):
            parameter.grad = torch.ones_like(parameter)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    trainer.step = 1
    for act in (trainer.save_checkpoint, trainer.resume):
        before = resident("VmRSS")
        act()
        growth.append(resident("VmHWM") - before)
        for optimiser in optimisers:
            optimiser.state.clear()
    return growth


def resident(name: str) -> int:
    """Bytes; the highest counts from here on when the present ones are read."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    if name == "VmRSS":
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    folder = tmp_path_factory.mktemp("divided")
    save_base(folder / "small", 64, 3)
    size = save_base(folder / "large", 400, 24)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": PATH}
    command = [sys.executable, __file__, str(folder), *TOGETHER]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    for name, codes in json.loads(done.stdout).items():
        for rank, code in enumerate(codes):
            assert code == 0, error_file(folder, name, rank).read_text()
    return folder, size


@pytest.mark.slow
def test_shares_are_of_the_weights_that_one_process_loads(ended: tuple[Path, int]) -> None:
    folder = ended[0]
    expected = loaded(folder / "small", SingleProcess())
    for rank in range(2):
        found = torch.load(folder / f"weights-{rank}.pt")
        assert found.keys() == expected.keys()
        for model, tensors in expected.items():
            assert found[model].keys() == tensors.keys()
            for name, tensor in tensors.items():
                assert torch.equal(found[model][name], tensor), name


@pytest.mark.slow
def test_references_are_those_of_one_process(ended: tuple[Path, int]) -> None:
    expected = references(ended[0] / "small", SingleProcess())
    for rank in range(2):
        found = torch.load(ended[0] / f"references-{rank}.pt")
        assert torch.equal(found.pop("critiques"), expected["critiques"])
        assert found.keys() | {"critiques"} == expected.keys()
        assert all(torch.allclose(values, expected[name], atol=1e-4, rtol=1e-5) for name, values in found.items())
        assert not torch.allclose(found["dpo"], found["dpo of another"], atol=0.1)


@pytest.mark.slow
def test_a_divided_policy_writes_the_checkpoint_of_a_whole_one(ended: tuple[Path, int], tmp_path: Path) -> None:
    load_policy(ended[0] / "small", SingleProcess(), lora=True).write_weights(tmp_path / "m")
    one, two = (load_file(folder / "model.safetensors") for folder in (tmp_path / "m", ended[0] / "written"))
    assert one.keys() == two.keys()
    assert all(torch.equal(two[name], tensor) for name, tensor in one.items())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_divided_reward_model_is_saved_as_a_whole_one_is(
    ended: tuple[Path, int], dtype: torch.dtype, tmp_path: Path
) -> None:
    trainable = load_reward_model(ended[0] / "small", SingleProcess(), LORA)
    expected = [score.reward for score in save_reward_model(trainable, tmp_path / "m", dtype, SingleProcess())]
    for rank in range(2):
        assert json.loads((ended[0] / f"scores-{dtype}-{rank}.json").read_text()) == pytest.approx(expected, abs=1e-5)
    one, two = (load_file(folder / "model.safetensors") for folder in (tmp_path / "m", ended[0] / f"rewards-{dtype}"))
    assert one.keys() == two.keys()
    assert all(torch.equal(two[name], tensor) and tensor.dtype == dtype for name, tensor in one.items())


@pytest.mark.slow
def test_no_process_holds_the_whole_model(ended: tuple[Path, int]) -> None:
    folder, size = ended
    for rank in range(2):
        growth = [grown / size for grown in json.loads((folder / f"memory-{rank}.json").read_text())]
        loading, publishing, saving, measured, measured_by_another, critic, writing, reading = growth
        assert 0.4 < loading < 0.75
        assert publishing < 0.25
        assert saving < 0.25
        assert 0.4 < measured < 0.75
        assert 0.9 < measured_by_another < 1.25
        assert 0.4 < critic < 0.75
        assert writing < 0.25
        assert reading < 3.3  # two models' moments, 2, and their weights before they are copied


if __name__ == "__main__":
    torch.set_num_threads(1)
    import_all = ("torch.distributed.fsdp", "peft", "transformers.models.llama.modeling_llama")
    for module in import_all:
        importlib.import_module(module)
    print(json.dumps({name: launch(name, globals()[name], Path(sys.argv[1])) for name in sys.argv[2:]}))
