"""How much of what the processor can do is reached end to end: scoring, reward-model training, a step of GRPO.

One thread, CPU seconds. Floating-point operations are counted by torch as they are dispatched; of a training they are
three times those of its forward pass, so that what is computed twice earns nothing. The attainable rate is that of the
product of a linear layer of the model, alone and with its weights laid out for oneDNN, measured before and after each
cell of each round. Ratios are a cell's rate to the attainable one of its number format; the "peer" is the processor.
A step of GRPO is its generation and its update together. Generation is compared with its products alone, too, at its
number of rows.
"""

from __future__ import annotations

import argparse
import math
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# isort: off
import assay  # noqa: F401  # before torch, which it tells how to allocate
import torch

# isort: on
from torch.utils.flop_counter import FlopCounterMode

from assay.models.devices import has_fast_bfloat16
from hh_pairs import hh_pairs
from measure import LEAST_ROUNDS, QUICK_S, STARTED, Refusal, Report, Spread, arguments
from scoring import LENGTH, items_of, save_model
from trl_grpo_child import share as share_of_lower_case

MEASURES = (
    "platform/assay/models/attention",
    "serving/assay_serving/engines/packed.py",
    "policy_training/assay_policy_training/plugins/samplers/decoding.py",
    "policy_training/assay_policy_training/training/gradients.py",
    "rm_training/assay_rm_training/training/loop.py",
)
LIMIT = 0.6
CALIBRATION_S = 0.3  #: of products, before and after a cell
ROWS = 1024  #: of the product that is attainable: about what a pass has
PRODUCTS = 8  #: tokens of the products of generation alone
#: Beginnings of the names of what has a limit; generation and update are parts of a step.
END_TO_END = ("scoring", "reward-model training", "policy step")
PRODUCTS_ALONE = "policy generation's products alone,"  #: a cell's name
#: Number formats whose products the processor has.
FORMATS = {"float32": torch.float32} | ({"bfloat16": torch.bfloat16} if has_fast_bfloat16(torch.device("cpu")) else {})


class Attainable:
    """GFLOP/s of the product of a linear layer, by number format."""

    def __init__(self, config: Any) -> None:
        width, inner = config.hidden_size, config.intermediate_size
        self._flops = 2.0 * ROWS * width * inner
        self._products: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for name, dtype in FORMATS.items():
            weight = torch.randn(inner, width).to(dtype)
            self._products[name] = (
                torch.randn(ROWS, width).to(dtype),
                torch.ops.mkldnn._reorder_linear_weight(weight, None),
            )

    @torch.no_grad()
    def measure(self, name: str) -> float:
        x, packed = self._products[name]
        began, times, seconds = time.process_time(), 0, 0.0
        while seconds < CALIBRATION_S:
            torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
            times, seconds = times + 1, time.process_time() - began
        return float(times * self._flops / seconds / 1e9)


@dataclass
class Cell:
    """Work that is repeated, its number format, and how many times the operations of `forward` are useful. `varies`:
    from round to round."""

    name: str
    number_format: str
    run: Callable[[], object]
    forward: Callable[[], object]
    times: int = 1
    varies: bool = False
    flops: float = 0.0
    work: list[float] = field(default_factory=list)  #: useful operations of each round
    seconds: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    kernel: list[float] = field(default_factory=list)  #: share of the seconds that are the system's (page faults)

    def measure(self, attainable: Attainable) -> None:
        before = attainable.measure(self.number_format)
        system, began = resource.getrusage(resource.RUSAGE_SELF).ru_stime, time.process_time()
        self.run()
        seconds = time.process_time() - began
        self.kernel.append((resource.getrusage(resource.RUSAGE_SELF).ru_stime - system) / seconds)
        if self.varies or not self.flops:
            self.flops = counted(self.forward) * self.times
        self.work.append(self.flops)
        self.seconds.append(seconds)
        self.limits.append((before + attainable.measure(self.number_format)) / 2)

    @property
    def rates(self) -> list[float]:
        """GFLOP/s of each round."""
        return [work / seconds / 1e9 for work, seconds in zip(self.work, self.seconds, strict=True)]

    def shares(self) -> list[float]:
        return [rate / limit for rate, limit in zip(self.rates, self.limits, strict=True)]


def counted(run: Callable[[], object]) -> float:
    """Operations of `run`; torch's own list lacks packed layers and its attention on CPUs."""

    def packed(x: Sequence[int], *_: Any, out_shape: Sequence[int], **__: Any) -> int:
        return 2 * math.prod(x) * out_shape[-1]

    def attention(query: Sequence[int], key: Sequence[int], *_: Any, out_shape: Any, **__: Any) -> int:
        return 4 * math.prod(query) * key[-2]

    formulas = {
        torch.ops.mkldnn._linear_pointwise: packed,
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention,
    }
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        run()
    return float(counter.get_total_flops())


def scoring(folder: Path, number: int) -> Iterator[Cell]:
    from assay_serving.engines.transformers import TransformersScorer
    from assay_serving.model_config import ModelConfig

    for name in FORMATS:
        scorer = TransformersScorer.load(ModelConfig(str(folder), device="cpu", max_length=LENGTH, dtype=name))
        for kind, group in (("single responses", 1), ("groups of 16", 16)):
            items = items_of(group, max(group, number), seed=7)

            def run(scorer: Any = scorer, items: Any = items) -> object:
                return scorer.score(items)

            yield Cell(f"scoring, {kind}, {name}", name, run, run)


def training(base: str, number: int, number_format: str) -> Cell:
    from assay.models.chat.renderer import Renderer
    from assay.models.parallelism.strategy import SingleProcess
    from assay_rm_training.data.pair_dataset import encode_pairs
    from assay_rm_training.methods.bradley_terry import BradleyTerry
    from assay_rm_training.training.loop import make_optimizer, train_step, update_weights
    from assay_rm_training.training_config import TrainingConfig

    config = TrainingConfig(base=base, dtype=number_format, max_length=LENGTH, batch_size=number)
    method = BradleyTerry()
    trainable = method.load(config, torch.device("cpu"))
    items = encode_pairs(hh_pairs(number), Renderer(trainable.tokenizer, max_length=LENGTH)).items
    task, optimiser = method.task(trainable, config), make_optimizer(trainable, config)

    def run() -> None:
        train_step(trainable, task, items, config, optimiser)
        update_weights(optimiser, list(trainable.trainable().values()), SingleProcess(), measured=False)

    def forward() -> None:
        with torch.no_grad():
            task.measure(trainable, items)

    return Cell(f"reward-model training, {number_format}", number_format, run, forward, times=3)


def policy_step(base: str, prompts: int, tokens: int, number_format: str, folder: Path) -> Iterator[Cell]:
    """Generation, and the update on its rollouts."""
    from assay.domain import Message
    from assay_policy_training.core.metrics import Stopwatch
    from assay_policy_training.core.policy import Policy
    from assay_policy_training.core.prompt import PromptItem
    from assay_policy_training.plugins.prompts.constrained import generate_prompts
    from assay_policy_training.recipe.loading import recipe_from_dict
    from assay_policy_training.training.loop import PolicyLoop

    autocast = number_format == "bfloat16"
    recipe = recipe_from_dict(
        {
            "name": "attainable",
            "estimator": {"kind": "grpo"},
            "objective": {"kind": "ppo_clip"},
            "aggregation": {"mode": "token-mean"},
            "sampling": {"prompts_per_step": prompts, "group_size": 8, "max_new_tokens": tokens},
            "optimisation": {"lr": 1e-6, "autocast": autocast},
            "report_kl": False,
            "checkpoint_every": 0,
        }
    )
    policy = Policy(base, device=torch.device("cpu"), max_prompt_tokens=512, autocast=autocast)
    items = [PromptItem((Message("user", str(p.prompt[-1].content)),)) for p in generate_prompts(prompts, 0)]
    loop = PolicyLoop(recipe, policy, recipe.source.open(items, seed=0, policy=policy), [], folder)
    drawn: list[int] = []
    rolled: list[Any] = []

    def generate() -> list[Any]:
        drawn.append(len(drawn))
        rolled[:] = [loop.sampler.rollout(items, 8, seed=drawn[-1], version=0)]
        return rolled

    def again() -> None:
        loop.sampler.rollout(items, 8, seed=drawn[-1], version=0)

    def update() -> None:
        (batch,) = rolled or generate()
        texts = policy.tokenizer.batch_decode(batch.tokens)
        reward = torch.tensor([share_of_lower_case(text) for text in texts], dtype=torch.float64)
        batch = batch.with_(reward=reward, acc=reward, r_parts={"reward": reward})
        loop.learn(batch, 1, recipe.sampling, Stopwatch())

    def forward() -> None:
        (batch,) = rolled or generate()
        with torch.no_grad():
            for micro_batch in loop.gradients.micro_batches(batch, torch.arange(len(batch))):
                policy.scores(batch.select(micro_batch.rows), temperature=1.0)

    yield Cell(f"policy generation, {number_format}", number_format, generate, again, varies=True)
    yield Cell(f"policy update, {number_format}", number_format, update, forward, times=3, varies=True)


def products(base: str, rows: int, number_format: str) -> Cell:
    """The matrix products of one token of `rows` rows and nothing else: what generation cannot be faster than, since
    so few rows read all weights anew at each token."""
    from transformers import AutoModelForCausalLM

    dtype = FORMATS[number_format]
    model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
    layers = [module.weight.detach() for module in model.modules() if isinstance(module, torch.nn.Linear)]
    inputs = {weight.shape[1]: torch.randn(rows, weight.shape[1]).to(dtype) for weight in layers}
    packed = [(inputs[each.shape[1]], torch.ops.mkldnn._reorder_linear_weight(each, None)) for each in layers]

    @torch.no_grad()
    def multiply() -> None:
        for _ in range(PRODUCTS):
            for x, weight in packed:
                torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")

    return Cell(f"{PRODUCTS_ALONE} {rows} rows, {number_format}", number_format, multiply, multiply)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--base", default="smollm2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cells whose name has this text")
    parser.add_argument("--profile", action="store_true", help="print torch's profile of a round of each cell instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        run(options, Path(scratch))


def run(options: argparse.Namespace, folder: Path) -> None:
    from transformers import AutoConfig

    from assay.models.loading import resolve_model

    base, small = str(resolve_model(options.base)), options.quick
    low = "bfloat16" if "bfloat16" in FORMATS else "float32"
    save_model(base, folder / "model")
    cells = [*scoring(folder / "model", 4 if small else 8), training(base, 4 if small else 8, low)]
    cells += policy_step(base, 8, 16 if small else 32, low, folder)
    cells.append(products(base, 8 * 8, low))
    cells = [cell for cell in cells if options.only in cell.name]
    attainable = Attainable(AutoConfig.from_pretrained(base))
    for cell in cells:
        cell.run()
    if options.profile:
        for cell in cells:
            profile(cell)
        return
    end = STARTED + (options.budget or (QUICK_S if small else math.inf))
    longest, number = 0.0, 0
    while number < options.rounds and (not number or time.perf_counter() + longest < end):
        started = time.perf_counter()
        for cell in cells:
            cell.measure(attainable)
        longest, number = max(longest, time.perf_counter() - started), number + 1
    report = Report("attainable", measures=MEASURES)
    report.figures = {"rounds": number, "threads": 1}
    few = Refusal(f"{number} rounds within the budget, it takes {LEAST_ROUNDS}")
    for cell in cells:
        shares = cell.shares()
        report.ratios[cell.name] = Spread.of(shares) if number >= LEAST_ROUNDS else few
        report.figures[cell.name] = {
            "gflops": str(Spread.of(cell.rates)),
            "attainable": str(Spread.of(cell.limits)),
            "system_share": round(Spread.of(cell.kernel).median, 3),
        }
    generated, alone = (
        [cell for cell in cells if name in cell.name] for name in ("policy generation, ", PRODUCTS_ALONE)
    )
    updated = [cell for cell in cells if "policy update, " in cell.name]
    if generated and updated:
        name = f"policy step, {generated[0].number_format}"
        report.ratios[name] = Spread.of(together(generated[0], updated[0])) if number >= LEAST_ROUNDS else few
    report.limits = {name: LIMIT for name in report.ratios if name.startswith(END_TO_END)}
    if generated and alone:  # what is not products: attention, sampling, layout of the weights, calls
        pairs = zip(generated[0].shares(), alone[0].shares(), strict=True)
        parts = [one / other for one, other in pairs]
        report.ratios["policy generation to its products alone"] = Spread.of(parts) if number >= LEAST_ROUNDS else few
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    report.finish(options)


def together(*parts: Cell) -> list[float]:
    """Share of each round of work one after the other."""
    rounds = zip(*(zip(part.work, part.seconds, part.limits, strict=True) for part in parts), strict=True)
    return [
        sum(work for work, _, _ in each) / sum(seconds * limit * 1e9 for _, seconds, limit in each) for each in rounds
    ]


def profile(cell: Cell) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recorded

    with recorded(activities=[ProfilerActivity.CPU]) as profiler:
        cell.run()
    print(cell.name)
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=24, max_name_column_width=50))


if __name__ == "__main__":
    main()
