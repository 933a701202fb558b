"""Reinforcement learning of a generative judge as a recorded run: from rows to a saved reward model.

Covers: the run record, contamination check, held-out evaluation before and after, the loop of policy_training with
resume, the checkpoint with its parity, the artifacts. Leaves out: the reward (`verdict_reward`), the loop itself.

    RUN/ plan.json (what --resume needs)  metrics.jsonl  rollouts.jsonl  evaluation.json  items.jsonl  before/
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

from assay.data.json_lines import Lines, parse_object
from assay.domain import Prompt
from assay.errors import BadInputError, NotFoundError
from assay.models.chat.options import ChatOptions
from assay.models.chat.renderer import Renderer
from assay.models.contamination import union
from assay.models.devices import pick_device
from assay.models.memory_options import MOMENT_BYTES
from assay.models.parallelism.distributed import world_size
from assay.models.spec import Judging, RewardModelSpec
from assay.runs.callbacks import StepCallback
from assay.runs.contamination_gate import BenchmarkState
from assay.runs.coverage import Coverage
from assay.runs.json_log import METRICS_FILE
from assay.runs.model_run import RunPlan, model_folder
from assay.runs.progress_bar import progress_bar
from assay.runs.record import Run, locate_model
from assay.workspace import Workspace
from assay_policy_training.core.policy import Policy
from assay_policy_training.plugins.compositions.gated import ConsistencyReward
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.plugins.environments.tool_use import Tools
from assay_policy_training.recipe.loading import load_recipe, recipe_from_dict, recipe_to_dict
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.training.checkpoint import checkpoints
from assay_policy_training.training.loop import PolicyLoop
from assay_policy_training.training.parallel_checks import check_parts
from assay_policy_training.training.run import add_rollouts, copy_checkpoint
from assay_rm_training.checkpoints.card_sections import render_card
from assay_rm_training.checkpoints.checkpoint import SAMPLE, save_checkpoint
from assay_rm_training.generative.evaluation import JudgeEvaluation, evaluate_judge
from assay_rm_training.generative.judged_rows import JudgedRow
from assay_rm_training.generative.reasoning_check import ReasoningCheck
from assay_rm_training.generative.sft import target_answers
from assay_rm_training.generative.verdict_reward import (
    CONSISTENCY,
    REASONING,
    TAIL,
    JudgePrompts,
    VerdictReward,
    judge_prompts,
)
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.runs.contamination_lineage import as_uses, uses_of_judges, uses_of_model
from assay_rm_training.runs.recorded import add_model, inputs_of, snapshot_id, training_run, unchecked
from assay_serving.generative.local import LocalWriter, info_of
from assay_serving.generative.reader import VerdictReader
from assay_serving.generative.templates import JudgeFormat, own_format
from assay_serving.model_reference import is_url
from assay_serving.tools.toolbox import toolbox
from assay_serving.tools.turns import offered

RECIPE = "judge"


@dataclass(frozen=True)
class JudgePlan(RunPlan):
    """Settings of a run, sufficient to resume it. `data`, `eval_data`: snapshot names or absolute paths. `samples`,
    `temperature`: of the finished model's judging."""

    run_name: ClassVar[str] = "reinforcement of a judge"

    recipe: Recipe
    base: str
    data: str
    eval_data: str | None
    name: str
    format: str = "pairwise"
    samples: int = 1
    temperature: float = 0.0
    device: str = "auto"
    force: bool = False
    waivers: dict[str, str] = field(default_factory=dict)
    checker: str | None = None  #: the second judge: a model, or an endpoint's address
    checker_model: str | None = None  #: the endpoint's

    @property
    def form(self) -> JudgeFormat:
        return own_format(self.format)

    @property
    def judging(self) -> Judging:
        length, environment = self.recipe.sampling.max_new_tokens, self.recipe.environment
        judging = Judging(self.format, self.form.hash, self.samples, self.temperature, max_new_tokens=length)
        if isinstance(environment, Tools):
            judging = replace(judging, tools=environment.tools, tool_rounds=max(1, self.recipe.episodes.turns - 1))
        return judging

    def offer(self, renderer: Renderer) -> Callable[[Prompt], Prompt]:
        """Adds the recipe's tools to a question, if it has any."""
        tools = self.judging.tools
        return lambda question: offered(question, toolbox(tools).definitions, renderer) if tools else question

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "recipe": recipe_to_dict(self.recipe)}

    @classmethod
    def read(cls, workspace: Workspace, run_id: str) -> "JudgePlan":
        """Raises NotFoundError for another kind of run."""
        payload = cls.read_payload(workspace, run_id)
        if "format" not in payload:
            raise NotFoundError(f"{run_id} is not a {cls.run_name} of {workspace.root}")
        return cls(**{**payload, "recipe": recipe_from_dict(payload["recipe"])})


@dataclass(frozen=True)
class TrainedJudge:
    run_id: str
    folder: Path  #: of the run
    path: Path  #: the checkpoint
    artifact_id: str
    spec: RewardModelSpec
    metrics: dict[str, Any]
    steps: list[dict[str, Any]]  #: metrics of every step, those before a resume included
    before: JudgeEvaluation | None
    after: JudgeEvaluation | None
    contamination: Sequence[BenchmarkState] = ()


def judge_recipe(name: str | None, overrides: Sequence[str] = ()) -> Recipe:
    """A shipped recipe (judge, r1_reward), or a YAML file. Raises as `load_recipe`."""
    shipped = resources.files("assay_rm_training") / "recipes" / f"{name or RECIPE}.yaml"
    return load_recipe(str(shipped) if shipped.is_file() else str(name), overrides)


def train_judge_rl(
    workspace: Workspace,
    plan: JudgePlan,
    rows: Sequence[JudgedRow],
    eval_rows: Sequence[JudgedRow] | None = None,
    *,
    resume: str | None = None,
) -> TrainedJudge:
    """Train, evaluate and save `workspace.models / plan.name`, with progress on standard error.

    `resume`: id of the interrupted run whose plan and data these are. Raises BadInputError for a name in use or
    reserved by another run (unless `plan.force`), data that is neither checked against a registered benchmark nor
    waived, questions of which none fits, and several processes.
    """
    if world_size() > 1:
        raise BadInputError(
            "a judge is reinforced in one process: start the command without torchrun", field="torchrun"
        )
    model_folder(workspace, plan.name, force=plan.force)  # fail first
    if resume is not None and not checkpoints(workspace.runs / resume):
        raise BadInputError(f"{resume} has no checkpoint to resume from", field="--resume")
    base = locate_model(workspace, plan.base)
    inputs = inputs_of(workspace, [base] if base[1] else [], filter(None, (plan.data, plan.eval_data)), resume=resume)
    settings = {"method": "generative-rl", **plan.to_dict()}
    recipe = _with_parts(plan.recipe, plan.form, checked=plan.checker is not None)
    if not isinstance(recipe.environment, Tools | None):
        raise BadInputError("a judge is served with tools, and in no other environment", field="environment.kind")
    if recipe.chat != ChatOptions():
        raise BadInputError("a judge is served with its model's own template", field="chat")
    check_parts(recipe, "none")
    with training_run(
        *(workspace, plan.name, settings),
        force=plan.force,
        data=plan.data,
        waivers=plan.waivers,
        inputs=inputs,
        models=[base[0]],
        device=plan.device,
        resumed=resume is not None,
    ) as (run, folder, states):
        plan.write(run.folder)
        if resume is not None:
            copy_checkpoint(workspace.runs / resume, run.folder)
        return _train(run, plan, recipe, rows, eval_rows, folder, states)


def _train(
    run: Run,
    plan: JudgePlan,
    recipe: Recipe,
    rows: Sequence[JudgedRow],
    eval_rows: Sequence[JudgedRow] | None,
    folder: Path,
    states: Sequence[BenchmarkState],
) -> TrainedJudge:
    form, device = plan.form, pick_device(plan.device)
    check = None
    if plan.checker is not None:
        reference = plan.checker if is_url(plan.checker) else locate_model(run.workspace, plan.checker)[0]
        check = ReasoningCheck.open(reference, plan.checker_model, device=plan.device)
    policy = Policy(
        locate_model(run.workspace, plan.base)[0],
        device=device,
        max_prompt_tokens=recipe.sampling.max_prompt_tokens,
        autocast=recipe.optimisation.autocasts(device),
        gradient_checkpointing=recipe.optimisation.gradient_checkpointing,
        offload_activations=recipe.optimisation.offload_activations,
        lora=recipe.lora,
        with_reference=recipe.needs_reference,
        teacher=None if recipe.teacher is None else locate_model(run.workspace, recipe.teacher)[0],
        moment_bytes=MOMENT_BYTES[recipe.optimisation.optimizer],
    )
    offer = plan.offer(policy.renderer)
    fitting_rows, too_long = _fitting(rows, form, policy, offer)
    reward = VerdictReward(form, check)
    prompts = JudgePrompts(judge_prompts(fitting_rows, form), seed=recipe.seed)
    trainer = PolicyLoop(recipe, policy, prompts, [reward], run.folder, extra=[reward])
    spec = RewardModelSpec(
        kind="generative",
        base=plan.base,
        template_hash=policy.renderer.template_hash,
        trained_length=recipe.sampling.max_prompt_tokens,
        version="unsaved",
        principles=True,
        snapshot=snapshot_id(run.workspace, plan.data),
        run_id=run.id,
        judging=plan.judging,
    )

    def evaluate(when: str) -> JudgeEvaluation | None:
        if eval_rows is None:
            return None
        writer = LocalWriter(policy.model, policy.renderer, info_of(f"{plan.name} {when}", spec, policy.model))
        with progress_bar(f"evaluating {when}", len(eval_rows) * form.responses, unit="questions") as advance:
            return evaluate_judge(writer, spec, eval_rows, seed=recipe.seed, advance=advance)

    before = evaluate("before")
    if before is not None:
        (run.folder / "before").mkdir()
        before.write(run.folder / "before")
    done = trainer.resume()
    with progress_bar("training the judge", recipe.steps, unit="steps") as advance:
        advance(done)
        trainer.train(callbacks=[StepCallback(lambda _: advance(1))])
    trainer.close()
    after = evaluate("after")
    steps = [parse_object(line) for _, line in Lines(run.folder / METRICS_FILE)] if trainer.step else []
    sample = target_answers(
        [replace(row, rationale=row.rationale or "It is so.") for row in fitting_rows[:SAMPLE]], form
    )[:SAMPLE]
    base = policy.model.get_base_model() if policy.lora else policy.model
    trainable = TrainableModel(base, policy.tokenizer, new_head=False, heads=())
    renderer = Renderer(policy.tokenizer, max_length=spec.trained_length)
    coverage = Coverage(
        len(fitting_rows) + too_long, len(fitting_rows), "rows", {"too long": too_long} if too_long else {}
    )
    warnings = [*unchecked(states), *coverage.of_training()]
    if after is not None:
        warnings += [f"evaluation on {plan.eval_data}: {warning}" for warning in after.warnings]
    uses = union(
        as_uses(states, "training", plan.data, folder.name),
        uses_of_model(run.workspace, spec.base),
        uses_of_judges(run.workspace, spec.snapshot),
    )
    spec = spec.contaminated(uses)
    card = _card(folder.name, plan, spec, steps, before, after, warnings)
    spec, parity = save_checkpoint(trainable, spec, renderer, folder, sample=sample, card=card, engine=VerdictReader)
    run.metrics.update(
        {
            "method": "generative-rl",
            "rows": len(fitting_rows),
            "left_out": {"too long": too_long} if too_long else {},
            "coverage": coverage.to_dict(),
            "warnings": warnings,
            "steps": trainer.step,
            "saved_step": trainer.step if trainer.returned_to is None else trainer.returned_to,
            "updates": trainer.updates,
            "resumed_at": done,
            "device": str(device),
            "autocast": "bfloat16" if recipe.optimisation.autocasts(device) else "float32",
            "parity_check": {"largest_difference": parity.largest, "responses": parity.compared},
            "first_step": steps[0] if steps else None,
            "last_step": steps[-1] if steps else None,
            "before": before.to_dict() if before else None,
            "after": after.to_dict() if after else None,
            "contamination": [state.to_dict() for state in states],
        }
    )
    if after is not None:
        after = after.of(replace(after.model, name=folder.name, version=spec.version, parity=spec.parity))
        after.write(run.folder)
    artifact = add_model(run, folder, spec)
    add_rollouts(run, folder.name)
    return TrainedJudge(
        run.id, run.folder, folder, artifact, spec, dict(run.metrics), steps, before, after, tuple(states)
    )


def _with_parts(recipe: Recipe, form: JudgeFormat, *, checked: bool = False) -> Recipe:
    """The recipe without weights of parts that this format lacks: consistency needs pairs, tail two labels. Raises
    BadInputError where such a part has a nonzero weight, and where a second judge is needed (`checked`: there is one).
    """
    if isinstance(recipe.reward, ConsistencyReward):
        if recipe.reward.consistency == REASONING and not checked:
            raise BadInputError("the recipe's reward needs a second judge", field="--checker")
        return recipe
    lacking = {CONSISTENCY} if form.responses != 2 else set()
    lacking |= {TAIL} if len(form.labels) != 2 else set()
    composition = weights_of(recipe)
    weights = dict(composition.weights)
    if counted := [name for name in lacking if weights.get(name)]:
        raise BadInputError(f"{form.name} judges have no such part", field=f"reward.weights.{counted[0]}")
    present = {name: weight for name, weight in weights.items() if name not in lacking}
    return replace(recipe, reward=replace(composition, weights=present))


def weights_of(recipe: Recipe) -> Composition:
    """Raises BadInputError for a recipe whose reward is not a weighted sum."""
    if not isinstance(recipe.reward, Composition):
        raise BadInputError(
            "a judge is trained on a weighted sum of its parts, or stable_reinforce", field="reward.kind"
        )
    return recipe.reward


def _fitting(
    rows: Sequence[JudgedRow], form: JudgeFormat, policy: Policy, offer: Callable[[Prompt], Prompt]
) -> tuple[list[JudgedRow], int]:
    """Rows whose question is not truncated, and the number of others. Raises BadInputError where none fits."""
    fitting_rows = [row for row in rows if not policy.renderer.encode(offer(row.question(form))).truncated]
    if not fitting_rows:
        limit = policy.renderer.max_length
        raise BadInputError(f"no question of {len(rows)} fits in {limit} tokens", field="sampling.max_prompt_tokens")
    return fitting_rows, len(rows) - len(fitting_rows)


def _card(
    name: str,
    plan: JudgePlan,
    spec: RewardModelSpec,
    steps: Sequence[dict[str, Any]],
    before: JudgeEvaluation | None,
    after: JudgeEvaluation | None,
    warnings: Sequence[str],
) -> str:
    reward = plan.recipe.reward
    if isinstance(reward, ConsistencyReward):
        described = f"0.5 {reward.format} + {reward.result} (1 + 0.5 {reward.consistency}), checked by {plan.checker}"
    else:
        described = ", ".join(
            f"{part} {weight:g}" for part, weight in weights_of(plan.recipe).weights.items() if weight
        )
    evaluations = [(when, one) for when, one in (("before", before), ("after", after)) if one is not None]
    return render_card(
        "judge",
        name=name,
        plan=plan,
        recipe=plan.recipe,
        spec=spec,
        weights=described,
        steps=len(steps),
        warnings=warnings,
        evaluations=evaluations,
    )
