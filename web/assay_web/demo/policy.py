"""The demo's policy training: a served reward model, and a policy trained against it over HTTP.

Covers: serving, GRPO through the client, the same held-out prompts answered by the policy before and after. Leaves
out: the steps before (`pipeline`).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.models.devices import has_fast_bfloat16, pick_device
from assay.score import Score, ScoreResult
from assay.statistics.intervals import interval_text
from assay.workspace import Workspace
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.prompts.constrained import ConstrainedPrompt
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import ModelReward
from assay_policy_training.training.run import Plan, TrainedPolicy, train_policy
from assay_serving.client import RemoteScorer, RewardClient
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import running_server
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.settings import ServerSettings
from assay_web.demo.config import DemoConfig
from assay_web.demo.reward_models import RewardModel

EXAMPLES = 5
POLICY = "policy"
PATIENCE_S = 1800.0  #: for a request: an evaluation's responses are one, and the machine may have other work


@dataclass(frozen=True)
class PolicyAnswer:
    """One response, its score and whether every constraint of its prompt holds."""

    text: str
    score: ScoreResult
    passed: bool


@dataclass(frozen=True)
class Example:
    """One held-out prompt as the starting and as the trained policy answered it, with one seed."""

    prompt: ConstrainedPrompt
    before: PolicyAnswer
    after: PolicyAnswer


@dataclass(frozen=True)
class Optimised:
    """What policy training gave. `scored`: responses scored through the client in `score_seconds`, for one figure."""

    trained: TrainedPolicy
    recipe: str
    examples: list[Example]
    scored: int
    score_seconds: float


def optimise(
    workspace: Workspace,
    config: DemoConfig,
    model: RewardModel,
    train: Sequence[ConstrainedPrompt],
    heldout: Sequence[ConstrainedPrompt],
    say: Callable[[str], None],
) -> Optimised:
    """Serve the recorded `model` on a free port of this machine, train against it, and answer some prompts before and
    after."""
    assert model.trained is not None
    name = model.trained.path.name
    scorer = TransformersScorer.load(ModelConfig(str(model.trained.path), served_as=name))
    settings = ServerSettings(request_timeout_s=PATIENCE_S, engine_timeout_s=PATIENCE_S)
    with (
        running_server({name: scorer}, settings=settings) as server,
        RewardClient(server.url, model=name) as client,
    ):
        client.wait_until_ready(timeout=30)
        say(f"   {name} answers at {server.url}")
        trained = train_policy(
            workspace,
            _plan(config, server.url, train),
            [PromptItem(p.prompt, p.constraints) for p in train],
            [ModelReward(RemoteScorer(client))],
            held_out=[PromptItem(p.prompt, p.constraints) for p in heldout[: config.rl_eval_prompts]],
        )
        prompts = heldout[:EXAMPLES]
        texts = [_answers(config, name, prompts) for name in (config.base, str(trained.policy))]
        started = time.monotonic()
        scores = client.score(
            [ScoreItem(p.prompt, text) for answers in texts for p, text in zip(prompts, answers, strict=True)]
        )
        seconds = time.monotonic() - started
    judged = [
        PolicyAnswer(text, score, all(c.check(text).passed for c in prompt.constraints))
        for text, score, prompt in zip(
            [t for answers in texts for t in answers], scores, [*prompts, *prompts], strict=True
        )
    ]
    examples = [Example(p, judged[i], judged[len(prompts) + i]) for i, p in enumerate(prompts)]
    if trained.change is not None:
        changes = (
            ("reward", trained.change.reward, 1.0),
            ("points of the verifier's pass rate", trained.change.pass_rate, 100.0),
        )
        for what, change, scale in changes:
            if change is not None:
                say(
                    f"   held-out prompts: {scale * change.value:+.2f} {what} "
                    f"[{interval_text(change.interval, '+.2f', scale=scale)}]"
                )
    failed = sum(not isinstance(score, Score) for score in scores)
    if failed:
        say(f"   {failed} of the shown responses could not be scored; the report says why")
    return Optimised(trained, "GRPO", examples, len(scores), seconds)


def _plan(config: DemoConfig, url: str, train: Sequence[ConstrainedPrompt]) -> Plan:
    autocast = has_fast_bfloat16(pick_device())
    settings = {
        "steps": config.rl_steps,
        "seed": config.seed,
        "checkpoint_every": 0,
        "kl.coefficient": 0.0,
        "report_kl": "false",  # a second model and a third of a step's time
        "optimisation.micro_batch_rows": 16,
        "sampling.prompts_per_step": config.rl_prompts,
        "sampling.group_size": config.rl_group,
        "sampling.max_new_tokens": config.max_new_tokens,
        "sampling.max_prompt_tokens": config.max_length,
        "optimisation.lr": config.rl_lr,
        "optimisation.autocast": str(autocast).lower(),
    }
    return Plan(
        recipe=load_recipe("grpo", [f"{key}={value}" for key, value in settings.items()]),
        policy=config.base,
        prompts=(f"the demo's {len(train)} training prompts",),
        name=POLICY,
        rewards=(url,),
        evaluate=config.rl_eval_prompts,
        evaluation_samples=config.rl_eval_samples,
    )


def _answers(config: DemoConfig, name: str, prompts: Sequence[ConstrainedPrompt]) -> list[str]:
    policy = Policy(name, device=pick_device(), max_prompt_tokens=config.max_length)
    sampling = Sampling(max_new_tokens=config.max_new_tokens, max_prompt_tokens=config.max_length)
    items = [PromptItem(p.prompt, p.constraints) for p in prompts]
    return list(TransformersSampler(policy, sampling).rollout(items, 1, seed=config.seed, version=0).responses)
