"""`assay plan`: fake tensors hold what real ones do, what it prints, what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer import Typer, TyperException
from typer.testing import CliRunner

from assay.cli import plan_command
from assay.cli.main import main
from assay.errors import AssayError, BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.memory_options import INSTALL
from assay.planning.cards import CARDS, Card, this_processor
from assay.planning.engine_memory import WORK
from assay.planning.fake_step import StepCost, fill, measured
from assay.planning.request import PlanRequest
from assay.workspace import Workspace
from assay_rm_training.methods.method import PreparesData, method_of
from assay_rm_training.plan import PlannedRewardModel, made_up
from assay_rm_training.training.loop import make_optimizer, train_step
from assay_rm_training.training_config import LoraConfig, TrainingConfig

REQUEST = PlanRequest(prompt_tokens=20, response_tokens=20)
CPU = Card("cpu", 2**34, {"float32": 1e11, "bfloat16": 1e11}, 1e10, kernels="cpu")
BASE = TrainingConfig(base="tiny", dtype="float32", batch_size=4, micro_batch_tokens=200)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lora"), [("bt", None), ("dpo", LoraConfig(4)), ("kto", None)], ids=["bt", "dpo-lora", "kto"]
)
def test_a_fake_step_holds_what_a_real_one_does(name: str, lora: LoraConfig | None) -> None:
    method, config = method_of({"name": name}), replace(BASE, lora=lora)
    training = PlannedRewardModel(method, config, CPU, REQUEST, None)
    plan = training.measure(training.sizes[1])

    trainable = method.load(config, torch.device("cpu"))
    renderer = Renderer(trainable.tokenizer, max_length=4096)
    data = method.encode(made_up(method, renderer, REQUEST), renderer)
    if isinstance(method, PreparesData):
        data, _ = method.prepare(trainable, config, data, None)
    task = method.task(trainable, config)
    items = sorted(data.items, key=lambda item: -task.cost(item))
    one = max(1, training.sizes[1] // task.cost(items[0]))
    optimizer = make_optimizer(trainable, config)

    def step() -> None:
        chosen = items[: max(one, min(4, 2 * one))]
        train_step(trainable, task, chosen, replace(config, micro_batch_tokens=training.sizes[1]), optimizer)
        optimizer.step()

    real = measured([trainable.model], [optimizer], step)
    weights = sum(p.nbytes for p in trainable.model.parameters())
    assert real.peak["parameters"] == plan.cost.peak["parameters"] >= weights
    assert plan.cost.bytes == pytest.approx(real.bytes, rel=0.02)
    assert sum(plan.cost.flops.values()) == pytest.approx(sum(real.flops.values()), rel=0.01)


def cost(ranks: int = 1, positive: float = 0.0, card: Card = CPU, **changes: Any) -> StepCost:
    method = method_of({"name": "bt", "positive": positive})
    return PlannedRewardModel(method, replace(BASE, **changes), card, REQUEST, None, ranks).measure(200).cost


@pytest.mark.slow
def test_what_is_trained_otherwise_is_planned_otherwise() -> None:
    """The plan runs the step: a setting of the loop, of the model and of the division shows in it."""
    whole, shared = cost(), cost(ranks=4).peak
    twice = cost(positive=0.1)  # a second forward pass, for a term of the batch
    assert sum(twice.flops.values()) == pytest.approx(sum(whole.flops.values()) * 4 / 3, rel=0.05)
    divided = [sum(cost(2, positive=positive).flops.values()) for positive in (0.0, 0.1)]
    assert divided[1] == pytest.approx(divided[0] * 4 / 3, rel=0.05)
    assert cost(gradient_checkpointing=True).peak["activations"] < 0.6 * whole.peak["activations"]
    assert shared["parameters"] < whole.peak["parameters"] / 3
    assert shared["optimiser"] < whole.peak["optimiser"] / 3


@pytest.mark.slow
def test_other_optimisers_are_divided_too() -> None:
    h100 = CARDS["h100"]
    adamw, offloaded = cost(4, card=h100), cost(4, card=h100, optimizer="adamw_offloaded")
    assert offloaded.peak["optimiser"] == offloaded.peak["gradients"] == adamw.host == 0
    assert adamw.peak["parameters"] == offloaded.peak["parameters"]
    # Weights, moments, gradients and what is copied, for moments.
    assert 1.9 < offloaded.host / adamw.peak["optimiser"] < 2.6
    pytest.importorskip("bitsandbytes", reason=INSTALL)
    whole, divided = (cost(ranks, card=h100, optimizer="adamw_8bit").peak["optimiser"] for ranks in (1, 4))
    assert divided == pytest.approx(whole / 4, rel=0.15)


@pytest.mark.slow
def test_what_is_on_the_host_is_not_on_the_card() -> None:
    h100, whole = CARDS["h100"], cost(dtype="bfloat16", card=CARDS["h100"])
    offloaded = cost(dtype="bfloat16", card=h100, optimizer="adamw_offloaded")
    assert offloaded.peak["optimiser"] == offloaded.peak["gradients"] == whole.host == 0
    weights = whole.peak["parameters"]
    assert whole.peak["optimiser"] > 1.99 * weights
    assert offloaded.peak["parameters"] < 0.8 * weights  # the linear layers' are bfloat16
    assert 3.9 * weights < offloaded.host < 5.5 * weights  # weights, moments, gradients, what is copied
    kept = cost(card=h100, gradient_checkpointing=True)
    moved = cost(card=h100, gradient_checkpointing=True, offload_activations=True)
    assert moved.host > 0
    assert moved.peak["activations"] < kept.peak["activations"]
    on_cpu = cost(dtype="bfloat16", optimizer="adamw_offloaded")
    assert on_cpu.host == 0
    assert on_cpu.peak["optimiser"] > 2.9 * weights * 0.8


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"optimizer": "adamw_8bit"}, {"lora": LoraConfig(4), "base_weights": "4bit"}])
def test_8_and_4_bit_are_planned_at_their_bytes(changes: dict[str, Any]) -> None:
    pytest.importorskip("bitsandbytes", reason=INSTALL)
    config = replace(BASE, **changes)
    trainable = method_of({"name": "bt"}).load(config, torch.device("cpu"))
    weights = [*trainable.model.parameters(), *trainable.model.buffers()]
    optimizer = make_optimizer(trainable, config)
    fill(optimizer)
    states = {id(v): v.nbytes for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)}
    peak = cost(**changes).peak
    assert peak["parameters"] == pytest.approx(sum(weight.nbytes for weight in weights), rel=0.01)
    assert peak["optimiser"] == pytest.approx(sum(states.values()), rel=0.01)


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """A folder with a configuration alone, of 0.8 billion weights in two layers."""
    sizes = {"vocab_size": 60000, "hidden_size": 6144, "intermediate_size": 16384, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 48, "num_key_value_heads": 8, "max_position_embeddings": 4096}
    kind = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps({**kind, **sizes, **heads}))
    return tmp_path


_BT = ("--card", "this", "--prompt-tokens", "20", "train", "bt", "--base", "tiny", "--json")
#: Bytes of a token in the tiny model's cache, float32.
_KEYS_AND_VALUES = 2 * 2 * 2 * 16 * 4


_TINY = ("train", "bt", "--base", "tiny")


def run(*words: str) -> str:
    app = Typer()
    app.callback()(lambda: None)
    plan_command.register(app)
    result = CliRunner().invoke(app, ["plan", *words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.mark.slow
def test_a_training_that_does_not_fit_says_what_would(wide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CARDS, "small", replace(CARDS["4090"], name="small", memory=12 * 2**30))
    plan = json.loads(run("--card", "small", "train", "bt", "--base", str(wide), "--batch-size", "1", "--json"))
    assert not plan["fits"]
    assert plan["largest"] == 0
    with_lora = plan["alternatives"]["--gradient-checkpointing --lora 16"]
    assert with_lora["fits"]
    assert with_lora["bytes"] < 12 * 2**30 < plan["bytes"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe",
    [
        "grpo",
        pytest.param(
            "ppo", marks=pytest.mark.slow(reason="12 CPU seconds; a critic is a second model as a reference is")
        ),
    ],
)
def test_a_policy_is_planned_with_its_reference_critic_and_sampler(recipe: str) -> None:
    words = ["--card", "this", "--prompt-tokens", "20", "rl", "--policy", "tiny", "--recipe", recipe, "--json"]
    words += ["--prompts-per-step", "2", "--group-size", "4"]
    plan = json.loads(run(*words, "--max-new-tokens", "40"))
    weights = json.loads(run(*_BT))["peak"]["parameters"]
    assert plan["fits"]
    assert plan["peak"]["parameters"] > 1.9 * weights  # a reference, or a critic's copy
    if recipe == "grpo":  # the distance to the reference is no part of the loss: there is none
        alone = json.loads(run(*words, "--max-new-tokens", "40", "--set", "kl.coefficient=0"))
        assert alone["peak"]["parameters"] < 0.6 * plan["peak"]["parameters"]
    (sampling,) = plan["other_parts"]
    assert sampling["setting"] == "sampling.rows_at_once"
    if recipe == "grpo":  # an engine is planned and not started: its copy of the weights, and all rows at once
        by_engine = json.loads(run(*words, "--max-new-tokens", "40", "--set", "sampler.kind=vllm"))["other_parts"][0]
        assert (by_engine["name"], by_engine["size"]) == ("sampling by vLLM", 8)
        assert by_engine["bytes"] - by_engine["fixed"] == 8 * (40 + 20 + 32) * _KEYS_AND_VALUES
        assert by_engine["fixed"] > WORK + 2 * weights
    longer = json.loads(run(*words, "--max-new-tokens", "400"))
    assert longer["other_parts"][0]["bytes"] - sampling["bytes"] > 8 * 360 * _KEYS_AND_VALUES


@pytest.mark.slow
def test_a_critic_and_a_reference_are_divided_among_processes() -> None:
    words = ["--card", "h100", "--prompt-tokens", "20", "rl", "--policy", "tiny", "--recipe", "ppo", "--json"]
    words += ["--prompts-per-step", "4", "--max-new-tokens", "40", "--set", "optimisation.autocast=false"]
    divided = json.loads(run("--ranks", "4", *words))
    weights = json.loads(run(*_BT))["peak"]["parameters"]
    assert divided["fits"]
    assert divided["peak"]["parameters"] < weights  # a quarter of three models
    on_host = json.loads(run("--ranks", "4", *words, "--set", "critic.optimizer=adamw_offloaded"))
    assert 0 < on_host["peak"]["optimiser"] < 0.6 * divided["peak"]["optimiser"]  # the policy's alone
    with pytest.raises(BadInputError, match=r"critic\.lora\.base_weights.*cannot be sharded"):
        run("--ranks", "4", *words, "--set", "critic.lora.rank=2", "--set", "critic.lora.base_weights=4bit")


@pytest.mark.slow
def test_a_training_finds_the_plan_of_its_prompts(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(json.dumps({"prompt": "Name a metal" + ", please" * n}) for n in range(8)))
    options = ["--policy", "tiny", "--recipe", "grpo", "--prompts", str(prompts), "--prompts-per-step", "2"]
    options += [
        "--group-size",
        "2",
        "--max-new-tokens",
        "4",
        "--device",
        "cpu",
        "--steps",
        "1",
        "-w",
        str(workspace.root),
    ]
    planned = json.loads(run("rl", *options, "--json"))
    assert planned["tokens_per_step"] > 0
    assert "GiB" in planned["assumed"]
    (tmp_path / "reward.py").write_text("def reward(completions, **_):\n    return [1.0 for _ in completions]\n")
    with pytest.raises(SystemExit) as stopped:
        main(["rl", *options, "--reward", f"{tmp_path / 'reward.py'}:reward"])
    assert stopped.value.code == 0
    assert "plan: peak " in capsys.readouterr().err


def test_options_before_the_command() -> None:
    with pytest.raises(BadInputError, match=r"--card': is an option of plan.*assay plan --card \.\.\. rl"):
        run("rl", "--policy", "tiny", "--card=h100")
    with pytest.raises(TyperException, match="No such option: --crd"):
        run("--crd", "h100", *_TINY)


def test_a_plan_as_text() -> None:
    text = run("--card", "h100", "--prompt-tokens", "20", "train", "bt", "--base", "tiny", "--lora", "4")
    assert text.startswith("fits h100, 74.2 GiB: update ")
    for part in ("--micro-batch-tokens", " MiB, ", "tokens/s", "assumed: 79.2 GiB less 1 GiB"):
        assert part in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--card", "3090", "train", "bt", "--base", "tiny"], "unknown card '3090'; one of a100-40"),
        (["train", "steps", "--base", "tiny"], "cannot be made up: name data"),
        (["eval", "--data", "x"], "plans train and rl, not eval"),
        (["--ranks", "0", "train", "bt"], "ranks"),
        (["--card", "h100", "--ranks", "2", *_TINY, "--optimizer", "adafactor"], "'optimizer': .*cannot be sharded"),
        (
            ["--card", "h100", "--ranks", "2", *_TINY, "--lora", "4", "--base-weights", "4bit"],
            "4-bit .*cannot be sharded",
        ),
        (["--card", "h100", "--ranks", "2", *_TINY, "--parallel", "ddp"], "planned under fsdp"),
        ([*_TINY, "--dtype", "fp8"], "'fp8'; one of auto, float32, bfloat16$"),
    ],
)
def test_what_cannot_be_planned_is_one_line(words: list[str], message: str) -> None:
    with pytest.raises(AssayError, match=message):
        run(*words)


def test_a_number_format_that_the_processor_lacks() -> None:
    from assay.planning.plan import check_format

    with pytest.raises(BadInputError, match="no bfloat16"):
        check_format(replace(CPU, flops={"float32": 1e11}), "bfloat16")
    assert this_processor().usable > 2**30
