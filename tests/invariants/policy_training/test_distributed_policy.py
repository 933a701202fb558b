"""Two processes (gloo, on the CPU) train a policy to the weights that one process gives: data parallel and FSDP2, rows
and groups as the objective's scope, a critic, a teacher, adapters, resumed by as many or another number of processes,
and when one fails.

The rollouts are the same in both: each prompt is drawn by a seed of its own. `python test_distributed_policy.py
FOLDER FUNCTION...` forks the two once all that takes long is imported.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_actors import fork_actors
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor
from two_processes import PATIENCE_S, error_file, launch

from assay.cli.main import main
from assay.domain import Message
from assay.errors import BadInputError
from assay.models.parallelism.distributed import torch_process_group
from assay.models.parallelism.strategy import SingleProcess, parallel_strategy
from assay.models.published_weights import full_tensor
from assay.runs.json_log import METRICS_FILE
from assay.workspace import Workspace
from assay_policy_training.core.config import Asynchrony, Optimisation
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.critics.value_model import ValueModel
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.training.loop import ROLLOUTS_FILE, PolicyLoop
from assay_serving.verifiers import MaxWords

PATH = os.pathsep.join([str(Path(__file__).resolve().parents[2] / "support"), *sys.path])
CPU = torch.device("cpu")
STEPS = 3
SAFE = "model.safetensors"
ONE_UPDATE = ("pacs", "hybrid_imitation")  #: whole groups; a loss without a ratio
#: Scenario -> recipe, division, what is changed. 3 prompts of 3 rollouts divide by two neither as prompts nor as rows.
SCENARIOS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "grpo-ddp": ("grpo", "ddp", {}),
    "grpo-fsdp": ("grpo", "fsdp", {}),
    "pacs-ddp": ("pacs", "ddp", {}),
    "pacs-fsdp": ("pacs", "fsdp", {}),
    "ppo-fsdp": ("ppo", "fsdp", {}),
    "hybrid_imitation-fsdp": ("hybrid_imitation", "fsdp", {}),
    "actors-fsdp": ("grpo", "fsdp", {"asynchrony": Asynchrony(lag=1, actors=1)}),
    "lora-fsdp": ("grpo", "fsdp", {"lora": Lora(rank=4, alpha=8), "checkpointing": True}),
}
#: One of each division; the others are left to `make test-all`.
ALWAYS = ("grpo-ddp", "ppo-fsdp")
NAMES = [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in SCENARIOS]
CHOSEN = "scenarios.json"  #: those of the tests that run, in the folder
#: What two processes do, in functions of this file.
TOGETHER = ("every_scenario", "one_fails", "refusals", "refused_command", "saved_commands")
EVALUATED = ["--evaluate", "2", "--eval-every", "1", "--eval-prompts", "a=constrained:2"]
EVALUATED += ["--eval-prompts", "b=constrained:4"]
FIGURES = ("loss", "grad_norm", "reward_mean", "entropy", "kl_k3", "approx_kl_old", "value_loss", "rollouts_trained")


class StoppedError(Exception):
    """A process that ends on its own account."""


class Vowels:
    """S3: the share of vowels in a response; missing for an empty one."""

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        shares = [sum(c in "aeiou" for c in text) / len(text) if text else torch.nan for text in responses]
        return _rewards("vowels", shares)


class Rank:
    """S3: how many responses of the batch are shorter; it has to see them all."""

    whole_batch = True

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        return _rewards("rank", [sum(len(a) < len(b) for a in responses) / len(responses) for b in responses])


def _rewards(name: str, values: list[float]) -> Rewards:
    return Rewards({name: torch.tensor(values, dtype=torch.float64)}, [() for _ in values], [{} for _ in values])


def recipe_of(name: str) -> Recipe:
    kind, _, changes = SCENARIOS[name]
    chosen = load_recipe(kind)
    optimisation = Optimisation(lr=1e-3, micro_batch_rows=2, minibatches=1 if kind in ONE_UPDATE else 2)
    optimisation = replace(optimisation, gradient_checkpointing=changes.get("checkpointing", False))
    if isinstance(chosen.critic, ValueModel):
        chosen = replace(chosen, critic=replace(chosen.critic, lr=1e-3, warmup_steps=0, micro_batch_rows=2))
    return replace(
        chosen,
        sampling=Sampling(prompts_per_step=3, group_size=3, max_new_tokens=10, max_prompt_tokens=64),
        optimisation=optimisation,
        lora=changes.get("lora", Lora()),
        asynchrony=changes.get("asynchrony", Asynchrony()),
        steps=STEPS,
        checkpoint_every=2,
    )


def load(recipe: Recipe) -> Policy:
    torch.manual_seed(7)  # of new adapters
    return Policy(
        "tiny",
        device=CPU,
        max_prompt_tokens=64,
        lora=recipe.lora,
        with_reference=recipe.needs_reference,
        teacher="tiny" if recipe.needs_teacher else None,
        gradient_checkpointing=recipe.optimisation.gradient_checkpointing,
    )


def begin(recipe: Recipe, folder: Path, parallel: SingleProcess) -> PolicyLoop:
    items = [
        PromptItem((Message("user", f"{'Please. ' * (n % 3)}Name colour {n}."),), (MaxWords(1 + n % 2),))
        for n in range(8)
    ]
    with parallel.loading():
        policy = load(recipe)
    source = recipe.source.open(items, seed=recipe.seed, policy=policy)
    policy.divide(parallel)
    return PolicyLoop(recipe, policy, source, [Vowels(), Rank()], folder)


def finished(trainer: PolicyLoop, parallel: SingleProcess) -> dict[str, torch.Tensor]:
    """The first process's whole trained weights."""
    return {name: full_tensor(p).clone() for name, p in trainer.policy.trainable().items()}


def run(name: str, folder: Path, parallel: SingleProcess) -> dict[str, torch.Tensor]:
    trainer = begin(recipe_of(name), folder, parallel)
    trainer.resume()
    with closing(trainer):
        trainer.train()
    (folder / f"held-{parallel.rank}.json").write_text(json.dumps(held(trainer, parallel)))
    return finished(trainer, parallel)


def held(trainer: PolicyLoop, parallel: SingleProcess) -> dict[str, list[int]]:
    """Numbers that this process holds of trained weights and of AdamW's moments, and those of the whole."""
    moments = [t for state in trainer.optimiser.state.values() for t in state.values() if t.dim()]
    return {
        name: [sum(local(t).numel() for t in tensors), sum(parallel.full(t).numel() for t in tensors)]
        for name, tensors in (("weights", list(trainer.parameters.values())), ("moments", moments))
    }


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def every_scenario(folder: Path) -> None:
    """Each scenario from beginning to end, and from what one process had saved."""
    with torch_process_group() as group, pytest.MonkeyPatch.context() as patch:
        fork_actors(patch)
        for name in json.loads((folder / CHOSEN).read_text()):
            kind = SCENARIOS[name][1]
            parallel = parallel_strategy(kind, group, CPU)  # type: ignore[arg-type]
            for which in ("two", "resumed"):
                weights = run(name, folder / name / which, parallel)
                if parallel.main:
                    torch.save(weights, folder / name / which / "weights.pt")
        if parallel.main:  # of step 2, with shares of policy and critic
            shutil.copytree(folder / "ppo-fsdp" / "two", folder / "ppo-fsdp" / "again")
            shutil.copytree(folder / "ppo-fsdp" / "two", folder / "ppo-fsdp" / "uninterrupted")
        parallel.gather(None)
        weights = run("ppo-fsdp", folder / "ppo-fsdp" / "again", parallel)
        if parallel.main:
            torch.save(weights, folder / "ppo-fsdp" / "again" / "weights.pt")


def one_fails(folder: Path) -> None:
    """The second process fails in the middle of the run."""
    with torch_process_group() as group:
        trainer = begin(
            replace(recipe_of("grpo-ddp"), checkpoint_every=0), folder / "fails", parallel_strategy("ddp", group, CPU)
        )
        trainer.train(1)
        if group.rank:
            raise StoppedError("stopped after 1 step")
        trainer.train()


def refusals(folder: Path) -> None:
    """What does not work across processes is refused in all of them, before the first step."""
    cases = [replace(recipe_of("grpo-ddp"), asynchrony=Asynchrony(lag=1)), load_recipe("t_ppo")]
    said = []
    with torch_process_group() as group:
        for changed in cases:
            policy = load(changed)
            policy.divide(parallel_strategy("ddp", group, CPU))
            source = changed.source.open([PromptItem((Message("user", "Hi"),))], seed=0, policy=policy)
            try:
                PolicyLoop(changed, policy, source, [Vowels()], folder)
            except BadInputError as error:
                said.append(str(error))
    (folder / f"refused-{group.rank}.json").write_text(json.dumps(said))


def refused_command(folder: Path) -> None:
    """`assay rl` with a recipe that every process finds wrong, once it has the model."""
    where = ["-w", str(folder / "workspace"), "--device", "cpu"]
    main(["rl", "--recipe", "t_ppo", "--policy", "tiny", "--reward", "verifier", *where])


def saved_commands(folder: Path) -> None:
    """`assay rl`, whose policies are saved from their shares: evaluated during training, and not."""
    for name, options in (("evaluated", EVALUATED), ("not-evaluated", [])):
        command(folder, name, "--parallel", "fsdp", *options)


def command(folder: Path, name: str, *options: str) -> None:
    words = ["--policy", "tiny", "--prompts", "constrained:4", "--reward", "verifier", "--steps", "2", "--lr", "1e-3"]
    words += ["--prompts-per-step", "2", "--group-size", "2", "--max-new-tokens", "6", "--set", "lora.rank=4"]
    torch.manual_seed(7)  # of new adapters
    with pytest.raises(SystemExit) as ended:
        main(["rl", *words, *options, "--name", name, "--device", "cpu", "-w", str(folder / "workspace")])
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def ended(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, list[tuple[int, str]]]]:
    """Every scenario by one process; then by two, whole and from the one's checkpoint. Exit codes and standard error of
    the two, also where one of them fails."""
    folder = tmp_path_factory.mktemp("policies")
    (folder / "fails").mkdir()
    Workspace.create(folder / "workspace")
    calls = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    wanted = {call.get("name") for call in calls} | {"ppo-fsdp"}  # a test without parameters has it
    chosen = [name for name in SCENARIOS if name in wanted]
    (folder / CHOSEN).write_text(json.dumps(chosen))
    for name in chosen:
        for kind in ("one", "two"):
            (folder / name / kind).mkdir(parents=True)
        with pytest.MonkeyPatch.context() as patch:
            fork_actors(patch)
            weights = run(name, folder / name / "one", SingleProcess())
        torch.save(weights, folder / name / "one" / "weights.pt")
        shutil.copytree(folder / name / "one", folder / name / "resumed")  # its checkpoint is of step 2
    command = [sys.executable, __file__, str(folder), *TOGETHER]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": PATH}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return folder, {
        name: [(code, error_file(folder, name, rank).read_text()) for rank, code in enumerate(codes)]
        for name, codes in json.loads(done.stdout.splitlines()[-1]).items()  # a command prints, too
    }


@pytest.fixture(scope="module")
def trained(ended: tuple[Path, dict[str, list[tuple[int, str]]]]) -> Path:
    for code, error in ended[1]["every_scenario"]:
        assert code == 0, error
    return ended[0]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["two", "resumed"])
@pytest.mark.parametrize("name", NAMES)
def test_two_processes_train_what_one_trains(name: str, kind: str, trained: Path) -> None:
    one, two = (torch.load(trained / name / which / "weights.pt") for which in ("one", kind))
    assert one.keys() == two.keys()
    start = load(recipe_of(name)).trainable()
    moved = max(float((start[weight].detach() - value).abs().max()) for weight, value in one.items())
    assert moved > 1e-3
    for weight, value in one.items():
        assert torch.allclose(two[weight], value, atol=2e-5), (weight, float((two[weight] - value).abs().max()))


@pytest.mark.parametrize("kind", ["two", "resumed"])
@pytest.mark.parametrize("name", NAMES)
def test_they_draw_reward_and_measure_what_one_does(name: str, kind: str, trained: Path) -> None:
    one, two = (rows(trained / name / which / ROLLOUTS_FILE) for which in ("one", kind))
    assert len(one) == len(two) == STEPS * 9
    for expected, found in zip(one, two, strict=True):
        for key in ("step", "uid", "prompt", "response", "weights_version", "trained"):
            assert found[key] == expected[key], key
        assert found["parts"] == pytest.approx(expected["parts"])
        assert found["advantage"] == pytest.approx(expected["advantage"], abs=1e-4)
    one, two = (rows(trained / name / which / METRICS_FILE) for which in ("one", kind))
    for expected, found in zip(one, two, strict=True):
        assert found["step"] == expected["step"]
        for figure in FIGURES:
            assert (figure in found) == (figure in expected)
            if figure in expected:
                assert found[figure] == pytest.approx(expected[figure], rel=1e-3, abs=1e-5), figure


@pytest.mark.parametrize("name", NAMES)
def test_fsdp_divides_weights_and_moments(name: str, trained: Path) -> None:
    shares = [json.loads((trained / name / "two" / f"held-{rank}.json").read_text()) for rank in range(2)]
    for part, copies in (("weights", 1), ("moments", 2)):
        (first, whole), (second, _) = (share[part] for share in shares)
        assert whole == copies * shares[0]["weights"][1]
        assert (first + second == whole) == name.endswith("fsdp")
        assert (first == second == whole) == name.endswith("ddp")


@pytest.mark.parametrize("name", ["grpo-ddp", "ppo-fsdp"])
def test_one_process_resumes_with_what_two_saved(name: str, trained: Path) -> None:
    folder = trained / name / "two"  # its checkpoint is of step 2
    trainer = begin(recipe_of(name), folder, SingleProcess())
    assert trainer.resume() == 2
    trainer.train()
    expected = torch.load(trained / name / "one" / "weights.pt")
    for weight, value in finished(trainer, SingleProcess()).items():
        assert torch.allclose(value, expected[weight], atol=2e-5), weight
    assert [row["step"] for row in rows(folder / METRICS_FILE)] == [1, 2, 3]


def test_two_processes_resume_from_their_shares_to_the_last_bit(trained: Path) -> None:
    folder = trained / "ppo-fsdp"
    assert (folder / "again" / "checkpoint-00000002" / "shards" / ".metadata").is_file()
    found, expected = (torch.load(folder / kind / "weights.pt") for kind in ("again", "uninterrupted"))
    assert all(torch.equal(found[weight], value) for weight, value in expected.items())
    again, one = (rows(folder / kind / METRICS_FILE)[-1] for kind in ("again", "uninterrupted"))
    assert [again[name] for name in ("value_loss", "value_grad_norm")] == [one["value_loss"], one["value_grad_norm"]]


def test_one_that_fails_ends_both_with_its_message(ended: tuple[Path, dict[str, list[tuple[int, str]]]]) -> None:
    first, second = ended[1]["one_fails"]
    assert first[0] != 0
    assert "process 1 of the training failed: StoppedError: stopped after 1 step" in first[1]
    assert second[0] != 0
    assert "StoppedError" in second[1]


def test_what_does_not_work_across_processes_is_refused(ended: tuple[Path, dict[str, list[tuple[int, str]]]]) -> None:
    assert [code for code, _ in ended[1]["refusals"]] == [0, 0], ended[1]["refusals"]
    for rank in range(2):
        said = json.loads((ended[0] / f"refused-{rank}.json").read_text())
        assert ["asynchrony.lag" in said[0], "sampler" in said[1]] == [True, True]


def test_a_command_that_all_refuse_says_it_once(ended: tuple[Path, dict[str, list[tuple[int, str]]]]) -> None:
    codes, errors = zip(*ended[1]["refused_command"], strict=True)
    assert codes == (2, 2)
    ours = [line for line in "".join(errors).splitlines() if line.startswith("assay: ")]
    assert len(ours) == 1
    assert "sampler" in ours[0]


def test_a_policy_is_saved_from_its_shares(ended: tuple[Path, dict[str, list[tuple[int, str]]]]) -> None:
    assert [code for code, _ in ended[1]["saved_commands"]] == [0, 0], ended[1]["saved_commands"]
    workspace = Workspace.open(ended[0] / "workspace")
    _, metrics = run_of(workspace, "not-evaluated")
    assert metrics["division"] == "fsdp"
    assert metrics["reload_difference"] < 1e-5
    saved = Policy(str(workspace.models / "not-evaluated"), device=CPU, max_prompt_tokens=64).model.state_dict()
    base = load(recipe_of("grpo-fsdp")).model.state_dict()
    assert any(not torch.equal(values, base[name]) for name, values in saved.items())


@pytest.mark.slow
def test_evaluating_during_training_measures_what_one_does_and_changes_no_weight(
    ended: tuple[Path, dict[str, list[tuple[int, str]]]],
) -> None:
    assert [code for code, _ in ended[1]["saved_commands"]] == [0, 0], ended[1]["saved_commands"]
    command(ended[0], "alone", *EVALUATED)
    workspace = Workspace.open(ended[0] / "workspace")
    evaluated, without = (load_file(workspace.models / name / SAFE) for name in ("evaluated", "not-evaluated"))
    assert all(torch.equal(evaluated[weight], value) for weight, value in without.items())
    one, two = (rows(run_of(workspace, name)[0] / METRICS_FILE) for name in ("alone", "evaluated"))
    for expected, found in zip(one, two, strict=True):
        figures = {name for name in expected if name.startswith("eval_") and name != "eval_seconds"}
        assert {f"eval_{part}_{name}" for part in "ab" for name in ("entropy", "kl_k3", "reward_mean")} <= figures
        for figure in figures:
            assert found[figure] == pytest.approx(expected[figure], rel=1e-3, abs=1e-5), figure


def run_of(workspace: Workspace, policy: str) -> tuple[Path, dict[str, Any]]:
    """Folder and metrics."""
    runs = "SELECT run_id, metrics FROM runs JOIN artifacts USING (run_id) WHERE artifacts.kind = 'policy' AND name = ?"
    with workspace.store.unit() as db:
        [(run, metrics)] = db.execute(runs, [policy]).fetchall()
    return workspace.runs / str(run), json.loads(metrics)


if __name__ == "__main__":
    torch.set_num_threads(1)
    load(recipe_of("lora-fsdp"))  # it imports what loading a model takes
    importlib.import_module("torch.distributed.fsdp")
    print(json.dumps({name: launch(name, globals()[name], Path(sys.argv[1])) for name in sys.argv[2:]}))
