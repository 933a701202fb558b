# %% [markdown]
# # Train a policy on preferences, then use it as a reward
#
# DPO on a list of pairs, without a reward model or a server. The policy is then read as a reward model itself (its
# implicit reward), ranks two answers, and rewards another policy's training.

from assay.domain import Message
from assay.score import Score
from assay_policy_training.rollouts.rewards import ModelReward
from assay_policy_training.trainer import PolicyTrainer
from assay_rm_training.trainer import RewardModelTrainer
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem

# %% Settings
BASE = "smollm2"  # embedded; "tiny", a folder, or a hub id
EPOCHS = 3
STEPS = 5
WORKSPACE = "my-policies"  # a folder, created where there is none

# %% The pairs: rows of a prompt and two responses, as TRL has them
FAVOURS = ["lend me a book", "open the window", "pass the salt", "wait a moment", "call me back", "share the notes"]
prompts = [f"Could you {favour}{please}?" for favour in FAVOURS for please in ("", ", please", " today")]
pairs = [{"prompt": prompt, "chosen": "Of course, gladly!", "rejected": "No. Ask somebody else."} for prompt in prompts]

# %% The method is a name, with its own settings among the others; `Dpo(beta=0.1)` is the same as an object.
aligned = RewardModelTrainer(
    "dpo",
    beta=0.1,
    data=pairs[:15],
    eval_data=pairs[15:],
    base=BASE,
    workspace=WORKSPACE,
    name=f"polite-{BASE}",
    epochs=EPOCHS,
    batch_size=5,
    lr=1e-5,
).train()
assert aligned.evaluation is not None
print(f"policy {aligned.path}: ranking accuracy {aligned.evaluation.to_dict()['accuracy']['value']:.3f}")

# %% Its implicit reward: beta * (log pi(y|x) - log pi_ref(y|x))
scorer = load_scorer(ModelConfig(str(aligned.path)))
question = (Message("user", "Could you hold the door?"),)
for answer in ("Of course, gladly!", "No. Ask somebody else."):
    (result,) = scorer.score([ScoreItem(question, answer)])
    print(f"{result.reward:+.3f}  {answer}" if isinstance(result, Score) else f"no score: {result.message}")

# %% ... as the reward of another training; `assay serve` and `assay eval` take the folder, too.
trained = PolicyTrainer.from_recipe(
    "dr_grpo",
    policy=BASE,
    reward=ModelReward(scorer, name="polite"),
    prompts=prompts,
    steps=STEPS,
    prompts_per_step=2,
    group_size=4,
    max_new_tokens=16,
    lr=1e-5,
    workspace=WORKSPACE,
    name=f"rewarded-{BASE}",
).train()
first, last = trained.steps[0], trained.steps[-1]
print(f"reward {first['reward_mean']:.3f} in step 1, {last['reward_mean']:.3f} in step {last['step']}")
