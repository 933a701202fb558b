"""A step of GRPO: Assay's loop beside TRL's GRPOTrainer, by stage.

The same model (SmolLM2-135M, float32), prompts, group of 8, lengths, reward (share of lower-case letters), optimiser,
rows in a backward pass and threads; no reference, one update a batch. The two take turns, a step at a time, each in a
process of its own, and the one that waits computes nothing. Ratios are of tokens a second, ours to TRL's, since
rollouts end where they end. With --vllm-python PATH (or $ASSAY_VLLM_PYTHON) our loop is also run with the vLLM sampler.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from measure import LEAST_ROUNDS, Cost, Report, Spread, arguments, compare, cpu_seconds, ratio, versions
from trl_grpo_child import share

MEASURES = (
    "policy_training/assay_policy_training/training",
    "policy_training/assay_policy_training/plugins/samplers",
    "policy_training/assay_policy_training/core",
    "platform/assay/models",
)

HERE = Path(__file__).resolve().parent
STAGES = ("sample", "reward", "score", "update", "whole")
SEED = 0


class Child:
    """A process that does one step for each line it gets."""

    def __init__(self, script: str, settings: dict[str, Any], folder: Path, python: str = sys.executable) -> None:
        path = folder / f"{script}.json"
        path.write_text(json.dumps({**settings, "folder": str(folder / script)}))
        environment = {**os.environ, "OMP_NUM_THREADS": str(settings["threads"]), "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(
            [python, str(HERE / script), str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, text=True, env=environment,
        )  # fmt: skip
        self.steps: list[dict[str, Any]] = []
        self._answer()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def step(self) -> Cost:
        """Seconds of the whole step, and CPU seconds of the process and its children, for its tokens."""
        assert self.process.stdin is not None
        before = cpu_seconds(self.process.pid)
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        answer = self._answer()
        self.steps.append(answer)
        return Cost(answer["seconds"]["whole"], cpu_seconds(self.process.pid) - before, answer["tokens"])

    def rates(self, stage: str) -> list[float]:
        """Tokens a second of a stage, step by step."""
        return [step["tokens"] / max(step["seconds"][stage], 1e-6) for step in self.steps]

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a contender ended with status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    if sys.argv[1:2] == ["--ours"]:
        ours(Path(sys.argv[2]))
        return
    parser = arguments(__doc__ or "")
    parser.add_argument("--base", default=None, help="policy (default: smollm2; quick: tiny)")
    parser.add_argument("--rounds", type=int, default=None, help="steps each (default: 5)")
    parser.add_argument("--prompts-per-step", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=None, help="default: 64; quick: 32")
    parser.add_argument("--micro-batch-rows", type=int, default=16, help="rows in a backward pass, of both")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--autocast", action="store_true", help="bfloat16 products around float32 weights, in both")
    parser.add_argument("--vllm-python", default=os.environ.get("ASSAY_VLLM_PYTHON"), help="Python that has vLLM")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running:
        run(options, Path(scratch), running)


def run(options: argparse.Namespace, folder: Path, running: ExitStack) -> None:
    from assay.models.loading import resolve_model
    from assay_policy_training.plugins.prompts.constrained import generate_prompts

    rounds = options.rounds or 5
    base = resolve_model(options.base or ("tiny" if options.quick else "smollm2"))
    prompts = [p.prompt[-1].content for p in generate_prompts(8 * options.prompts_per_step, SEED)]
    settings = {
        "model": str(base),
        "prompts": prompts,
        "prompts_per_step": options.prompts_per_step,
        "group_size": options.group_size,
        "max_new_tokens": options.max_new_tokens or (32 if options.quick else 64),
        "micro_batch_rows": options.micro_batch_rows,
        "threads": options.threads,
        "autocast": options.autocast,
        "lr": 1e-6,
        "seed": SEED,
        "steps": rounds + 2,
        "vllm_python": None,
    }
    report = Report("grpo_step", measures=MEASURES)
    report.figures = {
        k: settings[k] for k in ("prompts_per_step", "group_size", "max_new_tokens", "threads", "autocast")
    }
    report.figures["versions"] = versions("torch", "transformers", "trl")
    contenders = {
        "assay": running.enter_context(OwnChild(settings, folder / "assay")),
        "TRL": running.enter_context(Child("trl_grpo_child.py", settings, folder)),
    }
    if options.vllm_python:
        our_settings = {**settings, "vllm_python": options.vllm_python}
        contenders["assay, vLLM sampler"] = running.enter_context(OwnChild(our_settings, folder / "vllm"))
    else:
        report.figures["vLLM sampler"] = "skipped: no environment named by --vllm-python or ASSAY_VLLM_PYTHON"
    for child in contenders.values():  # the first step compiles, allocates and reads files
        child.step()
        child.steps.clear()
    measured = compare({name: child.step for name, child in contenders.items()}, options, rounds=rounds)
    for name, child in contenders.items():
        report.figures[name] = {
            "tokens_per_s": str(Spread.of(child.rates("whole"))),
            "tokens_per_step": str(Spread.of([float(step["tokens"]) for step in child.steps])),
            "seconds": {s: str(Spread.of([step["seconds"][s] for step in child.steps])) for s in STAGES},
        }
    report.ratios["whole step, assay / TRL"] = measured.ratio("assay", "TRL")
    for stage in ("sample", "update") if len(measured.costs["TRL"]) >= LEAST_ROUNDS else ():
        rates = (contenders["assay"].rates(stage), contenders["TRL"].rates(stage))
        report.ratios[f"{stage}, assay / TRL"] = ratio(*rates)
    if "assay, vLLM sampler" in contenders:
        report.ratios["whole step, assay with the vLLM sampler / TRL"] = measured.ratio("assay, vLLM sampler", "TRL")
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    report.finish(options)


class OwnChild(Child):
    """Our loop in a process of its own, like the peer's."""

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        folder.mkdir()
        path = folder / "settings.json"
        path.write_text(json.dumps({**settings, "folder": str(folder)}))
        environment = {**os.environ, "OMP_NUM_THREADS": str(settings["threads"])}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "grpo_step.py"), "--ours", str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, text=True, env=environment,
        )  # fmt: skip
        self.steps = []
        self._answer()


def ours(path: Path) -> None:
    """The child: a step of our loop for each line on standard input."""
    settings = json.loads(path.read_text())
    out, sys.stdout = sys.stdout, sys.stderr
    import torch

    from assay.domain import Message
    from assay_policy_training.core.policy import Policy
    from assay_policy_training.core.prompt import PromptItem
    from assay_policy_training.plugins.protocols import Rewards
    from assay_policy_training.recipe.loading import recipe_from_dict
    from assay_policy_training.training.loop import PolicyLoop

    torch.set_num_threads(settings["threads"])

    class LowerCase:
        """The reward of both contenders."""

        def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
            part = torch.tensor([share(text) for text in responses], dtype=torch.float64)
            return Rewards({"lower_case": part}, [() for _ in items], [{} for _ in items])

    sampling = {k: settings[k] for k in ("prompts_per_step", "group_size", "max_new_tokens")}
    sections: dict[str, Any] = {
        "name": "grpo_step",
        "estimator": {"kind": "grpo", "eps": 1e-4},
        "objective": {"kind": "ppo_clip", "dual_clip": None},
        "aggregation": {"mode": "token-mean"},
        "sampling": sampling,
        "optimisation": {k: settings[k] for k in ("lr", "micro_batch_rows", "autocast")},
        "report_kl": False,
        "steps": settings["steps"],
        "checkpoint_every": 0,
        "seed": settings["seed"],
    }
    if settings["vllm_python"]:
        sections["sampler"] = {"kind": "vllm_server", "launch": True, "python": settings["vllm_python"]}
    recipe = recipe_from_dict(sections)
    policy = Policy(
        settings["model"],
        device=torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        max_prompt_tokens=recipe.sampling.max_prompt_tokens,
        autocast=settings["autocast"],
    )
    items = [PromptItem((Message("user", text),)) for text in settings["prompts"]]
    source = recipe.source.open(items, seed=settings["seed"], policy=policy)
    trainer = PolicyLoop(recipe, policy, source, [LowerCase()], path.parent)
    print(json.dumps({"ready": True}), file=out, flush=True)
    for number, _ in enumerate(sys.stdin, start=1):
        started = time.perf_counter()
        (row,) = trainer.train(number)
        seconds = {stage: row.get(f"seconds_{stage}", 0.0) for stage in STAGES}
        seconds["whole"] = time.perf_counter() - started  # logs and all that no stage counts, as of the peer
        tokens = round(row["length_mean"] * row["rollouts"])
        print(json.dumps({"seconds": seconds, "tokens": tokens}), file=out, flush=True)


if __name__ == "__main__":
    main()
